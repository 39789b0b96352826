package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// What follows holds for any server that dbtest is told to use.

func isMariaDB(t testing.TB) bool {
	t.Helper()
	server, err := dbtest.Server()
	if err != nil {
		t.Fatal(err)
	}
	return server.Flavor == embedded.MariaDB
}

func TestAllSupportedColumnTypesComeOutAsSelected(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, `CREATE TABLE message_types (
		i1 TINYINT, u1 TINYINT UNSIGNED, i2 SMALLINT, u2 SMALLINT UNSIGNED, i3 MEDIUMINT, u3 MEDIUMINT UNSIGNED,
		i4 INT, u4 INT UNSIGNED, i8 BIGINT, u8 BIGINT UNSIGNED,
		c CHAR(10) CHARACTER SET utf8mb4, big CHAR(255) CHARACTER SET utf8mb4, latin VARCHAR(20) CHARACTER SET latin1,
		v VARCHAR(63) CHARACTER SET utf8mb4, w VARCHAR(300), b BINARY(16), bb BINARY(255), vb VARBINARY(200), vbb VARBINARY(400),
		t1 TINYTEXT, t2 TEXT, t3 MEDIUMTEXT, t4 LONGTEXT, b1 TINYBLOB, b2 BLOB, b3 MEDIUMBLOB, b4 LONGBLOB)`)
	from := s.position(t)
	all := "i1,u1,i2,u2,i3,u3,i4,u4,i8,u8,c,big,latin,v,w,b,bb,vb,vbb,t1,t2,t3,t4,b1,b2,b3,b4"
	long := strings.Repeat("é", 250)
	s.exec(t,
		`INSERT INTO message_types (`+all+`) VALUES (-128,255,-32768,65535,-8388608,16777215,-2147483648,4294967295,-9223372036854775808,9223372036854775807,
			'é','`+long+`','é','ü','`+long+`',X'0100',X'00',X'000100',X'00','','x','y','z','','a',X'00',X'FF')`,
		`INSERT INTO message_types (`+all+`) VALUES (127,0,32767,0,8388607,0,2147483647,0,9223372036854775807,0,
			'','','','','',X'',X'',X'','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)`,
		`INSERT INTO message_types (`+all+`) VALUES (-1,1,-1,1,-1,1,-1,1,-1,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'a','b','c','d','e','f','g','h')`)
	tl := s.tail(t, from)
	for _, want := range s.selected(t, "i1", "SELECT "+strings.Replace(all, "latin", "CAST(latin AS CHAR CHARACTER SET latin1)", 1)+" FROM message_types ORDER BY CASE i1 WHEN -128 THEN 0 WHEN 127 THEN 1 ELSE 2 END") {
		_, rows := tl.rows()
		// The connection's answer is UTF-8 whatever the column; the binlog has the column's bytes.
		want = strings.Replace(want, `latin="é"`, `latin="\xe9"`, 1)
		if rows[0] != want {
			t.Errorf("row\n%s\nselected\n%s", rows[0], want)
		}
	}
}

// selected gives rows in the form of text.
func (s *store) selected(t *testing.T, first, query string) []string {
	t.Helper()
	rows, err := s.db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rows.Next() {
		fields := make([]sql.NullString, len(types))
		into := make([]any, len(types))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		line := "message_types"
		for i, f := range fields {
			name := types[i].Name()
			if strings.HasPrefix(name, "CAST") {
				name = "latin"
			}
			switch {
			case !f.Valid:
				line += " " + name + "=NULL"
			case strings.Contains(types[i].DatabaseTypeName(), "INT"):
				line += " " + name + "=" + f.String
			default:
				line += fmt.Sprintf(" %s=%q", name, f.String)
			}
		}
		out = append(out, line)
	}
	if len(out) == 0 || !strings.HasPrefix(out[0], "message_types "+first) {
		t.Fatalf("selected %q", out)
	}
	return out
}

