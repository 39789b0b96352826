// Package kafkago lets readers that use segmentio/kafka-go read the mirror. That client
// hands out what other clients filter, also with ReadCommitted: records of aborted
// transactions, which the mirror then writes again, and the markers at the ends of
// transactions. Reader drops them by the mirror's headers.
//
//	kafka.Reader ─ FetchMessage ─> marker? repeat of source and seq, or of id? ─> Message
//
// What it promises: a message is handed out once, in the order of its partition.
//
// Not obvious:
//   - kafka-go does not tell which records are of an aborted transaction. A message is
//     handed out at its first copy, committed or not, and its further copies are dropped:
//     as with a stream.Consumer that has ReadUncommitted. What the mirror aborts it writes
//     again, with the same notify-source and notify-seq, so that nothing is missed and
//     nothing is made up; it may only be seen before its commit.
//   - Copies in different generations (after a backfill or failover) have other sources;
//     they are dropped by notify-id, as far as the last Remember ids go back.
//   - What was dropped is known to this Reader only. A process that starts again at a
//     group's committed offset may see the copy of a message that it handled before: ids
//     tell. Where that matters use stream.Consumer, which filters by transaction.
//   - Offsets of dropped records are committed with the next message's.
//   - kafka-go has open faults with compacted topics and after rebalances; the mirror's
//     topics are not compacted, and messages that it hands out again are dropped here.
package kafkago
