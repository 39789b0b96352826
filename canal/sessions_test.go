package canal

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// What a client's session can do to whoever reads the binlog, and what comes of it: the rows
// handed out, or the text of the stop. One line of an effect is one statement of its session;
// "other: " in front is another session, MESSAGE n inserts message n as notifyd does, and OURS
// and OTHERS are the store's schema and one beside it.
type effect struct {
	name   string
	script string
	// want has the rows of each transaction that has any, transactions separated by "; ":
	// of a message n its number, and what of its id and body is not as MESSAGE wrote it.
	// Behind "stop: " it is a part of the stop's text.
	want string
	only Flavor // of servers that have it; empty: all
}

const columns = "(pos, id, topic, msg_key, body, flag)"

var effects = []effect{
	// Row images. A column that is needed and not logged is a stop.
	{"an insert", "MESSAGE 1", "1", ""},
	{"image FULL", "SET SESSION binlog_row_image = FULL\nMESSAGE 1", "1", ""},
	{"image FULL and a column that is not named", "SET SESSION binlog_row_image = FULL\nINSERT INTO message_00 (pos, id, topic, body, flag) VALUES (1, 'id', 't', 'body 1', 1)", "1", ""},
	{"image NOBLOB", "SET SESSION binlog_row_image = NOBLOB\nMESSAGE 1", "1", ""},
	{"image MINIMAL", "SET SESSION binlog_row_image = MINIMAL\nMESSAGE 1", "1", ""},
	{"image MINIMAL and a column that is not named", "SET SESSION binlog_row_image = MINIMAL\nINSERT INTO message_00 (pos, id, topic, body, flag) VALUES (1, 'id', 't', 'body 1', 1)",
		"stop: row image without a column: column msg_key of table OURS.message_00", ""},
	{"image MINIMAL and a trigger that fills the column", "SET SESSION binlog_row_image = MINIMAL\nCREATE TRIGGER fill BEFORE INSERT ON message_00 FOR EACH ROW SET NEW.msg_key = 'k'\nINSERT INTO message_00 (pos, id, topic, body, flag) VALUES (1, 'id', 't', 'body 1', 1)", "1", ""},
	{"the text of the statement beside the rows", "SET SESSION binlog_rows_query_log_events = ON\nMESSAGE 1", "1", MySQL},
	{"the text of the statement beside the rows", "SET SESSION binlog_annotate_row_events = ON\nMESSAGE 1", "1", MariaDB},

	// Compression.
	{"a compressed transaction", "SET SESSION binlog_transaction_compression = ON\nBEGIN\nMESSAGE 1\nINSERT INTO orders VALUES (1)\nMESSAGE 2\nCOMMIT\nINSERT INTO orders VALUES (2)", "1 2", MySQL},
	{"compressed by level 19", "SET SESSION binlog_transaction_compression = ON, binlog_transaction_compression_level_zstd = 19\nMESSAGE 1", "1", MySQL},
	{"compressed by level 22", "SET SESSION binlog_transaction_compression = ON, binlog_transaction_compression_level_zstd = 22\nMESSAGE 1", "1", MySQL},
	{"compressed events", "SET GLOBAL log_bin_compress = ON\nSET GLOBAL log_bin_compress_min_len = 10\nother: MESSAGE 1\nother: CREATE TABLE t (n INT COMMENT 'a long enough statement')\nSET GLOBAL log_bin_compress = OFF", "1", MariaDB},

	// Text instead of rows.
	{"format STATEMENT", "REPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nMESSAGE 1", "stop: statement logged as text: \"INSERT INTO message_00", ""},
	{"format STATEMENT and LOAD DATA", "REPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nLOAD 1", "stop: statement logged as text: \"LOAD DATA", ""},
	{"format STATEMENT and a trigger", "CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW INSERT INTO message_00 " + columns + " VALUES (NEW.n, 'id', 't', 'k', 'b', 1)\nREPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nINSERT INTO orders VALUES (1)", "stop: statement logged as text: \"INSERT INTO orders", ""},
	{"format STATEMENT and a delete", "MESSAGE 1\nREPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nDELETE FROM message_00", "stop: statement logged as text: \"DELETE FROM message_00", ""},
	{"format MIXED and a statement that is logged as text", "REPEATABLE READ\nSET SESSION binlog_format = MIXED\nMESSAGE 1", "stop: statement logged as text: \"INSERT INTO message_00", ""},
	{"format MIXED and a statement that is logged as rows", "REPEATABLE READ\nSET SESSION binlog_format = MIXED\nINSERT INTO message_00 " + columns + " VALUES (1, 'id', UUID(), 'k', 'body 1', 1)", "1", ""},
	{"format for one statement", "REPEATABLE READ\nSET STATEMENT binlog_format = STATEMENT FOR MESSAGE 1", "stop: statement logged as text: \"SET STATEMENT", MariaDB},
	{"text of another schema", "REPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nUSE OTHERS\nINSERT INTO t VALUES (1)\nDELETE FROM t", "", ""},
	{"text of another schema that names ours", "REPEATABLE READ\nSET SESSION binlog_format = STATEMENT\nUSE OTHERS\nINSERT INTO OURS.orders VALUES (1)", "stop: statement logged as text: \"INSERT INTO OURS.orders", ""},

	// Statements that insert.
	{"several rows", "INSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'body 1', 1), (2, 'id', 't', 'k', 'body 2', 1)", "1 2", ""},
	{"INSERT ... SELECT", "MESSAGE 1\nMESSAGE 2\nINSERT INTO message_01 " + columns + " SELECT pos + 10, id, topic, msg_key, body, flag FROM message_00 ORDER BY pos", `1; 2; 11="body 1" 12="body 2"`, ""},
	{"REPLACE of nothing", "REPLACE INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'body 1', 1)", "1", ""},
	{"REPLACE of a message", "MESSAGE 1\nREPLACE INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'other', 1)", "1", ""},
	{"INSERT IGNORE of a message that is there", "MESSAGE 1\nINSERT IGNORE INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'other', 1)", "1", ""},
	{"INSERT ... ON DUPLICATE KEY UPDATE", "MESSAGE 1\nINSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'other', 1), (2, 'id', 't', 'k', 'body 2', 1) ON DUPLICATE KEY UPDATE body = 'other'", "1; 2", ""},
	{"LOAD DATA", "LOAD 1 2", "1 2", ""},
	{"CREATE TABLE ... SELECT", "MESSAGE 1\nCREATE TABLE message_02 AS SELECT * FROM message_00", "1; 1", ""},
	{"a trigger", "CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW INSERT INTO message_00 " + columns + " VALUES (NEW.n, 'id', 't', 'k', CONCAT('body ', NEW.n), 1)\nINSERT INTO orders VALUES (1), (2)", "1 2", ""},
	{"a trigger of another schema", "CREATE TRIGGER OTHERS.t AFTER INSERT ON OTHERS.t FOR EACH ROW INSERT INTO OURS.message_00 " + columns + " VALUES (NEW.n, 'id', 't', 'k', CONCAT('body ', NEW.n), 1)\nINSERT INTO OTHERS.t VALUES (1)", "1", ""},
	{"a procedure", "CREATE PROCEDURE p() BEGIN MESSAGE 1; MESSAGE 2; END\nCALL p()", "1; 2", ""},
	{"a prepared statement", "PREPARE s FROM \"MESSAGE 1\"\nEXECUTE s", "1", ""},
	{"a temporary table of the same name", "CREATE TEMPORARY TABLE message_00 (pos INT)\nINSERT INTO message_00 VALUES (1)", "", ""},
	{"updates and deletes", "MESSAGE 1\nUPDATE message_00 SET flag = 2\nUPDATE message_00, orders SET flag = 3, n = 3\nDELETE FROM message_00", "1", ""},

	// Transactions.
	{"rolled back", "BEGIN\nMESSAGE 1\nROLLBACK", "", ""},
	{"rolled back to a savepoint", "BEGIN\nMESSAGE 1\nSAVEPOINT a\nMESSAGE 2\nROLLBACK TO a\nMESSAGE 3\nCOMMIT", "1 3", ""},
	{"several tables", "BEGIN\nMESSAGE 1\nINSERT INTO orders VALUES (1)\nINSERT INTO message_01 " + columns + " SELECT 2, id, topic, msg_key, 'body 2', flag FROM message_00\nINSERT INTO OTHERS.t VALUES (1)\nCOMMIT", "1 2", ""},
	{"mixed engines, committed", "BEGIN\nMESSAGE 1\nINSERT INTO plain VALUES (1)\nMESSAGE 2\nCOMMIT", "1 2", MariaDB},
	{"mixed engines, rolled back", "BEGIN\nMESSAGE 1\nINSERT INTO plain VALUES (1)\nROLLBACK", "", MariaDB},
	{"mixed engines, rolled back to a savepoint", "BEGIN\nMESSAGE 1\nSAVEPOINT `A b`\nMESSAGE 2\nINSERT INTO plain VALUES (1)\nROLLBACK TO SAVEPOINT `a B`\nCOMMIT", "1", MariaDB},
	{"a table without transactions", "ALTER TABLE message_00 ENGINE = MyISAM\nMESSAGE 1\nBEGIN\nMESSAGE 2\nROLLBACK", "1; 2", ""},
	{"a table without transactions, by an insert that fails", "ALTER TABLE message_00 ENGINE = MyISAM\nfails: INSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'body 1', 1), (1, 'id', 't', 'k', 'body 1', 1)", "1", ""},
	{"an Aria table", "ALTER TABLE message_00 ENGINE = Aria\nMESSAGE 1", "1", MariaDB},

	// XA: rows of ours are in the binlog before anyone knows whether they commit.
	{"XA, committed", "XA START 'OURS.x'\nMESSAGE 1\nXA END 'OURS.x'\nXA PREPARE 'OURS.x'\nother: MESSAGE 2\nXA COMMIT 'OURS.x'", "stop: xa transaction on a watched table", ""},
	{"XA, rolled back after PREPARE", "XA START 'OURS.x'\nMESSAGE 1\nXA END 'OURS.x'\nXA PREPARE 'OURS.x'\nXA ROLLBACK 'OURS.x'", "stop: xa transaction on a watched table", ""},
	{"XA, rolled back before PREPARE", "XA START 'OURS.x'\nMESSAGE 1\nXA END 'OURS.x'\nXA ROLLBACK 'OURS.x'", "", ""},
	{"XA in one phase", "XA START 'OURS.x'\nMESSAGE 1\nXA END 'OURS.x'\nXA COMMIT 'OURS.x' ONE PHASE", "1", ""},
	{"XA on other tables, messages between", "XA START 'OURS.x'\nINSERT INTO orders VALUES (1)\nXA END 'OURS.x'\nXA PREPARE 'OURS.x'\nother: MESSAGE 1\nXA COMMIT 'OURS.x'\nXA START 'OURS.y'\nINSERT INTO orders VALUES (2)\nXA END 'OURS.y'\nXA PREPARE 'OURS.y'\nother: MESSAGE 2\nXA ROLLBACK 'OURS.y'", "1; 2", ""},

	// GTIDs.
	{"a tag", "SET SESSION gtid_next = 'AUTOMATIC:tag'\nMESSAGE 1\nMESSAGE 2", "1; 2", MySQL},
	{"a GTID by hand", "SET SESSION gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:OURS:7'\nMESSAGE 1\nSET SESSION gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:OURS:5'\nMESSAGE 2\nSET SESSION gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:OURS:6'\nBEGIN\nCOMMIT\nSET SESSION gtid_next = AUTOMATIC\nMESSAGE 3", "1; 2; 3", MySQL},
	{"a domain and a server id", "SET SESSION gtid_domain_id = 8\nSET SESSION server_id = 9\nMESSAGE 1\nSET SESSION gtid_seq_no = FARTHER\nMESSAGE 2", "1; 2", MariaDB},
	{"marked not to be replicated", "SET SESSION skip_replication = ON\nMESSAGE 1", "1", MariaDB},
	{"a new binlog file in between", "MESSAGE 1\nFLUSH BINARY LOGS\nMESSAGE 2", "1; 2", ""},
	// Only the mirror can know that a number is missing, and does at the next message.
	{"nothing logged", "SET SESSION sql_log_bin = OFF\nMESSAGE 1\nSET SESSION sql_log_bin = ON\nMESSAGE 2", "2", ""},

	// Charsets, clocks, bytes.
	{"a session of latin1", "SET NAMES latin1\nINSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', X'E9', 1), (2, 'id', 't', 'k', CONVERT('\xe9' USING utf8mb4), 1)", `1="\xe9" 2="é"`, ""},
	{"a session of gbk", "SET NAMES gbk\nINSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', CONVERT('\xc4\xe3' USING utf8mb4), 1)", `1="你"`, ""},
	{"another time zone", "SET SESSION time_zone = '+09:00'\nMESSAGE 1", "1", ""},
	{"another time", "SET SESSION timestamp = 1\nMESSAGE 1", "1", ""},
	{"trailing zeros and blanks", "INSERT INTO message_00 " + columns + " VALUES (1, X'00', 't', 'k', X'2000', 1), (2, '', 't', 'k', '', 1)", `1 id=00000000000000000000000000000000=" \x00" 2 id=00000000000000000000000000000000=""`, ""},

	// Changes of our tables, with the tailer behind: it reads each row by the columns it had.
	{"a column added first", "MESSAGE 1\nALTER TABLE message_00 ADD COLUMN extra INT UNSIGNED NOT NULL DEFAULT 7 FIRST\nSET SESSION binlog_row_image = FULL\nMESSAGE 2", "1; 2", ""},
	{"a column added that MINIMAL leaves out", "MESSAGE 1\nALTER TABLE message_00 ADD COLUMN extra INT NOT NULL DEFAULT 7 FIRST, ADD COLUMN more VARCHAR(9) NULL AFTER pos\nMESSAGE 2", "1; 2", ""},
	{"columns moved", "MESSAGE 1\nALTER TABLE message_00 MODIFY body LONGBLOB NOT NULL FIRST, MODIFY pos BIGINT NOT NULL AFTER flag\nMESSAGE 2", "1; 2", ""},
	{"a column of a type that is not read", "MESSAGE 1\nALTER TABLE message_00 ADD COLUMN at DATETIME NULL\nMESSAGE 2", "stop: column type not supported: column at of table OURS.message_00", ""},
	{"a column dropped", "MESSAGE 1\nALTER TABLE message_00 DROP COLUMN flag\nINSERT INTO message_00 (pos, id, topic, msg_key, body) VALUES (2, 'id', 't', 'k', 'body 2')", "1; 2", ""},
	{"generated columns", "ALTER TABLE message_00 ADD COLUMN v BIGINT AS (pos + 1) VIRTUAL AFTER pos, ADD COLUMN s BIGINT AS (pos + 2) STORED FIRST\nMESSAGE 1\nSET SESSION binlog_row_image = FULL\nMESSAGE 2", "1; 2", ""},
	{"an invisible primary key", "DROP TABLE message_00\nSET SESSION sql_generate_invisible_primary_key = ON\nCREATE TABLE message_00 (pos BIGINT, id BINARY(16), topic VARCHAR(9), msg_key VARBINARY(9), body LONGBLOB, flag TINYINT)\nMESSAGE 1\nSET SESSION binlog_row_image = FULL\nMESSAGE 2", "1; 2", MySQL},
	{"an invisible column", "ALTER TABLE message_00 ADD COLUMN extra INT INVISIBLE DEFAULT 5 FIRST\nMESSAGE 1\nSET SESSION binlog_row_image = FULL\nMESSAGE 2", "1; 2", ""},
	{"partitions", "ALTER TABLE message_00 PARTITION BY HASH (pos) PARTITIONS 3\nINSERT INTO message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'body 1', 1), (2, 'id', 't', 'k', 'body 2', 1)\nALTER TABLE message_00 TRUNCATE PARTITION p1\nMESSAGE 4", "1 2; 4", ""},
	{"rebuilt", "MESSAGE 1\nALTER TABLE message_00 ENGINE = InnoDB\nOPTIMIZE TABLE message_00\nANALYZE TABLE message_00\nMESSAGE 2", "1; 2", ""},
	{"rebuilt in two phases", "SET SESSION binlog_alter_two_phase = ON\nMESSAGE 1\nALTER TABLE message_00 ADD COLUMN extra INT NULL FIRST\nMESSAGE 2", "1; 2", MariaDB},
	{"emptied", "MESSAGE 1\nTRUNCATE TABLE message_00\nMESSAGE 2", "1; 2", ""},
	{"dropped and made again", "MESSAGE 1\nDROP TABLE message_00\nTABLE message_00\nMESSAGE 2", "1; 2", ""},
	{"renamed", "MESSAGE 1\nRENAME TABLE message_00 TO kept\nTABLE message_00\nMESSAGE 2\nINSERT INTO kept " + columns + " VALUES (3, 'id', 't', 'k', 'body 3', 1)", "1; 2", ""},
	{"swapped as pt-online-schema-change does", swap("_message_00_new", "_message_00_old",
		"CREATE TRIGGER ins AFTER INSERT ON message_00 FOR EACH ROW REPLACE INTO _message_00_new "+columns+" VALUES (NEW.pos, NEW.id, NEW.topic, NEW.msg_key, NEW.body, NEW.flag)"), "1; 2; 3; 4", ""},
	{"swapped as gh-ost does", swap("_message_00_gho", "_message_00_del",
		"CREATE TABLE _message_00_ghc (id INT PRIMARY KEY, hint VARCHAR(64), value VARCHAR(255), at TIMESTAMP)\nINSERT INTO _message_00_ghc VALUES (1, 'state', 'GhostTableMigrated', NOW())"), "1; 2; 3; 4", ""},

	// Others.
	{"updates of a part of a document", "CREATE TABLE doc (n INT PRIMARY KEY, d JSON)\nINSERT INTO doc VALUES (1, '{\"a\": \"0123456789012345678901234567890123456789\"}')\nSET SESSION binlog_row_value_options = PARTIAL_JSON\nUPDATE doc SET d = JSON_SET(d, '$.a', 'x')\nMESSAGE 1", "1", MySQL},
	{"a message table of another schema", "CREATE TABLE OTHERS.message_00 LIKE message_00\nINSERT INTO OTHERS.message_00 " + columns + " VALUES (1, 'id', 't', 'k', 'body 1', 1)", "", ""},
}

