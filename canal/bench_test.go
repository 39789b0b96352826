package canal

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"notifymirror/notifyd/embedded/dbtest"
)

// Each body has 512 bytes; transactions have 200 rows, as the broker's have.
const benchRows, benchBody, benchBatch = 20_000, 512, 200

// filled is a store with rows in its log, and the position before them.
func filled(b *testing.B) (*store, Position) {
	b.Helper()
	s := newStore(b, nil)
	from := s.position(b)
	body := strings.Repeat("x", benchBody)
	for i := 0; i < benchRows; i += benchBatch {
		var q strings.Builder
		q.WriteString("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES ")
		for j := range benchBatch {
			if j > 0 {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "(%d, '0123456789abcdef', 'orders.new', 'key-%d', '%s', 1)", i+j, (i+j)%1000, body)
		}
		s.exec(b, q.String())
	}
	return s, from
}

// recorded are the events of the server's binlog files.
func recorded(b *testing.B, s *store) []event {
	b.Helper()
	s.exec(b, "FLUSH BINARY LOGS")
	files, err := filepath.Glob(filepath.Join(filepath.Dir(dbtest.Start(b).Socket()), "binlog.[0-9]*"))
	if err != nil || len(files) == 0 {
		b.Fatalf("binlog files: %v, %v", files, err)
	}
	slices.Sort(files)
	var out []event
	p := replication.NewBinlogParser()
	p.SetRawMode(true)
	for _, f := range files {
		if strings.HasSuffix(f, ".idx") {
			continue
		}
		err := p.ParseFile(f, 0, func(e *replication.BinlogEvent) error {
			ev := event{typ: e.Header.EventType, flags: e.Header.Flags, when: e.Header.Timestamp, server: e.Header.ServerID}
			if g, ok := e.Event.(*replication.GenericEvent); ok {
				ev.body = g.Data
			}
			out = append(out, ev)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// sum looks at every value, as a user of rows does.
func sum(b *testing.B, t *Txn) (rows int) {
	for row, err := range t.Rows() {
		if err != nil {
			b.Fatal(err)
		}
		for i := range row.Values {
			_ = len(row.Values[i].Bytes)
		}
		rows++
	}
	return rows
}

// BenchmarkAssembleAndDecode is the pure part: recorded events to rows.
func BenchmarkAssembleAndDecode(b *testing.B) {
	s, _ := filled(b)
	events := recorded(b, s)
	f := MySQL
	if isMariaDB(b) {
		f = MariaDB
	}
	b.SetBytes(benchRows * benchBody)
	b.ReportAllocs()
	for b.Loop() {
		p := scripted(f, 16<<20)
		p.watch.schema = s.config.Schema
		rows := 0
		for _, e := range events {
			done, err := p.push(e)
			if err != nil {
				b.Fatal(err)
			}
			if done != nil && done.rows != nil {
				rows += sum(b, &Txn{Kind: done.kind, rows: done.rows})
				done.rows.release()
			}
		}
		if rows != benchRows {
			b.Fatalf("%d rows", rows)
		}
	}
	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkTail reads the same from the server, connecting included.
func BenchmarkTail(b *testing.B) {
	s, from := filled(b)
	b.SetBytes(benchRows * benchBody)
	b.ReportAllocs()
	for b.Loop() {
		tl := s.tail(b, from)
		for rows := 0; rows < benchRows; {
			txn := tl.step()
			rows += sum(b, &txn)
		}
		tl.stop()
	}
	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}