func TestAnUnsignedValueAboveInt64IsAnErrorThatNamesTheColumn(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, "CREATE TABLE message_u (n BIGINT UNSIGNED)")
	from := s.position(t)
	s.exec(t, "INSERT INTO message_u (n) VALUES (9223372036854775808)")
	tl := s.tail(t, from)
	for txn := tl.step(); ; txn = tl.step() {
		for _, err := range txn.Rows() {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "column n") {
				t.Errorf("error %v", err)
			}
			return
		}
	}
}

func TestColumnTypesThatAreNotDecodedStopTheTailer(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, "CREATE TABLE message_d (pos BIGINT, price DECIMAL(10,2))")
	from := s.position(t)
	s.exec(t, "INSERT INTO message_d (pos, price) VALUES (1, 2.5)")
	err := s.tail(t, from).failure()
	if !errors.Is(err, ErrColumnType) || !strings.Contains(err.Error(), "column price of table "+s.config.Schema+".message_d") {
		t.Errorf("error %v", err)
	}
}

func TestTransactionsComeInCommitOrderEachWithAllItsRows(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, strings.Replace(messageTable, "_00", "_01", 1), "CREATE TABLE pending (n INT)")
	from := s.position(t)
	s.exec(t, insert(1),
		"BEGIN", insert(2), "INSERT INTO pending (n) VALUES (1)", strings.Replace(insert(3), "_00", "_01", 1), insert(4), "COMMIT",
		"BEGIN", insert(5), "ROLLBACK",
		"BEGIN", insert(6), "SAVEPOINT a", insert(7), "ROLLBACK TO a", insert(8), "COMMIT",
		"UPDATE message_00 SET flag = 2 WHERE pos = 1", "DELETE FROM message_00 WHERE pos = 1",
		"CREATE TABLE other (n INT)",
		insert(9))
	tl := s.tail(t, from)
	var got []string
	for last := ""; last != "message_00:9"; {
		_, rows := tl.rows()
		line := ""
		for _, r := range rows {
			table, rest, _ := strings.Cut(r, " pos=")
			pos, _, _ := strings.Cut(rest, " ")
			last = table + ":" + pos
			line += last + " "
		}
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{"message_00:1", "message_00:2 message_01:3 message_00:4", "message_00:6 message_00:8", "message_00:9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if st := tl.Stats(); st.RowTxns != 4 || st.ForeignTxns < 3 || !st.Connected || st.Bytes == 0 {
		t.Errorf("stats %+v", st)
	}
}

// MySQL with GTIDs refuses to mix tables with and without transactions; MariaDB logs
// what was undone, and that it was.
func TestRowsUndoneBehindATableWithoutTransactionsAreDropped(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, "CREATE TABLE plain (n INT) ENGINE=MyISAM")
	from := s.position(t)
	if !isMariaDB(t) {
		tx, err := s.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec(insert(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT INTO plain (n) VALUES (1)"); err == nil || !strings.Contains(err.Error(), "GTID consistency") {
			t.Errorf("mixed tables: %v", err)
		}
		return
	}
	s.exec(t,
		"BEGIN", insert(1), "SAVEPOINT a", insert(2), "INSERT INTO plain (n) VALUES (1)", "ROLLBACK TO a", "COMMIT",
		"BEGIN", insert(3), "INSERT INTO plain (n) VALUES (2)", "ROLLBACK",
		insert(4))
	tl := s.tail(t, from)
	for _, want := range []int{1, 4} {
		if _, rows := tl.rows(); len(rows) != 1 || !strings.Contains(rows[0], fmt.Sprintf("pos=%d ", want)) {
			t.Errorf("rows %q, want pos %d alone", rows, want)
		}
	}
}

