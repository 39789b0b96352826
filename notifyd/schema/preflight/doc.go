// Package preflight finds out, before anything is created, whether a server and an account
// are fit for a store, and says for each thing that is not: what, where, and how to mend it.
//
// It changes nothing. Whether an account may do a thing is asked by EXPLAIN of a statement
// that would do it, or by a CREATE TABLE ... LIKE of a table that does not exist: the server
// checks rights first, through roles and patterns, as it will when it matters. Only global
// rights are read from SHOW GRANTS.
//
// Not obvious:
//
//   - It connects without a schema, because an account without rights on the schema could
//     not connect with it and would learn nothing else.
//   - Everything is reported at once, but where the server cannot be reached, or refuses the
//     account, that is the one problem.
//   - Filters of the binlog (binlog_do_db, binlog_ignore_db) are shown by the server only to
//     accounts with REPLICATION CLIENT. Others are not told of them.
//   - Row images MINIMAL, NOBLOB and FULL all work, because every INSERT of a message names
//     every column.
//   - A daemon asks the server that accepts writes; `notify doctor` asks all, since each may be
//     the primary one day. A replica does not tell rights to write: those are the primary's.
//   - Notes are for `notify doctor` alone; a daemon that starts logs warnings and errors.
//   - Sessions can override the format and image for themselves; that is the tailer's to see.
package preflight