// swap is an online change of a table: a copy with other columns takes its name.
func swap(made, left, prepare string) string {
	return strings.NewReplacer("NEW_TABLE", made, "OLD_TABLE", left, "PREPARE", prepare, "COLUMNS", columns).Replace(`MESSAGE 1
CREATE TABLE NEW_TABLE LIKE message_00
ALTER TABLE NEW_TABLE ADD COLUMN extra INT NOT NULL DEFAULT 0 FIRST, MODIFY body LONGBLOB NOT NULL AFTER extra
PREPARE
other: MESSAGE 2
INSERT IGNORE INTO NEW_TABLE COLUMNS SELECT pos, id, topic, msg_key, body, flag FROM message_00 LOCK IN SHARE MODE
RENAME TABLE message_00 TO OLD_TABLE, NEW_TABLE TO message_00
other: MESSAGE 3
DROP TABLE OLD_TABLE
SET SESSION binlog_row_image = FULL
MESSAGE 4`)
}

func TestWhateverASessionDoesIsRightOrStopsTheTailerByAClearText(t *testing.T) {
	flavor := MySQL
	if isMariaDB(t) {
		flavor = MariaDB
	}
	for _, e := range effects {
		if e.only != "" && e.only != flavor {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, nil)
			s.config.Columns = []string{"pos", "id", "topic", "msg_key", "body"}
			p := s.stageFor(t)
			from := s.position(t)
			for line := range strings.Lines(e.script) {
				p.line(strings.TrimSuffix(line, "\n"))
			}
			s.exec(t, strings.Replace(insert(last), "_00", "_last", 1))
			if got := s.outcome(t, from); !p.meets(got, e.want) {
				t.Errorf("%s\nwanted %s", got, e.want)
			} else if strings.HasPrefix(got, stopped) {
				t.Log(got)
			}
		})
	}
}

