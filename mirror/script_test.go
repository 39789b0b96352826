package mirror

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"notifymirror/canal"
	"notifymirror/notifyd/schema"
)

// A script is a binlog that tests write themselves: the fake on the wire.
type script struct {
	mu     sync.Mutex
	txns   []scriptTxn
	more   chan struct{} // closed and replaced when something was added
	tables map[int]*canal.Table
	server canal.ServerID
	next   []int64 // pos of each shard
	// deleted from the store, as what is delivered is
	deleted map[uuid.UUID]bool
	// start is the commit time of the first transaction. It is recent: Kafka's retention
	// counts from a record's timestamp.
	start time.Time
	// fail, when set, is what the stream ends with at its end.
	fail error
	// clock is how far the server's is ahead.
	clock time.Duration
}

type scriptTxn struct {
	kind canal.Kind
	rows []canal.Row
	time time.Time
}

const scriptShards = 4

func newScript() *script {
	s := &script{more: make(chan struct{}), tables: map[int]*canal.Table{}, server: "0-1", next: make([]int64, scriptShards)}
	s.start = time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range scriptShards {
		s.tables[i] = &canal.Table{Schema: "notify", Name: schema.Message(i), Columns: schema.MessageColumns()}
		s.next[i] = 1<<posBits + 1
	}
	return s
}

// scriptMessage is a message as a test writes it.
type scriptMessage struct {
	shard      int
	topic, key string
	headers    string
	body       []byte
	unmirrored bool
}

// add commits a transaction; without messages it is a foreign one.
func (s *script) add(ms ...scriptMessage) (ids []uuid.UUID) { return s.addAt(time.Time{}, ms...) }

// addAt is add with a time of the commit; zero: a millisecond for each transaction before it.
func (s *script) addAt(at time.Time, ms ...scriptMessage) (ids []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.IsZero() {
		at = s.start.Add(time.Duration(len(s.txns)) * time.Millisecond)
	}
	t := scriptTxn{kind: canal.Foreign, time: at}
	for _, m := range ms {
		t.kind = canal.Rows
		row, id := s.row(m)
		t.rows, ids = append(t.rows, row), append(ids, id)
	}
	s.push(t)
	return ids
}

func (s *script) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
	close(s.more)
	s.more = make(chan struct{})
}

func (s *script) push(t scriptTxn) {
	s.txns = append(s.txns, t)
	close(s.more)
	s.more = make(chan struct{})
}

func (s *script) row(m scriptMessage) (canal.Row, uuid.UUID) {
	pos := s.next[m.shard]
	s.next[m.shard]++
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], uint64(m.shard)+1)
	binary.BigEndian.PutUint64(id[8:], uint64(pos))
	mirrored := int64(1)
	if m.unmirrored {
		mirrored = 0
	}
	if m.body == nil {
		m.body = []byte{}
	}
	return canal.Row{Table: s.tables[m.shard], Values: []canal.Value{
		{Int: pos}, {Bytes: id[:]}, {Bytes: []byte(m.topic)}, {Bytes: []byte(m.key)},
		{Bytes: []byte(m.headers)}, {Bytes: m.body}, {Int: mirrored}, {Int: s.start.UnixMicro() + pos&0xffff},
	}}, id
}

// info is what the script's store says about itself.
func (s *script) info(storeID string) storeInfo {
	return storeInfo{
		id: storeID, shards: scriptShards, flavor: canal.MariaDB, server: s.server,
		covers: func(canal.Position) error { return nil }, survey: s.survey(),
		position: s.last(), goOn: func(p canal.Position) (canal.Position, error) { return p, nil },
	}
}

// last is the position behind the last transaction.
func (s *script) last() canal.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return canal.Position{Flavor: canal.MariaDB, GTIDs: fmt.Sprintf("0-1-%d", len(s.txns))}
}

// survey: every transaction takes 100 bytes, and the server's clock is ahead.
func (s *script) survey() canal.Survey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return canal.Survey{Clock: s.clock, Logs: []canal.LogFile{{Name: "binlog.000001", Bytes: int64(len(s.txns)) * 100}}}
}

// from opens the script at a position: GTID 0-1-N is transaction N, from 1.
func (s *script) from(at canal.Position) source {
	n := 0
	if at.GTIDs != "" {
		n, _ = strconv.Atoi(at.GTIDs[strings.LastIndexByte(at.GTIDs, '-')+1:])
	}
	return &scriptSource{script: s, next: n}
}

type scriptSource struct {
	script *script
	next   int
}

func (s *scriptSource) txns(ctx context.Context) iter.Seq2[txn, error] {
	return func(yield func(txn, error) bool) {
		for {
			s.script.mu.Lock()
			more, fail, all := s.script.more, s.script.fail, s.script.txns
			s.script.mu.Unlock()
			for ; s.next < len(all); s.next++ {
				if !yield(s.txn(all[s.next], s.next+1), nil) || ctx.Err() != nil {
					return
				}
			}
			if fail != nil {
				yield(txn{}, fail)
				return
			}
			beat := s.txn(scriptTxn{kind: canal.Heartbeat}, s.next)
			if s.next > 0 && !yield(beat, nil) {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *scriptSource) txn(t scriptTxn, n int) txn {
	gtid := fmt.Sprintf("0-1-%d", n)
	return txn{
		kind: t.kind, gtid: gtid, commitTime: t.time, server: s.script.server,
		came: time.Now(), end: canal.Place{File: "binlog.000001", Offset: int64(n) * 100},
		rows: func(yield func(canal.Row, error) bool) {
			var mem [8][]byte
			for _, r := range t.rows {
				// The reader's memory is used again for each row, as a tailer may do.
				values := make([]canal.Value, len(r.Values))
				for i, v := range r.Values {
					mem[i] = append(mem[i][:0], v.Bytes...)
					values[i] = canal.Value{Bytes: mem[i], Int: v.Int, Null: v.Null}
				}
				if !yield(canal.Row{Table: r.Table, Values: values}, nil) {
					return
				}
			}
		},
		after: func() canal.Position { return canal.Position{Flavor: canal.MariaDB, GTIDs: gtid} },
	}
}

// random adds transactions of random sizes over topics, and foreign ones between them.
func (s *script) random(r *rand.Rand, txns, most int, topics ...string) {
	for range txns {
		if r.IntN(4) == 0 {
			s.add()
			continue
		}
		var ms []scriptMessage
		for range 1 + r.IntN(most) {
			ms = append(ms, scriptMessage{
				shard: r.IntN(scriptShards), topic: topics[r.IntN(len(topics))], key: fmt.Sprintf("k%d", r.IntN(20)),
				headers: `{"a":"b"}`, body: fmt.Appendf(nil, "body %d", r.Uint64()), unmirrored: r.IntN(10) == 0,
			})
		}
		s.add(ms...)
	}
}
