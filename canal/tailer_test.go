package canal

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// A store is a schema on a real server with one watched table.
type store struct {
	db     *sql.DB
	config Config
}

const messageTable = `CREATE TABLE message_00 (
	pos BIGINT NOT NULL PRIMARY KEY, id BINARY(16) NOT NULL, topic VARCHAR(127) CHARACTER SET ascii NOT NULL,
	msg_key VARBINARY(300) NULL, body LONGBLOB NOT NULL, flag TINYINT UNSIGNED NOT NULL)`

// newStore makes a schema on db, or on the shared server when db is nil.
func newStore(t testing.TB, db *embedded.DB) *store {
	t.Helper()
	if db == nil {
		db = dbtest.Start(t)
	}
	dsn := dbtest.SchemaOn(t, db)
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	s := &store{db: pool, config: Config{
		Addr: db.Addr(), User: db.User(), Password: db.Password(),
		Watch:  func(table string) bool { return strings.HasPrefix(table, "message_") },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	if err := pool.QueryRow("SELECT DATABASE()").Scan(&s.config.Schema); err != nil {
		t.Fatal(err)
	}
	s.exec(t, messageTable)
	return s
}

func (s *store) exec(t testing.TB, statements ...string) {
	t.Helper()
	c, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, q := range statements {
		if _, err := c.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func insert(pos int) string {
	return fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (%d, 'id', 'topic', 'key', 'body %d', 1)", pos, pos)
}

// position is where the server is now.
func (s *store) position(t testing.TB) Position {
	t.Helper()
	info, err := Inspect(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	return info.Position
}

// a tail pulls one sequence.
type tail struct {
	stop func()
	t    testing.TB
	next func() (Txn, error, bool)
	*Tailer
}

func (s *store) tail(t testing.TB, from Position) *tail {
	t.Helper()
	tl, err := NewTailer(s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull2(tl.Txns(ctx, from))
	t.Cleanup(func() { stop(); cancel() })
	return &tail{t: t, next: next, stop: stop, Tailer: tl}
}

// step returns the next item of any kind.
func (t *tail) step() Txn {
	t.t.Helper()
	txn, err, ok := t.next()
	if err != nil || !ok {
		t.t.Fatalf("next: %v (more: %t)", err, ok)
	}
	return txn
}

// rows returns the next transaction with rows, and these as text.
func (t *tail) rows() (Txn, []string) {
	t.t.Helper()
	for {
		if txn := t.step(); txn.Kind == Rows {
			return txn, texts(t.t, &txn)
		}
	}
}

// failure steps on until the sequence ends.
func (t *tail) failure() error {
	t.t.Helper()
	for {
		_, err, ok := t.next()
		if err != nil {
			if _, _, more := t.next(); more {
				t.t.Error("the sequence goes on after its error")
			}
			return err
		}
		if !ok {
			t.t.Fatal("the sequence ended without an error")
		}
	}
}

func texts(t testing.TB, txn *Txn) []string {
	t.Helper()
	var out []string
	for row, err := range txn.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text(row))
	}
	return out
}

func text(row Row) string {
	b := strings.Builder{}
	b.WriteString(row.Table.Name)
	for i, v := range row.Values {
		b.WriteString(" " + row.Table.Columns[i] + "=")
		switch {
		case v.Null:
			b.WriteString("NULL")
		case v.Bytes == nil:
			fmt.Fprint(&b, v.Int)
		default:
			fmt.Fprintf(&b, "%q", v.Bytes)
		}
	}
	return b.String()
}

func TestAnInsertComesOutWithItsColumnsAndExactBytes(t *testing.T) {
	s := newStore(t, nil)
	from := s.position(t)
	s.exec(t, `INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (-5, X'00010000000000000000000000000000', 'a.b', NULL, X'00FF00', 200)`)
	txn, rows := s.tail(t, from).rows()
	want := `message_00 pos=-5 id="\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" topic="a.b" msg_key=NULL body="\x00\xff\x00" flag=200`
	if len(rows) != 1 || rows[0] != want {
		t.Errorf("rows\n%s\nwant\n%s", rows, want)
	}
	if d := time.Since(txn.CommitTime); d < -time.Second || d > time.Minute {
		t.Errorf("commit time %s", txn.CommitTime)
	}
	after := s.position(t)
	after.GTIDs = strings.ReplaceAll(after.GTIDs, "\n", "") // MySQL begins a line with each server
	if txn.After() != after {
		t.Errorf("after %v, server is at %v", txn.After(), after)
	}
}
