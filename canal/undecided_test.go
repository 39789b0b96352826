package canal

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A message is prepared, decided, relayed, rejected and rolled back in tables beside the
// message tables. Whoever tails sees its row when the transaction that makes it a message has
// committed: not a transaction sooner, not a second time, and whatever else is open.
func TestARowComesOutWithTheCommitThatMakesItAMessageAndNotBefore(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t,
		"CREATE TABLE half_00 (id INT PRIMARY KEY, body LONGBLOB NOT NULL, next_check_at INT NOT NULL)",
		strings.Replace(messageTable, "_00", "_01", 1),
		"CREATE TABLE half_01 (id INT PRIMARY KEY, body LONGBLOB NOT NULL, next_check_at INT NOT NULL)",
		"CREATE TABLE half_decision (id INT PRIMARY KEY, decision INT NOT NULL)",
		"CREATE TABLE outbox (seq INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB NOT NULL)",
		"CREATE TABLE outbox_rejected (seq INT PRIMARY KEY, body LONGBLOB NOT NULL)",
		"CREATE TABLE orders (n INT PRIMARY KEY)")
	tl := s.tail(t, s.position(t))
	conns := map[string]*sql.Conn{}
	mark := 1000
	for line := range strings.Lines(undecided) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		who, statement, _ := strings.Cut(line, ": ")
		statement, out, _ := strings.Cut(statement, " -> ")
		if conns[who] == nil {
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns[who] = conn
		}
		for body, number := range map[string]int{"MESSAGE": 0, "OTHER": 1} {
			if at, ok := strings.CutPrefix(statement, body+" "); ok {
				statement = strings.Replace(insert(0), "VALUES (0,", "VALUES ("+at+",", 1)
				statement = strings.Replace(statement, "message_00", fmt.Sprintf("message_%02d", number), 1)
			}
		}
		if _, err := conns[who].ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		// What is behind the line in the binlog has come out when the mark does.
		mark++
		s.exec(t, insert(mark))
		want := []string{fmt.Sprint(mark)}
		if out != "" {
			want = append(strings.Split(out, ","), want...)
		}
		var got []string
		for !slices.Contains(got, fmt.Sprint(mark)) {
			_, rows := tl.rows()
			for _, r := range rows {
				_, rest, _ := strings.Cut(r, " pos=")
				pos, _, _ := strings.Cut(rest, " ")
				got = append(got, pos)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s\ncame out with the rows %q, want %q", line, got, want)
		}
	}
}

// undecided is a transcript: who does what, and after "->" the pos of what comes out then.
// MESSAGE and OTHER insert into message_00 and message_01 the message with that pos.
const undecided = `
	broker: INSERT INTO half_00 VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0), (4, 'd', 0)
	broker: UPDATE half_00 SET next_check_at = 5 WHERE id = 1
	broker: BEGIN
	broker: SELECT * FROM half_00 WHERE id = 1 FOR UPDATE
	broker: MESSAGE 1
	broker: DELETE FROM half_00 WHERE id = 1
	broker: INSERT INTO half_decision VALUES (1, 1)
	broker: COMMIT -> 1

	zombie: BEGIN
	zombie: MESSAGE 2
	zombie: DELETE FROM half_00 WHERE id = 2
	zombie: INSERT INTO half_decision VALUES (2, 1)
	zombie: ROLLBACK
	broker: BEGIN
	broker: DELETE FROM half_00 WHERE id = 2
	broker: INSERT INTO half_decision VALUES (2, 2)
	broker: COMMIT

	broker: BEGIN
	broker: SAVEPOINT one
	broker: MESSAGE 3
	broker: ROLLBACK TO one
	broker: MESSAGE 4
	broker: DELETE FROM half_00 WHERE id = 4
	broker: INSERT INTO half_decision VALUES (4, 1)
	broker: COMMIT -> 4

	broker: INSERT INTO half_01 VALUES (3, 'c', 0)
	one: BEGIN
	one: MESSAGE 5
	two: BEGIN
	two: OTHER 6
	two: DELETE FROM half_01 WHERE id = 3
	two: COMMIT -> 6
	one: ROLLBACK
	broker: DELETE FROM half_00 WHERE id = 3

	shop: BEGIN
	shop: INSERT INTO orders VALUES (1)
	shop: INSERT INTO outbox (body) VALUES ('slow')
	store: BEGIN
	store: INSERT INTO outbox (body) VALUES ('given up')
	store: INSERT INTO orders VALUES (2)
	store: ROLLBACK
	store: BEGIN
	store: INSERT INTO outbox (body) VALUES ('quick')
	store: COMMIT
	relay: BEGIN
	relay: DELETE FROM outbox WHERE seq = 3
	relay: MESSAGE 7
	relay: COMMIT -> 7
	shop: COMMIT
	relay: BEGIN
	relay: DELETE FROM outbox WHERE seq = 1
	relay: MESSAGE 8
	relay: ROLLBACK
	relay: BEGIN
	relay: INSERT INTO outbox_rejected SELECT * FROM outbox WHERE seq = 1
	relay: DELETE FROM outbox WHERE seq = 1
	relay: COMMIT
	person: BEGIN
	person: INSERT INTO outbox (body) SELECT body FROM outbox_rejected
	person: DELETE FROM outbox_rejected
	person: COMMIT
	relay: BEGIN
	relay: DELETE FROM outbox WHERE seq = 4
	relay: MESSAGE 8
	relay: OTHER 9
	relay: COMMIT -> 8,9
	broker: DELETE FROM message_00
	broker: DELETE FROM half_decision
`