func TestReadingGoesOnBehindThePositionOfATransaction(t *testing.T) {
	s := newStore(t, nil)
	from := s.position(t)
	s.exec(t, insert(1), insert(2), insert(3))
	first := s.tail(t, from)
	txn, _ := first.rows()
	after := txn.After()
	if _, rows := s.tail(t, after).rows(); !strings.Contains(rows[0], "pos=2 ") {
		t.Errorf("behind the first: %q", rows)
	}
	if txn.GTID == "" || !strings.Contains(after.GTIDs, txn.GTID[strings.LastIndexAny(txn.GTID, ":-")+1:]) {
		t.Errorf("GTID %q, after %q", txn.GTID, after.GTIDs)
	}
}

// A tag on MySQL, a domain on MariaDB: a second count of transactions beside the first.
func TestTransactionsOfATagOrDomainAreInThePosition(t *testing.T) {
	s := newStore(t, nil)
	from := s.position(t)
	second, want := "SET SESSION gtid_domain_id = 7", "7-1-"
	if !isMariaDB(t) {
		second, want = "SET SESSION gtid_next = 'AUTOMATIC:second'", ":second:"
	}
	s.exec(t, second, insert(1))
	s.db.SetMaxIdleConns(0) // that session must not be used again
	s.exec(t, insert(2), insert(3))
	tl := s.tail(t, from)
	txn, _ := tl.rows()
	if !strings.Contains(txn.GTID, want) || !strings.Contains(txn.After().GTIDs, want) {
		t.Errorf("GTID %q, after %q", txn.GTID, txn.After().GTIDs)
	}
	txn, _ = tl.rows()
	if _, rows := s.tail(t, txn.After()).rows(); !strings.Contains(rows[0], "pos=3 ") {
		t.Errorf("behind %q: %q", txn.After().GTIDs, rows)
	}
	txn, _ = tl.rows()
	if now := s.position(t); txn.After() != now {
		t.Errorf("after %v, server is at %v", txn.After(), now)
	}
}

func TestTheZeroPositionReadsFromTheFirstTransaction(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, insert(1))
	if _, rows := s.tail(t, Position{}).rows(); !strings.Contains(rows[0], "pos=1 ") {
		t.Errorf("rows %q", rows)
	}
}

func TestHeartbeatsComeWhenAllIsSent(t *testing.T) {
	s := newStore(t, nil)
	s.config.HeartbeatPeriod = 50 * time.Millisecond
	from := s.position(t)
	s.exec(t, insert(1))
	tl := s.tail(t, from)
	if txn := tl.step(); txn.Kind == Heartbeat {
		t.Error("a heartbeat before the transaction that was there already")
	}
	for range 3 {
		for txn := tl.step(); txn.Kind != Heartbeat; txn = tl.step() {
		}
	}
	s.exec(t, insert(2))
	if _, rows := tl.rows(); !strings.Contains(rows[0], "pos=2 ") {
		t.Errorf("rows %q", rows)
	}
	txn := tl.step()
	for ; txn.Kind != Heartbeat; txn = tl.step() {
	}
	if txn.GTID != "" || txn.Server == "" || len(texts(t, &txn)) != 0 || txn.After() == from {
		t.Errorf("heartbeat %+v after %v", txn, txn.After())
	}
}

func TestALargeTransactionGoesThroughAFileThatVanishes(t *testing.T) {
	s := newStore(t, nil)
	s.config.SpoolDir = t.TempDir()
	s.config.SpoolAbove, s.config.MemoryBytes = 1<<20, 2<<20
	from := s.position(t)
	const rows, size = 40, 200_000
	statements := []string{"BEGIN"}
	for i := range rows {
		statements = append(statements, fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (%d, 'i', 't', 'k', REPEAT('%c', %d), 1)", i, 'a'+i%26, size))
	}
	s.exec(t, append(statements, "COMMIT", insert(1000))...)
	tl := s.tail(t, from)
	txn := tl.step()
	for ; txn.Kind != Rows; txn = tl.step() {
	}
	for range 2 {
		n := 0
		for row, err := range txn.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			body := row.Values[4].Bytes
			if row.Values[0].Int != int64(n) || len(body) != size || body[0] != byte('a'+n%26) || body[size-1] != body[0] {
				t.Fatalf("row %d: pos %d, %d bytes of %c", n, row.Values[0].Int, len(body), body[0])
			}
			n++
		}
		if n != rows {
			t.Fatalf("%d rows", n)
		}
	}
	if left, err := os.ReadDir(s.config.SpoolDir); err != nil || len(left) != 0 {
		t.Errorf("spool directory: %v, %v", left, err)
	}
	if st := tl.Stats(); st.Spooled != 1 || st.BufferedBytes > s.config.MemoryBytes {
		t.Errorf("stats %+v", st)
	}
	if _, rows := tl.rows(); !strings.Contains(rows[0], "pos=1000 ") {
		t.Errorf("next: %q", rows)
	}
}