const (
	last    = 1000 // the message behind each script
	stopped = "stop: "
)

// outcome reads what a script did, up to the last message.
func (s *store) outcome(t *testing.T, from Position) string {
	t.Helper()
	tl := s.tail(t, from)
	var out []string
	for {
		txn, err, _ := tl.next()
		var stop *StopError
		switch {
		case errors.As(err, &stop):
			if !strings.Contains(stop.Where, s.config.Addr+", GTID ") || stop.Mend == "" {
				t.Errorf("neither a place nor a remedy: %v", err)
			}
			return stopped + err.Error()
		case err != nil:
			t.Fatal(err)
		case txn.Kind != Rows:
			continue
		}
		var rows []string
		for row, err := range txn.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			if row.Table.Name == "message_last" {
				return strings.Join(out, "; ")
			}
			rows = append(rows, brief(row))
		}
		out = append(out, strings.Join(rows, " "))
	}
}

// brief is a row by its number, and what of id and body is not as MESSAGE writes it.
func brief(row Row) string {
	value := func(column string) Value { return row.Values[slices.Index(row.Table.Columns, column)] }
	n := value("pos").Int
	s := fmt.Sprint(n)
	if id := value("id").Bytes; string(id) != "id"+strings.Repeat("\x00", 14) {
		s += fmt.Sprintf(" id=%x", id)
	}
	if body := string(value("body").Bytes); body != fmt.Sprintf("body %d", n) {
		s += fmt.Sprintf("=%q", body)
	}
	return s
}

