// Package store is the broker's SQL: every statement that notifyd sends to a store while it
// runs stands here, by hop. insert.go stores messages, settle.go removes or parks them,
// page.go reads them back, lease.go says who may write, registry.go what is declared and
// settings.go how it is set. half.go prepares and decides halves, check.go takes those to ask about,
// halves.go lists them, outbox.go relays; backlog.go counts what waits, by keys alone. dead.go redrives and
// purges dead letters, dead_read.go lists and counts them. endpoint.go keeps webhooks, and follow.go
// copies the registry of the main store into another one.
//
// Writers and readers use different connections. A Writer is one connection without
// autocommit, recorded in the shard's lease row before its first transaction, so that a new
// owner can KILL it. Every transaction of a Writer reads the shard's epoch row with a shared
// lock first (the fence), lasts well under a second, and waits for no lock longer than two.
//
// What is not obvious:
//
//   - LOCK IN SHARE MODE, not FOR SHARE: MariaDB 10.11 does not know the latter.
//   - Whatever ends a Writer's connection leaves its transaction unknown, not failed, also
//     when COMMIT was not sent: the server may not have noticed yet, and a row of the same
//     position would wait for it. The shard is taken again instead.
//   - A transaction that has nothing to read is one packet, and so one round trip (packet.go):
//     a publish costs little more than a bare INSERT, and COMMIT still never runs behind a
//     fence that changed.
//   - IN lists are sorted, and rows are found by one known index, so that writers of
//     different shards never wait for one another.
package store
