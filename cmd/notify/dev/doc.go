// Package dev runs the whole stack on one machine, for `notify dev`: a private
// database server as a child process, and in this process an embedded Kafka, a
// broker, a mirror and, if asked, a demo.
//
//	lock data directory -> check ports -> database and Kafka -> schema
//	-> broker -> mirror -> demo -> banner -> "ready in" -> wait -> stop, in reverse
//
// Files: config.go (what may be asked), lock.go (one process per directory),
// ports.go (where it listens), run.go (the order of starting and stopping),
// data.go (database, Kafka, schema), agents.go (broker and mirror with their ops
// listeners), banner.go (what is printed), demo.go (sample trades),
// board.go (the live board over them).
//
// Not obvious:
//
//   - Nothing needs to be cleaned up after kill -9: locks are held by the process,
//     not by a file's existence, and the database server dies with us. Its port
//     may be taken for a moment longer, so a taken port is looked at again for a
//     second before it is an error.
//   - Every port is known before anything starts: they follow from one number, so
//     that the commands of the banner stay the same from run to run.
//   - The database is stopped last and given little time: killing it loses nothing
//     that was committed, and Ctrl-C should not be felt.
package dev