func TestASlowReaderMakesTheServerWaitAndMemoryStaysBounded(t *testing.T) {
	s := newStore(t, nil)
	s.config.SpoolAbove, s.config.MemoryBytes = 256<<10, 1<<20
	from := s.position(t)
	const n = 60
	for i := range n {
		s.exec(t, fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (%d, 'i', 't', 'k', REPEAT('x', 100000), 1)", i))
	}
	tl := s.tail(t, from)
	for i := range n {
		_, rows := tl.rows()
		if !strings.Contains(rows[0], fmt.Sprintf("pos=%d ", i)) {
			t.Fatalf("row %d: %.80s", i, rows[0])
		}
		if i == 0 {
			await(t, "the budget to fill", func() bool { return tl.Stats().BufferedBytes > 800_000 })
		}
		if b := tl.Stats().BufferedBytes; b > s.config.MemoryBytes {
			t.Fatalf("%d bytes buffered", b)
		}
	}
}

// await waits for a condition that another goroutine or process brings about.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestCompressedTransactionsAreRead(t *testing.T) {
	s := newStore(t, nil)
	compressed(t, s)
	from := s.position(t)
	body := strings.Repeat("compressible ", 1000)
	s.exec(t, "BEGIN", insert(1), fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (2, 'i', 't', 'k', '%s', 1)", body), "COMMIT")
	tl := s.tail(t, from)
	if _, rows := tl.rows(); len(rows) != 2 || !strings.Contains(rows[1], body) {
		t.Errorf("rows %.200q", rows)
	}
	if b := tl.Stats().Bytes; b > uint64(len(body)) {
		t.Errorf("%d bytes were read: nothing was compressed", b)
	}
}

// compressed makes sessions compress from here on.
func compressed(t *testing.T, s *store) {
	variable := "binlog_transaction_compression"
	if isMariaDB(t) {
		variable = "log_bin_compress"
		s.exec(t, "SET GLOBAL log_bin_compress_min_len = 20")
	}
	s.exec(t, "SET GLOBAL "+variable+" = ON")
	s.db.SetMaxIdleConns(0) // new sessions take the new value
	t.Cleanup(func() {
		if _, err := s.db.Exec("SET GLOBAL " + variable + " = OFF"); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatASessionDoesBehindOurBackStopsTheTailer(t *testing.T) {
	cases := []struct {
		name       string
		statements []string
		want       error
		text       string
	}{
		{"statement format", []string{"SET SESSION binlog_format = STATEMENT", "SET SESSION transaction_isolation = 'REPEATABLE-READ'", insert(1)}, ErrTextDML, "INSERT INTO message_00"},
		{"minimal image", []string{"SET SESSION binlog_row_image = MINIMAL", "INSERT INTO message_00 (pos, id, topic, body, flag) VALUES (1, 'i', 't', 'b', 1)"}, ErrPartialRow, "column msg_key"},
		{"xa", []string{"XA START 'x1'", insert(1), "XA END 'x1'", "XA PREPARE 'x1'", "XA ROLLBACK 'x1'"}, ErrXA, "XA"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, nil)
			from := s.position(t)
			if isMariaDB(t) {
				c.statements = slices.Clone(c.statements)
				for i := range c.statements {
					c.statements[i] = strings.Replace(c.statements[i], "transaction_isolation", "tx_isolation", 1)
				}
			}
			s.exec(t, c.statements...)
			s.exec(t, insert(2))
			tl := s.tail(t, from)
			err := tl.failure()
			var stop *StopError
			if !errors.Is(err, c.want) || !errors.As(err, &stop) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v", err)
			}
			t.Log(err)
			if !strings.Contains(stop.Where, s.config.Addr+", GTID ") || stop.Mend == "" {
				t.Errorf("operator's text: %v", err)
			}
			if tl.Stats().RowTxns != 0 {
				t.Error("rows came out")
			}
		})
	}
}

func TestServerSettingsAreCheckedBeforeReading(t *testing.T) {
	s := newStore(t, nil)
	s.db.SetMaxIdleConns(0)
	from := s.position(t)
	t.Cleanup(func() {
		for _, good := range []string{"binlog_format=ROW", "binlog_row_metadata=FULL"} {
			if _, err := s.db.Exec("SET GLOBAL " + good); err != nil {
				t.Error(err)
			}
		}
	})
	for _, set := range []struct{ variable, bad, good string }{
		{"binlog_format", "STATEMENT", "ROW"},
		{"binlog_format", "MIXED", "ROW"},
		{"binlog_row_metadata", "MINIMAL", "FULL"},
	} {
		s.exec(t, "SET GLOBAL "+set.variable+"="+set.bad)
		err := s.tail(t, from).failure()
		if !errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), set.variable+" is "+set.bad) || !strings.Contains(err.Error(), "SET GLOBAL "+set.variable) {
			t.Errorf("%s: %v", set.variable, err)
		}
		s.exec(t, "SET GLOBAL "+set.variable+"="+set.good)
	}
	tl := s.tail(t, from)
	s.exec(t, insert(1))
	tl.rows()
	s.exec(t, "SET GLOBAL binlog_row_metadata=MINIMAL", insert(2))
	if err := tl.failure(); !errors.Is(err, ErrNoColumnNames) || !strings.Contains(err.Error(), s.config.Schema+".message_00") {
		t.Errorf("while reading: %v", err)
	}
}

