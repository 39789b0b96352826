// Package embedded is a Kafka in this process, for development and tests: franz-go's
// kfake with a data directory, on one loopback address that any Kafka client can
// connect to. It is not for production: one node, no replication, and the broker it
// is made of calls itself fake.
//
// Files: kafka.go (the broker's life), lock.go (one process per directory), repair.go
// (what a kill leaves behind), fetch.go (what fetches get), errors.go.
//
// Not obvious:
//   - The data survives kill -9 of the process. Without SyncWrites it does not survive
//     a crash of the machine, as Kafka's own default.
//   - The lock is held by the process, not by a file's existence, so a kill leaves none.
//   - A transaction that a kill cut off is aborted at the next start, by a marker in the
//     log. The broker alone would only remember it in memory: readers would then drop
//     all that the same producer wrote later, and a second kill would commit it.
//   - A kill between the markers of one commit on two partitions leaves the second
//     partition aborted: the broker writes no intent first. The window is some tens of
//     microseconds per commit.
//   - A fetch's bound on its whole answer is shared out over its partitions: the broker
//     alone would hand out aborted records as committed ones when it meets that bound.
//   - Clients are sent to the address listened on, so a fixed port keeps them connected
//     over a restart; with port 0 each start has another.
//   - A producer that outlives a kill of the broker may be refused with an error of
//     sequence numbers and must start anew, as it must with a Kafka that lost its state.
package embedded
