package canal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/packet"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/klauspost/compress/zstd"
)

// A trickle is a connection whose bytes come in pieces of any size.
type trickle struct {
	net.Conn
	in   io.Reader
	most func() int
}

func (c *trickle) Read(p []byte) (int, error) { return c.in.Read(p[:min(len(p), c.most())]) }

// onTheWire is a payload as packets; seq is the first one's number.
func onTheWire(payload []byte, seq *uint8) (out []byte) {
	for {
		n := min(len(payload), longestPacket)
		out = append(out, byte(n), byte(n>>8), byte(n>>16), *seq)
		out = append(out, payload[:n]...)
		payload, *seq = payload[n:], *seq+1
		if n < longestPacket {
			return out
		}
	}
}

// go-mysql sees every small packet, as if there were no others, and each large event is taken
// in its place, whole, whoever has read how much of it.
func TestLargeEventsAreTakenOffTheConnectionInTheirPlace(t *testing.T) {
	for _, checksums := range []bool{false, true} {
		t.Run(fmt.Sprintf("checksums %t", checksums), func(t *testing.T) { takeLarge(t, checksums) })
	}
}

func takeLarge(t *testing.T, checksums bool) {
	random := seeded(t)
	var wire []byte
	var want []string
	seq := uint8(0)
	sizes := []int{0, 1, largeEvent - 21, largeEvent - 20, largeEvent - 19, largeEvent, longestPacket - 20, longestPacket - 19, 2*longestPacket - 20}
	for i := range 400 {
		size := random.IntN(300)
		if i < 2*len(sizes) {
			size = sizes[i/2]
		}
		e := event{typ: replication.ROWS_QUERY_EVENT, when: uint32(i), body: bytes.Repeat([]byte{byte(i)}, size)}
		b := raw(e)
		if checksums {
			binary.LittleEndian.PutUint32(b[9:], uint32(len(b)+4))
			b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
		}
		wire = append(wire, onTheWire(append([]byte{0}, b...), &seq)...)
		want = append(want, fmt.Sprintf("event %d of %d bytes", i, size))
	}
	c := &client.Conn{Conn: packet.NewConn(&trickle{in: bytes.NewReader(wire), most: func() int { return 1 + random.IntN(100_000) }})}
	var got []string
	larges := 0
	(&frames{checksums: checksums, large: func(e event, end func(error) error) error {
		larges++
		got = append(got, fmt.Sprintf("event %d of %d bytes", e.when, e.size))
		b, err := io.ReadAll(io.LimitReader(e.rest, random.Int64N(2*e.size)))
		if err != nil || bytes.Count(b, []byte{byte(e.when)}) != len(b) {
			t.Errorf("%d bytes of %d, %.9q ..., %v", len(b), e.size, b, err)
		}
		return end(nil)
	}}).install(c)
	for {
		b, err := c.ReadPacket()
		if err != nil {
			if !strings.Contains(err.Error(), "EOF") {
				t.Error(err)
			}
			break
		}
		size := len(b) - 1 - replication.EventHeaderSize
		if checksums {
			size -= replication.BinlogChecksumLength
		}
		got = append(got, fmt.Sprintf("event %d of %d bytes", binary.LittleEndian.Uint32(b[1:]), size))
	}
	if larges < 10 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d large events; got\n%q\nwant\n%q", larges, got, want)
	}
}

func TestALargeEventThatWasDamagedOnItsWayIsNoticed(t *testing.T) {
	e := raw(event{typ: replication.ROWS_QUERY_EVENT, body: make([]byte, 2*largeEvent)})
	binary.LittleEndian.PutUint32(e[9:], uint32(len(e)+4))
	e = binary.LittleEndian.AppendUint32(e, crc32.ChecksumIEEE(e))
	e[largeEvent] ^= 1
	seq := uint8(0)
	c := &client.Conn{Conn: packet.NewConn(&trickle{in: bytes.NewReader(onTheWire(append([]byte{0}, e...), &seq)), most: func() int { return 9999 }})}
	var damage error
	(&frames{checksums: true, large: func(_ event, end func(error) error) error {
		damage = end(nil)
		return damage
	}}).install(c)
	if _, err := c.ReadPacket(); err == nil || !errors.Is(damage, ErrCorrupt) {
		t.Errorf("read: %v, damage: %v", err, damage)
	}
}

// body inserts message n with a body of size bytes.
func body(n, size int) string {
	return fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (%d, 'i', 't', 'k', REPEAT('%c', %d), 1)", n, 'a'+n, size)
}

// awaitBody reads the next transaction, which has message n alone.
func (t *tail) awaitBody(n, size int) {
	t.t.Helper()
	for {
		txn := t.step()
		if txn.Kind != Rows {
			continue
		}
		for row, err := range txn.Rows() {
			if err != nil {
				t.t.Fatal(err)
			}
			got := row.Values[4].Bytes
			if row.Values[0].Int != int64(n) || !bytes.Equal(got, bytes.Repeat([]byte{'a' + byte(n)}, size)) {
				t.t.Fatalf("message %d of %d bytes %.9q, want %d of %d", row.Values[0].Int, len(got), got, n, size)
			}
		}
		return
	}
}