func TestAServerWithoutABinlogIsRefused(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{Extra: []string{"--skip-log-bin"}}))
	err := s.tail(t, Position{}).failure()
	if !errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), "log_bin is OFF") {
		t.Errorf("error %v", err)
	}
}

func TestWrongAccountsAreToldApart(t *testing.T) {
	s := newStore(t, nil)
	s.exec(t, "CREATE USER nobody@'127.0.0.1' IDENTIFIED BY 'Nobody-7'")
	t.Cleanup(func() { s.db.Exec("DROP USER nobody@'127.0.0.1'") })
	ours := s.config

	s.config.Password = "wrong"
	if err := s.tail(t, Position{}).failure(); !errors.Is(err, ErrAuth) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := Inspect(t.Context(), s.config); !errors.Is(err, ErrAuth) {
		t.Errorf("wrong password: inspect: %v", err)
	}

	s.config.User, s.config.Password = "nobody", "Nobody-7"
	if _, err := Inspect(t.Context(), s.config); err != nil {
		t.Errorf("inspect without grants: %v", err)
	}
	if err := s.tail(t, Position{}).failure(); !errors.Is(err, ErrGrant) || !strings.Contains(err.Error(), "GRANT REPLICATION SLAVE ON *.* TO 'nobody'") {
		t.Errorf("no grant: %v", err)
	}

	s.exec(t, "GRANT REPLICATION SLAVE ON *.* TO nobody@'127.0.0.1'")
	from, nobody := s.position(t), s.config
	s.config = ours
	s.exec(t, insert(1))
	s.config = nobody
	if _, rows := s.tail(t, from).rows(); !strings.Contains(rows[0], "pos=1 ") {
		t.Errorf("with the grant: %q", rows)
	}
}

