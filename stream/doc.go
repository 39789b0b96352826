// Package stream reads mirrored messages from Kafka: dashboards, processors and
// replays are written with it. It knows the mirror's record and Kafka, nothing of the
// broker or its database.
//
//	Kafka ─ poll ─> partition ─ handle ─> your function ─ commit ─> Kafka
//	       (sarama)  in order,             one record or           group offsets,
//	                 one per partition     batch at a time         after handling
//	                     └─ Reject ─> reject topic
//
// A Consumer is either a member of a consumer group, which shares the partitions and
// remembers how far each is handled, or reads partitions assigned to it, from any
// position to the end of the log, an offset or a time: that is replay. A replay may have a
// group too, which has no members then and only remembers how far it is, so that it can be
// gone on with. Records gives either as an iterator.
//
// A Processor is such a member that also writes: what it makes of a batch, its state and
// the batch's offsets are one Kafka transaction.
//
// What it promises:
//   - Each record at least once; those of a partition one after another in their order,
//     partitions side by side.
//   - Committed records only, each once, unless ReadUncommitted.
//   - A Processor's outputs and state have each record once, whatever dies.
//   - An offset is committed only when its record and all before it are handled.
//   - A partition is given up only when its handler has returned.
//   - Nothing is passed over in silence: an offset that the log does not hold is an error
//     that names what is gone (Config.Gone), and a record that cannot be decoded is
//     rejected or stops the consumer.
//   - Memory is bounded per partition, by FetchBytes and 16 records: a slow handler makes
//     Kafka wait, not memory grow.
//
// Files: config.go, consumer.go (Run), records.go (the iterator), group.go and
// assigned.go (the two ways to get partitions), bookmark.go (a replay that is remembered), partition.go (handle), outcome.go (what a
// handler may answer), reject.go (the reject topic), typed.go (JSON and protobuf bodies),
// processor.go (exactly once), takeover.go (its partitions), position.go (how far its state is),
// transaction.go (what it writes), step.go (what a batch becomes), commit.go (how far),
// start.go (positions), log.go (questions to Kafka), pace.go (replay at a speed), held.go (the
// partitions read at present), lag.go, metrics.go, errors.go.
//
// Not obvious:
//   - A handler's error stops the whole consumer, on purpose: passing the record over
//     (Reject) or trying again (RetryAfter) are the handler's to decide. What was handled
//     before is committed.
//   - A record can be in the reject topic twice: the write and the commit of its offset
//     are two steps. notify-source and notify-seq tell that it is the same.
//   - A member that Kafka takes for dead loses its partitions while its handler may
//     still run: then one record can be in two hands. SessionTimeout bounds how soon.
//     A handler that outlasts StopTimeout and ignores its context for 15 seconds more
//     makes that happen in a rebalance too.
//   - Markers and aborted records take offsets but are never seen, so "the last record
//     is handled" cannot be told from offsets alone: End and lag look into the log.
//   - Lag in seconds is measured from commit times by the store's clock.
//   - A Processor is safe by its transactional ids, one per partition: who takes a
//     partition initialises its id, which ends and shuts out any earlier transaction, and
//     only then reads the offset and the state. The group decides who should have a
//     partition, not who may write.
//   - A Processor that died inside a transaction leaves offsets that are not stable: the
//     next member waits until Kafka ends the transaction, at most the session timeout and
//     however often Kafka looks (10 s by default, on its side).
//   - After an error of a transaction nothing of it is tried again: the member aborts it, if
//     Kafka still takes that, joins the group anew, and begins at the committed offset and state.
//   - Kafka may say that a transaction is over and have no end of it in a partition (see
//     package transact). The next commit of the partition's transactional id would end both,
//     and its outputs could be there twice. So a Processor takes no partition while its offset
//     is not stable or a transaction is open in its state; the log says so, and it stands still
//     until somebody ends that transaction.
//   - A Processor goes on where its state is, and not where the group's offset is when that is
//     older: a group's offset can be forgotten or old, and then the state would have records
//     twice.
//   - A Processor's state belongs to the partition, not to the key: when a topic grows, keys
//     that move leave their state behind.
//   - A Processor's state is read from its topic at each takeover, and each batch writes
//     the keys that it changed: many small values are cheaper than a large one.
//   - A group's commits carry the topic's number of partitions, so that a partition
//     added later is read from its beginning, also by a group that started at Newest; and
//     the topic's id, so that the offsets of a deleted topic are not taken for those of
//     another with its name. Kafka itself forgets a deleted topic's offsets in time: then
//     the group begins at Start.
//   - A topic that is made again under a reader is noticed by its id, within LagInterval; until
//     then records of the new one may be handled, from the old offset on.
//   - Kafka's look-up by time finds markers too, which bear the time of the mirror's
//     writing: it may point before the first record at a position's time. What lies
//     between is read and passed over; a group that stops meanwhile handles the rest of it.
package stream
