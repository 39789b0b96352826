// Package shard is the pure core of shard ownership: how positions are given, when a
// message counts as settled, what a new owner reads again, and who should own what. It
// has no clock, no goroutine and no SQL; package notifyd wraps it in transactions.
//
// A shard is one message table with its pending and dead-letter tables. It has one owner
// at a time. The owner's transactions are fenced: each first reads the shard's epoch row
// with a shared lock, and a takeover raises the epoch under an exclusive one.
//
// What is not obvious:
//
//   - One slot. Positions must grow in commit order, since the settled position and the
//     mirror both rely on it; so the next insert begins only when the outcome of the
//     previous one is known. Two open inserts, whoever they are for, lose messages.
//   - A message is settled by one transaction. Until then no row but the message itself
//     exists, so a new owner can tell: a message with any pending or dead-letter row is
//     settled; one with neither is exchanged again.
//   - A delivery that ended in a dead letter while others of its message were still open is
//     kept in memory until they have an outcome, or are overdue: its row alone would say that
//     the whole message is settled.
//   - The last row of a message, pending or dead letter, and the message go in one
//     transaction. So nothing may change the rows of one position beside it: acks, dead letters,
//     redrive and purge are all the owner's, one after another.
//   - An ack for a position that was not paged in yet is ignored: its message may still be
//     owed to other groups, and nothing in the store says so.
//   - Every settling transaction compares the registry version it exchanged by with the one
//     in the epoch row, so that a group added meanwhile is never missed.
package shard