func TestPurgedAndInventedPositionsAreToldApart(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	old := s.position(t)
	s.exec(t, insert(1), insert(2))
	if err := s.tail(t, beyond(old, 1000)).failure(); !errors.Is(err, ErrAheadOfServer) {
		t.Errorf("position of the future: %v", err)
	}
	s.exec(t, "FLUSH BINARY LOGS", insert(3), "FLUSH BINARY LOGS")
	now := s.position(t)
	s.exec(t, insert(4))
	purge(t, s)
	for _, from := range []Position{old, {}} {
		err := s.tail(t, from).failure()
		if !errors.Is(err, ErrPurged) || !strings.Contains(err.Error(), "--accept-gap") {
			t.Errorf("from %q: %v", from.GTIDs, err)
		}
	}
	if _, rows := s.tail(t, now).rows(); !strings.Contains(rows[0], "pos=4 ") {
		t.Errorf("from a position that is still there: %q", rows)
	}
	if !isMariaDB(t) {
		return
	}
	if err := s.tail(t, Position{Flavor: MySQL, GTIDs: scriptSID.String() + ":1-5"}).failure(); !errors.Is(err, ErrPosition) {
		t.Errorf("position of the other flavor: %v", err)
	}
}

// beyond is a position n transactions further on than any can be.
func beyond(p Position, n uint64) Position {
	set, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		panic(err)
	}
	for src, list := range set.mysql {
		list[len(list)-1].last += n
		set.mysql[src] = list
	}
	for d, g := range set.maria {
		g.seq += n
		set.maria[d] = g
	}
	return set.position()
}

// purge leaves the newest binlog file alone. It asks until that is so: MariaDB keeps a file
// until its transactions are safe elsewhere, and says nothing.
func purge(t testing.TB, s *store) {
	t.Helper()
	await(t, "the purge", func() bool {
		files := s.logs(t)
		s.exec(t, "PURGE BINARY LOGS TO '"+files[len(files)-1]+"'")
		return len(s.logs(t)) == 1
	})
}

