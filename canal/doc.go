// Package canal reads the committed transactions of a MySQL or MariaDB server from its
// binlog: a [Tailer] is a function from a GTID position to transactions.
//
//	server --binlog--> stream --events--> assembler --whole transactions--> Txns
//	                   (rim)              (pure)
//
// It looks at row inserts into the watched tables of one schema; what else commits comes
// out as a transaction without rows, since a position needs every GTID. It knows neither
// what the rows mean nor where they go, and keeps no position: whoever takes a transaction
// saves its [Txn.After] together with what he made of it.
//
// # Files
//
//	tailer.go    connect, hand out, connect again           (the loop)
//	stream.go    one connection: go-mysql's goroutine, memory budget, queue
//	wire.go      its network connection: deadlines, and an end in bounded time
//	frames.go    large events taken off that connection, as streams
//	large.go     what of them is kept, and how
//	assemble.go  events -> transactions, with the grammar of the stream
//	rows.go      which row events are kept
//	event.go     GTID, Query and compressed-transaction events
//	query.go     what the text of a Query event means
//	tablemap.go  table definitions and the head of row events
//	decode.go    row images -> values
//	spool.go     rows of one transaction, in memory or in a file
//	position.go  GTID sets
//	inspect.go   a server's settings, identity and position, and what they must be
//	logs.go      a server's binlog files and its clock
//	goon.go      where a server can be read on that cannot be read from a position
//	since.go     where to read from for what was committed since a time
//	classify.go  which errors an operator must mend
//	errors.go    reasons to stop
//	config.go, stats.go, txn.go  what goes in and comes out
//
// # Whole or not at all
//
// A transaction is handed out only after its end marker came. What was collected when the
// connection broke is void, and reading goes on behind the last transaction handed out: so
// none comes twice and none in part. go-mysql's own reconnect must be off for that: in GTID
// mode it sends the cut transaction's first rows, then the whole transaction again, with no
// end between.
//
// # Memory
//
// Row events of watched tables stay undecoded until the caller ranges over the rows, so a
// value points into the event that came over the wire and costs no allocation. They are
// bounded in bytes ([Config].MemoryBytes), since one event may be of any size; a transaction
// above SpoolAbove goes to a file. Reading stops when the budget is used up, and the server
// waits for as long as its net_write_timeout, which is raised for our session; after that
// the connection is made anew.
//
// An event of a megabyte or more is never held whole on its way: rows of others are passed
// over, ours go to memory within the budget or to the file, and a compressed transaction is
// unpacked as it comes. Only when the caller asks for a row must it be in memory, so one of
// ours may not be above MemoryBytes (ErrTooLarge); nor may a statement's text, and zstd may
// not look back further than 32 MiB.
//
// # Not obvious
//
//   - go-mysql runs in raw mode: it reads packets and we decode. Its syncer otherwise decodes
//     foreign tables, needs their types, expands a compressed transaction whole, and clones the
//     GTID set at each event.
//   - Positions in files are used to measure, and for nothing else: they are 32 bits wide, and
//     0 in many events of MariaDB 11.4 and newer. Therefore FillZeroLogPos, which costs the text
//     of each statement, is not needed.
//   - Checks at connecting read global settings, but every session can change format, row image
//     and compression for itself. So what arrives is checked as well: text that changes rows
//     of the schema, a row image without a needed column, XA, a partial update. The list of
//     what a session can do, each with its outcome, is in sessions_test.go.
//   - Text is taken for a change of ours when the session's default schema is ours or the
//     schema's name stands in the text. A trigger or function of another schema that writes to
//     ours under binlog_format=STATEMENT leaves no trace in the binlog.
//   - Column names come with each table map (binlog_row_metadata=FULL). Asking the server
//     instead would pair today's columns with yesterday's rows. Table ids are used again
//     after rotation, so they are forgotten at the end of each statement.
//   - BINARY(N) is logged without its trailing zero bytes; only the collation in the table map
//     tells it from CHAR(N).
//   - ROLLBACK TO SAVEPOINT is in the log only when a table without transactions was changed,
//     too; then the rows before it are there and must be dropped.
//   - A heartbeat means "all was sent" only when our set holds all that the server had when we
//     connected: MySQL also sends heartbeats while it searches for the position.
//   - MariaDB's position is one GTID per domain: what it "contains" is known by the sequence
//     number alone, and only if gtid_strict_mode keeps those in order.
//   - Error 1236 has one number for purged, ahead, file gone, past the end, and taken server
//     id. The GTID sets tell the first two before the dump; on MariaDB that takes the start of
//     the oldest file, which only an account with REPLICATION CLIENT may ask for, and else the
//     text tells. A deleted file has a number of its own there, 29.
//   - A MariaDB that was killed while it wrote leaves the beginning of an event at the end of a
//     binlog file, and ends every dump that comes so far ("binlog truncated in the middle of
//     event"). The transaction never committed. All before it has been sent by then, and from
//     there the server begins with the next file. So that is tried again before it counts as
//     an incident.
//   - Error 1045 while registering, after an ordinary login succeeded, is the missing
//     REPLICATION SLAVE, not the password.
//   - go-mysql asks for events without checksums, and the servers send them as they stand in
//     the file all the same. It verifies them, and what it does not see is verified here.
//   - go-mysql's Close connects once more to KILL its old connection, which can hang; the
//     dialer is ours and refuses.
package canal
