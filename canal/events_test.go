package canal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
)

// Scripted events, as bodies that a server would send. The watched table of a script is
// shop.message_00 (pos BIGINT, body BLOB), with table id 7.

var scriptSID = uuid.MustParse("3e11fa47-71ca-11e1-9e33-c80aa9429562")

const scriptTime = 1_700_000_000 // seconds

func gtidEvent(f Flavor, seq uint64) event {
	if f == MariaDB {
		b := binary.LittleEndian.AppendUint64(nil, seq)
		b = binary.LittleEndian.AppendUint32(b, 0)
		return event{typ: replication.MARIADB_GTID_EVENT, server: 1, when: scriptTime, body: append(b, 0, 0, 0, 0, 0, 0)}
	}
	b := append([]byte{1}, scriptSID[:]...)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = append(b, 2)
	b = append(b, make([]byte, 16)...)
	micros := binary.LittleEndian.AppendUint64(nil, scriptTime*1e6+seq)
	return event{typ: replication.GTID_EVENT, when: scriptTime, body: append(b, micros[:7]...)}
}

// taggedEvent is the GTID event of a transaction with a tag.
func taggedEvent(tag string, seq uint64) event {
	b := []byte{2, 2 * 60, 0}
	b = append(b, 0, 2, 1<<1)
	for _, c := range scriptSID {
		b = appendVar(b, uint64(c))
	}
	b = appendVar(append(b, 2<<1), seq<<1)
	b = append(append(b, 3<<1, byte(len(tag)<<1)), tag...)
	b = append(b, 4<<1, 0, 5<<1, 1<<2)
	b = appendVar(append(b, 6<<1), scriptTime*1e6+seq)
	b = append(b, 11<<1, 0) // a field behind those that are read
	return event{typ: replication.GTID_TAGGED_LOG_EVENT, when: scriptTime, body: b}
}

func appendVar(b []byte, v uint64) []byte {
	n := 1
	for n < 8 && v>>(7*n) != 0 {
		n++
	}
	wide := binary.LittleEndian.AppendUint64(nil, v<<n|(1<<(n-1)-1))
	return append(b, wide[:n]...)
}

// standalone makes a MariaDB GTID event one of a group without an end marker.
func standalone(e event) event { e.body[12] |= 1; return e }

func queryEvent(schema, text string) event {
	b := make([]byte, 8, 64)
	b = append(b, byte(len(schema)), 0, 0, 0, 0)
	b = append(b, schema...)
	b = append(b, 0)
	return event{typ: replication.QUERY_EVENT, when: scriptTime, body: append(b, text...)}
}

func xidEvent() event {
	return event{typ: replication.XID_EVENT, when: scriptTime, body: make([]byte, 8)}
}

func xaPrepareEvent(onePhase byte) event {
	return event{typ: replication.XA_PREPARE_LOG_EVENT, when: scriptTime, body: append([]byte{onePhase}, make([]byte, 12)...)}
}

func tableMapEvent(id uint64, schema, table string) event {
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0, byte(len(schema)))
	b = append(append(b, schema...), 0, byte(len(table)))
	b = append(append(b, table...), 0)
	b = append(b, 2, 8, 252) // LONGLONG, BLOB
	b = append(b, 1, 4)      // the blob's length has 4 bytes
	b = append(b, 0)         // nothing is NULL
	b = append(b, optSignedness, 1, 0)
	b = append(b, optDefaultCharset, 1, binaryCharset)
	b = append(b, optColumnName, 9, 3)
	b = append(append(b, "pos"...), 4)
	b = append(b, "body"...)
	return event{typ: replication.TABLE_MAP_EVENT, when: scriptTime, body: b}
}

func rowsEventOf(typ replication.EventType, id uint64, present byte, rows []byte) event {
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0)
	if isRowsV2(typ) {
		b = append(b, 2, 0)
	}
	b = append(b, 2, present)
	return event{typ: typ, when: scriptTime, body: append(b, rows...)}
}

// insertEvent inserts rows with these numbers.
func insertEvent(id uint64, numbers ...int) event {
	var rows []byte
	for _, n := range numbers {
		body := fmt.Sprintf("body %d", n)
		rows = append(rows, 0)
		rows = binary.LittleEndian.AppendUint64(rows, uint64(n))
		rows = binary.LittleEndian.AppendUint32(rows, uint32(len(body)))
		rows = append(rows, body...)
	}
	return rowsEventOf(replication.WRITE_ROWS_EVENTv1, id, 3, rows)
}

// transaction is a whole one that inserts rows with these numbers.
func transaction(f Flavor, seq uint64, numbers ...int) []event {
	out := []event{gtidEvent(f, seq)}
	if f == MySQL {
		out = append(out, queryEvent("", "BEGIN"))
	}
	for _, n := range numbers {
		out = append(out, tableMapEvent(7, "shop", "message_00"), insertEvent(7, n))
	}
	return append(out, xidEvent())
}

// raw is an event as it comes over the wire, without checksum.
func raw(e event) []byte {
	b := binary.LittleEndian.AppendUint32(nil, e.when)
	b = append(b, byte(e.typ))
	b = binary.LittleEndian.AppendUint32(b, e.server)
	b = binary.LittleEndian.AppendUint32(b, uint32(replication.EventHeaderSize+len(e.body)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint16(b, e.flags)
	return append(b, e.body...)
}

// payloadEvent compresses events into one.
func payloadEvent(t testing.TB, events ...event) event {
	t.Helper()
	var inner bytes.Buffer
	for _, e := range events {
		inner.Write(raw(e))
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	b := append([]byte{payloadCompression, 1, replication.ZSTD, payloadEnd}, z.EncodeAll(inner.Bytes(), nil)...)
	return event{typ: replication.TRANSACTION_PAYLOAD_EVENT, when: scriptTime, body: b}
}

// A player is an assembler for scripts; rows above memory go to a file.
type player struct {
	*assembler
	held int64 // of the memory budget
}

func scripted(f Flavor, memory int64) *player {
	p := &player{}
	w := watch{schema: "shop", table: func(name string) bool { return name == "message_00" }}
	p.assembler = newAssembler(f, w, bufferLimits{
		memory: memory, disk: 1 << 30, event: 8 << 20, spilling: func() {},
		take: func(n int64) (int64, error) { p.held += n; return n, nil }, give: func(n int64) { p.held -= n },
	})
	return p
}

// play pushes events, then ends the stream. It returns each transaction as the last digit
// of its GTID and the numbers of its rows, and the first error.
func (a *player) play(t testing.TB, events ...event) (out []string, err error) {
	t.Helper()
	defer func() {
		if a.void(); a.held != 0 {
			t.Errorf("%d bytes of the memory budget were not given back", a.held)
		}
	}()
	for _, e := range events {
		done, err := a.push(e)
		if err != nil {
			return out, err
		}
		if done == nil {
			continue
		}
		txn := Txn{Kind: done.kind, rows: done.rows}
		s := fmt.Sprint(done.gtid.seq % 10)
		for _, row := range texts(t, &txn) {
			n, _, _ := strings.Cut(strings.TrimPrefix(row, "message_00 pos="), " ")
			s += " " + n
		}
		out = append(out, s)
		if (done.kind == Rows) != (done.rows != nil) {
			t.Errorf("kind %d with rows %v", done.kind, done.rows)
		}
		if done.rows != nil {
			done.rows.release()
		}
	}
	return out, nil
}
