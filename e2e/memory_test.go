package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/mirror"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

// canaldMemory is the most that canald may ever have resident for one store.
const canaldMemory = 256 << 20

// Rows of a large transaction, of 600 bytes each; a soak has a million.
const largeTransaction, fullTransaction = 30_000, 1_000_000

// Bodies: the largest that goes through a server with max_allowed_packet=64M, whose half is
// the largest that notifyd takes; and the largest that such a server makes in a row.
const largestMessage, largestBody = 31 << 20, 63 << 20

// Transactions and rows of any size, ours and others', plain and compressed, go by. canald
// never needs more memory than it is said to.
func TestCanaldKeepsItsMemoryWhateverSessionsWrite(t *testing.T) {
	rows := largeTransaction
	if os.Getenv(stage.EnvSoak) != "" {
		rows = fullTransaction
	}
	s := newScribe(t)
	canald := s.Canald("one", "max_body: 31MiB").Start()
	digests, blanks := "REPEAT(SHA2(i, 256), 9)", fmt.Sprintf("REPEAT('x', %d)", largestBody)
	seq := uint64(0)
	for _, act := range []struct {
		name     string
		packed   bool
		messages int
		do       func(messages int)
	}{
		{"a large transaction of ours", false, rows, func(n int) { s.messages(0, n, digests) }},
		{"the largest row of others", false, 0, func(int) { s.others(1, noise(largestBody)) }},
		{"messages as large as they may be", false, 3, func(n int) { s.messages(1, n, noise(largestMessage)) }},
		{"a large transaction of ours, compressed", true, rows, func(n int) { s.messages(0, n, digests) }},
		{"a large transaction of others, compressed", true, 0, func(int) { s.others(rows, digests) }},
		{"the largest row of others, compressed", true, 0, func(int) { s.others(1, blanks) }},
		{"a message as large as it may be, compressed", true, 1, func(n int) { s.messages(1, n, noise(largestMessage)) }},
	} {
		s.pack(act.packed)
		began := time.Now()
		act.do(act.messages)
		s.messages(2, 1, "'mark'")
		seq += uint64(act.messages) + 1
		written := time.Since(began)
		awaitSeq(t, canald, seq)
		s.resident(canald, fmt.Sprintf("%s, written in %s, copied after %s", act.name, written.Round(time.Millisecond), time.Since(began).Round(time.Millisecond)))
	}
	s.messages(3, 1, noise(largestBody))
	if st := awaitMirror(t, canald, time.Minute, mirror.Waiting); st.WaitingReason != mirror.ReasonTooLarge || st.Repair == "" {
		t.Errorf("a message that is too large: %+v", st)
	}
	s.resident(canald, "a message that is too large")
}

// resident looks at what a canald has needed so far.
func (s *scribe) resident(canald *stage.Program, what string) {
	s.t.Helper()
	peak := canald.Peak()
	s.t.Logf("%d MiB: %s", peak>>20, what)
	if peak > canaldMemory {
		s.t.Errorf("%d bytes were resident, with %s", peak, what)
	}
}

// noise is an SQL text for about n bytes that do not compress well.
func noise(n int) string {
	return fmt.Sprintf("CONCAT(RANDOM_BYTES(1024), REPEAT(RANDOM_BYTES(1024), %d))", n/1024-1)
}

// awaitSeq waits until a canald has copied so many messages.
func awaitSeq(t *testing.T, canald *stage.Program, seq uint64) {
	t.Helper()
	stage.Eventually(t, 5*time.Minute, fmt.Sprintf("seq %d", seq), func() error {
		if s := awaitMirror(t, canald, time.Minute, mirror.Copying); s.Seq != seq {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// A scribe writes into the store without a broker.
type scribe struct {
	*stage.Stage
	t    *testing.T
	db   *sql.DB
	conn *sql.Conn
	next map[int]int64
}

func newScribe(t *testing.T) *scribe {
	t.Helper()
	s := &scribe{t: t, Stage: stage.On(t, dbtest.Private(t, embedded.Config{})), next: map[int]int64{}}
	if _, err := migrate.Migrate(t.Context(), s.DSN, migrate.Options{Shards: 8}); err != nil {
		t.Fatal(err)
	}
	s.db = s.Open()
	s.pack(false)
	s.exec("CREATE TABLE others (i INT, body LONGBLOB)")
	s.exec("CREATE TABLE digit (d INT)")
	s.exec("INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
	return s
}

func (s *scribe) exec(statement string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := s.conn.ExecContext(ctx, statement); err != nil {
		s.t.Fatalf("%.200s: %v", statement, err)
	}
}

// pack begins a session whose transactions are compressed in the binlog, or not.
func (s *scribe) pack(on bool) {
	s.t.Helper()
	if s.conn != nil {
		set := "SET GLOBAL binlog_transaction_compression = %t"
		if s.Database.Server().Flavor == embedded.MariaDB {
			set = "SET GLOBAL log_bin_compress = %t"
		}
		s.exec(fmt.Sprintf(set, on))
		s.conn.Close()
	}
	s.db.SetMaxIdleConns(0)
	var err error
	if s.conn, err = s.db.Conn(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.conn.Close() })
}

// numbers are the numbers below n, as i.
func numbers(n int) string {
	return fmt.Sprintf(`(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d AS i
		FROM digit a, digit b, digit c, digit e, digit f, digit g HAVING i < %d) AS numbers`, n)
}

// messages commits n messages of a shard in one statement; body is an SQL text.
func (s *scribe) messages(shard, n int, body string) {
	s.t.Helper()
	first := int64(1)<<40 + 1 + s.next[shard]
	s.next[shard] += int64(n)
	s.exec(fmt.Sprintf("INSERT INTO %s (%s) SELECT %d + i, UNHEX(LEFT(SHA2(CONCAT(%d, '-', %d + i), 256), 32)), 'trades', i, '', %s, 1, %s FROM %s ORDER BY i",
		schema.Message(shard), schema.MessageColumnList, first, shard, first, body, schema.NowMicros, numbers(n)))
}

// others commits n rows of a table that is not the mirror's.
func (s *scribe) others(n int, body string) {
	s.t.Helper()
	s.exec(fmt.Sprintf("INSERT INTO others SELECT i, %s FROM %s", body, numbers(n)))
	s.exec("TRUNCATE TABLE others")
}
