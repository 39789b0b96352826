package canal

import (
	"iter"
	"time"
)

// A Kind says what a Txn carries.
type Kind uint8

const (
	// Rows: at least one row insert into a watched table.
	Rows Kind = iota
	// Foreign: a committed transaction without a row of a watched table.
	Foreign
	// Heartbeat: no transaction; the server says that everything up to After has
	// been sent. It carries no GTID.
	Heartbeat
)

// A Txn is one committed transaction, or a heartbeat. It is handed out only after
// its end marker was seen, and is valid until the iteration's next step.
type Txn struct {
	Kind Kind
	// GTID of the transaction, in the server's own text form.
	GTID string
	// CommitTime by the server's clock: microseconds on MySQL, whole seconds on MariaDB.
	// A heartbeat has none.
	CommitTime time.Time
	// Came is when its last event came, by our clock.
	Came time.Time
	// End is where in the server's binlog it ends. It serves to measure, not to read on.
	End Place
	// Server is the identity of the server that sent it.
	Server ServerID

	rows *rowBuffer
	set  *gtidSet
}

// Rows yields the inserted rows in commit order: from memory when the transaction
// is small, from a spool file above Config.SpoolAbove. It may be ranged over more
// than once. A Row is valid until the next one. An error ends it: the spool file could
// not be read, or a row could not be decoded; it is a *StopError.
func (t *Txn) Rows() iter.Seq2[Row, error] {
	if t.rows == nil {
		return func(func(Row, error) bool) {}
	}
	return t.rows.all()
}

// After is the position behind this transaction: all GTIDs seen so far, foreign ones
// too. It is computed on call (the set can be long).
func (t *Txn) After() Position {
	if t.set == nil {
		return Position{}
	}
	return t.set.position()
}

// A Place is a position in a server's binlog files. The offset is of 32 bits in the binlog:
// in a file above 4 GiB, which only a transaction of that size makes, it begins anew.
type Place struct {
	File   string
	Offset int64
}

// A Position is a set of GTIDs executed, in the text form of its flavor. The zero
// Position is before the first transaction a server ever logged.
type Position struct {
	Flavor Flavor
	GTIDs  string
}

// A Flavor is "mysql" or "mariadb".
type Flavor string

// The flavors.
const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// A ServerID identifies the server at the other end: server_uuid on MySQL;
// on MariaDB, which has none, its server_id with the gtid_domain_id ("1/0").
type ServerID string

// A Row is one inserted row of a watched table.
type Row struct {
	// Table names the table; the pointer is the same for rows of one definition,
	// so that a reader can look columns up once.
	Table *Table
	// Values by column; see Table.Columns. Other column types than those a Value can
	// hold are not decoded by this package and make the tailer stop.
	Values []Value
}

// A Value is one column of a Row.
type Value struct {
	// Bytes of a string, binary or blob column: exactly as stored, BINARY(N) padded
	// back to N. Not nil unless Null or an integer.
	Bytes []byte
	// Int of an integer column.
	Int  int64
	Null bool
	// Absent: the row image does not hold the column, and Config.Columns does not ask for
	// it. The server gave it its default.
	Absent bool
}

// A Table is one definition of a watched table as the binlog describes it.
type Table struct {
	Schema  string
	Name    string
	Columns []string
}