// logs are the names of the server's binlog files.
func (s *store) logs(t testing.TB) (names []string) {
	t.Helper()
	info, err := Inspect(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range info.Logs {
		names = append(names, l.Name)
	}
	return names
}

func TestAnotherServerIsRefused(t *testing.T) {
	s := newStore(t, nil)
	info, err := Inspect(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.config.Server = "another"
	if err := s.tail(t, info.Position).failure(); !errors.Is(err, ErrServerChanged) || !strings.Contains(err.Error(), string(info.Server)) {
		t.Errorf("error %v", err)
	}
	s.config.Server = info.Server
	s.exec(t, insert(1))
	if txn, _ := s.tail(t, info.Position).rows(); txn.Server != info.Server {
		t.Errorf("server %q, inspected %q", txn.Server, info.Server)
	}
}

func TestAKilledServerIsAwaitedAndNothingIsLostOrDoubled(t *testing.T) {
	db := dbtest.Private(t, embedded.Config{})
	s := newStore(t, db)
	s.exec(t, "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'Reader-7'", "GRANT REPLICATION SLAVE ON *.* TO reader@'127.0.0.1'")
	s.config.User, s.config.Password = "reader", "Reader-7" // that of our own account changes with each start
	tl := s.tail(t, s.position(t))
	s.exec(t, insert(1))
	tl.rows()
	db.Kill()
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := sql.Open("mysql", db.DSN(s.config.Schema))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Exec(insert(2)); err != nil {
		t.Fatal(err)
	}
	if _, rows := tl.rows(); !strings.Contains(rows[0], "pos=2 ") {
		t.Errorf("rows %q", rows)
	}
	if st := tl.Stats(); st.Reconnects[EOF]+st.Reconnects[Killed] == 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestTheSequenceEndsWithItsContext(t *testing.T) {
	s := newStore(t, nil)
	tl, err := NewTailer(s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for txn, err := range tl.Txns(ctx, s.position(t)) {
		if last = err; txn.Kind == Heartbeat {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || tl.Stats().Connected {
		t.Errorf("last error %v, stats %+v", last, tl.Stats())
	}
}

// Somebody removes a file that the server still lists. MariaDB says so by an error of its
// own; a reader that tried again would do so for ever.
func TestADeletedBinlogFileStopsTheTailer(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	s.exec(t, insert(1), "FLUSH BINARY LOGS")
	from := s.position(t)
	s.exec(t, insert(2), "FLUSH BINARY LOGS", insert(3))
	var base string
	if err := s.db.QueryRow("SELECT @@global.log_bin_basename").Scan(&base); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(base + ".000002"); err != nil {
		t.Fatal(err)
	}
	tl := s.tail(t, from)
	err := tl.failure()
	if !errors.Is(err, ErrFileGone) || !strings.Contains(err.Error(), "--accept-gap") {
		t.Errorf("error %v", err)
	}
	if n := len(tl.Stats().Reconnects); n != 0 {
		t.Errorf("it connected again: %+v", tl.Stats())
	}
}

func TestAServerThatBeganItsBinlogAnewIsBehindThePosition(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	s.exec(t, insert(1), insert(2))
	old := s.position(t)
	reset := "RESET MASTER"
	if !isMariaDB(t) {
		reset = "RESET BINARY LOGS AND GTIDS"
	}
	s.exec(t, reset, insert(3))
	if err := s.tail(t, old).failure(); !errors.Is(err, ErrAheadOfServer) || !strings.Contains(err.Error(), "the server has not ") {
		t.Errorf("error %v", err)
	}
}

// Before the dump, and whether or not the account may list files, purged is told with what
// is lost.
func TestWhatIsPurgedIsNamed(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	s.exec(t, insert(1))
	old := s.position(t)
	s.exec(t, insert(2), insert(3), "FLUSH BINARY LOGS", insert(4))
	purge(t, s)
	info, err := Inspect(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Logs) != 1 || info.Logs[0].Bytes == 0 {
		t.Errorf("files %+v", info.Logs)
	}
	lost, err := parseSet(info.Flavor, old.GTIDs)
	if err != nil {
		t.Fatal(err)
	}
	purged, err := parseSet(info.Flavor, info.Purged.GTIDs)
	if err != nil {
		t.Fatal(err)
	}
	names := lost.missing(purged)
	if err := info.Covers(old); !errors.Is(err, ErrPurged) || names == "" || !strings.Contains(err.Error(), names) {
		t.Errorf("error %v, must name %q", err, names)
	}
	if err := info.Covers(info.Position); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// A transaction ends in the file that is written, and a heartbeat at its end. MariaDB may add
// an event of its own to a new file, a moment later.
func TestAPlaceIsWhereTheFileEnds(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	tl := s.tail(t, s.position(t))
	for range 2 {
		s.exec(t, insert(int(time.Now().UnixMicro())), "FLUSH BINARY LOGS", insert(int(time.Now().UnixMicro())))
		tl.rows()
		txn, _ := tl.rows()
		look, err := Look(t.Context(), s.config)
		if err != nil {
			t.Fatal(err)
		}
		last := look.Logs[len(look.Logs)-1]
		if off := last.Bytes - txn.End.Offset; txn.End.File != last.Name || off < 0 || off > 100 || look.Clock.Abs() > time.Minute {
			t.Errorf("transaction ends at %+v, the server %+v", txn.End, look)
		}
		await(t, "a heartbeat at the end", func() bool {
			look, err := Look(t.Context(), s.config)
			if err != nil {
				t.Fatal(err)
			}
			last := look.Logs[len(look.Logs)-1]
			txn := tl.step()
			return txn.Kind == Heartbeat && !txn.Came.IsZero() && txn.End == Place{last.Name, last.Bytes}
		})
	}
}