// A play has the sessions of one effect.
type play struct {
	t     *testing.T
	store *store
	one   *sql.Conn
	two   *sql.Conn
	short *strings.Replacer
}

func (s *store) stageFor(t *testing.T) *play {
	t.Helper()
	s.db.SetMaxIdleConns(0) // what a session has set must end with it
	others := s.config.Schema + "_others"
	s.exec(t, strings.Replace(messageTable, "_00", "_01", 1), strings.Replace(messageTable, "_00", "_last", 1),
		"CREATE TABLE orders (n INT)", "CREATE TABLE plain (n INT) ENGINE = MyISAM",
		"CREATE DATABASE "+others, "CREATE TABLE "+others+".t (n INT)", "SET GLOBAL local_infile = ON")
	t.Cleanup(func() { s.db.Exec("DROP DATABASE " + others) })
	isolation := "SET SESSION transaction_isolation = 'REPEATABLE-READ'"
	if isMariaDB(t) {
		isolation = "SET SESSION tx_isolation = 'REPEATABLE-READ'"
	}
	_, number, _ := strings.Cut(s.config.Schema, "_") // of this schema on this server
	p := &play{t: t, store: s, short: strings.NewReplacer("OURS", s.config.Schema, "OTHERS", others,
		"REPEATABLE READ", isolation, "FARTHER", number+"000")}
	for _, c := range []**sql.Conn{&p.one, &p.two} {
		var err error
		if *c, err = s.db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*c).Close() })
	}
	return p
}

