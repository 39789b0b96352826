// Package transact writes Kafka transactions: records, and offsets of a consumer group. The
// mirror writes with it, and a stream processor.
//
//	Producer: Send, Offset ... -> Commit -> Kafka
//
// sarama carries the requests and knows who is leader and coordinator. Its own producer is
// not used: it takes each record over five channels and makes an object of it at each, which
// costs more than all the rest of the mirror does; and what it does by itself inside a
// transaction, after an error, is more than its caller can know.
//
// Files: produce.go (a transaction at a time), deliver.go (its batches to the partitions'
// leaders), offsets.go (its offsets to the group), ask.go (a coordinator, and what passes by
// itself), cutter.go (connections that can be cut).
//
// Not obvious:
//   - After any error a Producer is of no use. A transaction whose end is not known may yet
//     be committed, so nothing of it may be put into another before the transactional id
//     was initialised anew, which ends it one way or the other, and what is committed was
//     read again.
//   - A batch that is sent again, because its answer did not come or its leader moved, has
//     the same numbers: Kafka takes it once.
//   - A successor's initialisation is answered with CONCURRENT_TRANSACTIONS until the
//     predecessor's transaction has its markers, and so is the first request of a
//     transaction while the one before gets them: both are asked again.
//   - Offsets go before records, so that whoever waits for stable offsets waits for every
//     transaction that has written anything. An Apache Kafka 4.4 that comes back from a kill
//     has been seen to end a transaction without a marker in any of its partitions: its
//     coordinator takes a partition that has no leader yet for one that was deleted ("Couldn't
//     find leader endpoint", in the broker's log). What was written stays open there, and the
//     end of the producer's next transaction in the partition would be the end of both.
//   - The group's offsets go with the member's id and generation, so that one that was
//     given up by the group is refused, even before another has initialised its
//     transactional id.
package transact