// largeSizes are kept in memory, and in the file; one needs two packets.
var largeSizes = []int{3_000_000, 5_500_000, 17_000_000}

func TestLargeRowsComeOutWholeAndThoseOfOthersAreSkipped(t *testing.T) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("compressed %t", packed), func(t *testing.T) {
			s := newStore(t, nil)
			s.config.SpoolAbove, s.config.MemoryBytes = 4<<20, 32<<20
			if packed {
				compressed(t, s)
			}
			s.exec(t, "CREATE TABLE other (n INT, body LONGBLOB)")
			from := s.position(t)
			for n, size := range largeSizes {
				s.exec(t, fmt.Sprintf("INSERT INTO other VALUES (1, REPEAT('x', %d))", size),
					"BEGIN", body(n, size), fmt.Sprintf("INSERT INTO other VALUES (1, REPEAT('x', %d))", size), "COMMIT",
					"UPDATE other SET n = 2, body = CONCAT(body, 'y')", "DELETE FROM other")
			}
			s.exec(t, insert(9))
			tl := s.tail(t, from)
			for n, size := range largeSizes {
				tl.awaitBody(n, size)
				if b := tl.Stats().BufferedBytes; b > s.config.MemoryBytes {
					t.Errorf("%d bytes buffered", b)
				}
			}
			if _, rows := tl.rows(); !strings.Contains(rows[0], "pos=9 ") {
				t.Errorf("rows %q", rows)
			}
			if st := tl.Stats(); st.Spooled != 2 || packed != (st.Bytes < 20_000_000) {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestAWireThatBreaksInsideLargeRowsGivesThemOnce(t *testing.T) {
	s := newStore(t, nil)
	s.config.SpoolAbove, s.config.MemoryBytes = 4<<20, 16<<20
	s.config.SpoolDir = t.TempDir()
	from := s.position(t)
	random := seeded(t)
	sizes := []int{2_000_000, 6_000_000, 3_000_000, 2_500_000, 5_000_000, 1_500_000}
	for n, size := range sizes {
		s.exec(t, body(n, size))
	}
	var mu sync.Mutex
	most := 4_000_000
	s.config.Addr = proxy(t, s.config.Addr, func(c net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		most += 500_000 // so that the longest comes through some day
		return &cutter{Conn: c, left: 3000 + random.IntN(most)}
	})
	tl := s.tail(t, from)
	for n, size := range sizes {
		tl.awaitBody(n, size)
	}
	if st := tl.Stats(); st.Reconnects[EOF] < 3 || st.Reconnects[Damaged] != 0 || st.Voided == 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestWhatNeedsMoreMemoryThanThereIsStopsTheTailer(t *testing.T) {
	s := newStore(t, nil)
	s.db.SetMaxIdleConns(0)
	s.config.SpoolAbove, s.config.MemoryBytes = 1<<20, 2<<20
	s.exec(t, "CREATE TABLE other (n INT, body LONGBLOB)")
	from := s.position(t)
	s.exec(t, "INSERT INTO other VALUES (1, REPEAT('x', 3000000))", body(1, 2_000_000), body(2, 2_200_000))
	tl := s.tail(t, from)
	tl.awaitBody(1, 2_000_000)
	if err := tl.failure(); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "for table "+s.config.Schema+".message_00, the limit is 2097152") {
		t.Errorf("a row: %v", err)
	}
	from = s.position(t)
	s.exec(t, "CREATE TABLE t (n INT COMMENT 'x') -- "+strings.Repeat("x", 2_200_000))
	err := s.tail(t, from).failure()
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "QueryEvent of 2") {
		t.Errorf("a text: %v", err)
	}
	t.Log(err)
}

// zipped is a compressed transaction that looks back over a window.
func zipped(t *testing.T, window int, events ...event) event {
	t.Helper()
	var out bytes.Buffer
	out.Write([]byte{payloadCompression, 1, replication.ZSTD, payloadEnd})
	z, err := zstd.NewWriter(&out, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if _, err := z.Write(raw(e)); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil { // or the window is made as small as the data
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return event{typ: replication.TRANSACTION_PAYLOAD_EVENT, when: scriptTime, body: out.Bytes()}
}

func TestACompressionThatNeedsTooMuchMemoryStopsTheTailerByItsSetting(t *testing.T) {
	inner := transaction(MySQL, 1, 10)[1:]
	story(t, MySQL, one(gtidEvent(MySQL, 1), zipped(t, maxWindow, inner...)), "1 10")
	_, err := scripted(MySQL, memory).play(t, gtidEvent(MySQL, 1), zipped(t, 2*maxWindow, inner...))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "binlog_transaction_compression_level_zstd to 20") || !strings.Contains(err.Error(), "GTID ") {
		t.Errorf("error %v", err)
	}
}