func (p *play) line(line string) {
	p.t.Helper()
	c := p.one
	line, other := strings.CutPrefix(line, "other: ")
	if other {
		p.two.Close()
		var err error
		if p.two, err = p.store.db.Conn(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
		c = p.two
	}
	line, fails := strings.CutPrefix(line, "fails: ")
	if numbers, ok := strings.CutPrefix(line, "LOAD "); ok {
		line = p.load(numbers)
	}
	for n := range 9 {
		line = strings.ReplaceAll(line, fmt.Sprintf("MESSAGE %d", n), insert(n))
	}
	if line == "TABLE message_00" {
		line = messageTable
	}
	_, err := c.ExecContext(p.t.Context(), p.short.Replace(line))
	if (err != nil) != fails {
		p.t.Fatalf("%s: %v", line, err)
	}
}

// load is a LOAD DATA of messages from the client.
func (p *play) load(numbers string) string {
	name := p.store.config.Schema
	var text strings.Builder
	for n := range strings.FieldsSeq(numbers) {
		fmt.Fprintf(&text, "%s\tid\tt\tk\tbody %s\t1\n", n, n)
	}
	mysql.RegisterReaderHandler(name, func() io.Reader { return strings.NewReader(text.String()) })
	p.t.Cleanup(func() { mysql.DeregisterReaderHandler(name) })
	return "LOAD DATA LOCAL INFILE 'Reader::" + name + "' INTO TABLE message_00 CHARACTER SET binary " + columns
}

// meets tells whether an outcome is the wanted one.
func (p *play) meets(got, want string) bool {
	want = p.short.Replace(want)
	if strings.HasPrefix(want, stopped) {
		return strings.HasPrefix(got, want)
	}
	return got == want
}
