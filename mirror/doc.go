// Package mirror copies a store's committed messages from its binlog into Kafka, exactly
// once and in commit order. It reads the binlog through package canal and never the
// tables, but for a backfill; at start it asks the store for its name. Several stores have a [Copier] each,
// with its own reader, transactional id and checkpoint; they may feed the same topics.
//
//	binlog -> canal.Tailer -> reader ----- chunks -----> writer -> Kafka transactions
//	                          count, check, route        batch     records + checkpoint
//
// Each Kafka transaction carries the records of one or more source transactions, or a piece
// of a large one, and a checkpoint that says so. Both become visible together or not at
// all, so whoever reads the last checkpoint knows exactly what is in Kafka.
//
// # A run of the mirror
//
//	          +---------------------------------- fault -------------------------------+
//	          v                                                                        |
//	turn -> open: initialise the producer -> read checkpoint -> verify -> copy +-------+-> halt
//	  ^                                                                        |
//	  +--------------------------- turn over ----------------------------------+
//
// Any number of canalds may have the same store; they are the members of a Kafka consumer
// group, and one of them has the turn (see seat.go). Initialising the transactional id
// aborts what a predecessor left open and fences it; only then is the last checkpoint the
// last. After any fault, also of a commit whose answer did not come, the run ends and the
// next one reads what Kafka has: nothing is assumed. A fault that only a person can mend is
// a [Halt]: Run returns it. Everything else is tried again for ever, with one line in the
// log; where Kafka refuses until a person mends it, that is an [Obstacle], and the status
// says how.
//
// Two goroutines do the copying: the reader pulls the Tailer, counts seq, checks pos and
// encodes; the writer collects a transaction, sends and commits it. While it does, the reader goes on, within
// Config.Memory. When the reader meets a fault, what it read before is still written.
//
// # Backfill
//
// What the binlog no longer has, and the tables still hold, is copied from there: at the first
// start on a store that was used before, and when an operator asks for it behind a gap.
//
//	lock all epoch rows -> position, snapshot -> unlock -> spool -> records -> binlog from the position
//
// Nobody can insert a message while its shard's epoch row is locked, so the snapshot has what
// is before the position, and the binlog behind it the rest. The checkpoint holds the position,
// the snapshot's highest pos of each shard, and the last pos copied; whoever takes over goes
// on with the spool, or with a new snapshot of what is between the last two.
//
// # Files
//
//	config.go      configuration and its checks
//	copier.go      the Copier: run, fail, try again
//	turns.go       one turn after another, and standing by
//	seat.go        who is active                       (pure)
//	member.go      keeps the seat: joins, sends heartbeats, leaves
//	group.go       the consumer group's protocol
//	start.go       take over: the order of steps, and what is refused
//	failover.go    another server of the store is the primary now
//	ahead.go       which messages only the mirror has
//	fingerprint.go is the last transaction copied still the same one
//	change.go      what an operator wants of the checkpoint
//	grow.go        more partitions of a topic
//	alone.go       both where no canald runs
//	backfill.go    what is copied from the tables
//	snapshot.go    a view of the tables, and its position
//	spool.go       a file with the snapshot's messages   (layout on top)
//	store.go       all that is known of the store's schema
//	tailer.go      canal's Tailer as a source
//	source.go      what the reader reads
//	reader.go      transactions -> chunks
//	order.go       pos grows, n has no gap             (pure)
//	route.go       message -> record and partition     (pure)
//	chunk.go       records on their way, and their memory
//	batch.go       when a Kafka transaction is large enough (pure)
//	writer.go      chunks -> Kafka transactions
//	checkpoint.go  the checkpoint's records            (pure, layout on top)
//	topics.go      mirror topics: partitions, ids, limits; the checkpoint topic
//	lost.go        a checkpoint that Kafka has no more
//	obstacle.go    what Kafka refuses until somebody mends it
//	replicas.go    brokers that are away, where Kafka does not say so
//	kafka.go       the connection to Kafka, and its questions
//	readlog.go     committed records up to an offset
//	lag.go         how far behind                      (pure)
//	verify.go      the binlog once more, beside the mirror
//	verifyread.go  what both sides have
//	verdict.go     what differs
//	compare.go     what one has and the other has not  (pure)
//	sightings.go   ids on disk until they are compared
//	status.go, metrics.go, errors.go
//
// Package record has the format of a mirrored message, package transact writes the Kafka
// transactions, and package embedded has a Kafka for development and tests.
//
// # Not obvious
//
//   - A Kafka transaction ends at 5,000 records, 4 MiB, or when nothing more waits and its
//     first record is 10 ms old: with more waiting, small transactions would only cost speed.
//   - A checkpoint points inside a source transaction by the number of its message inserts
//     already copied. The position's GTID set does not contain that transaction yet.
//   - seq counts messages of topics that are not mirrored too, so it does not depend on a
//     topic's setting, and a reader of all topics may see holes in it.
//   - The position moves with foreign transactions as well: GTIDs left out would be holes
//     that are purged one day. It is taken at most ten times a second, and with heartbeats,
//     since its text may be long.
//   - All records of a transaction stay within the smallest max.message.bytes of its topics:
//     a client may put them into one batch, and the limit is of the batch. A record over its
//     topic's limit is found before it is sent; inside a transaction it would abort all of
//     it, again and again.
//   - MySQL frees a commit's locks before it adds it to gtid_executed, so the binlog may bring
//     again what the snapshot has. Within a shard pos grows with each commit: what is not
//     above the snapshot's highest pos is left out, and counted as skipped.
//   - Behind a backfill the pos check allows one gap in each shard: messages between its highest
//     pos and the next may have been delivered and deleted before.
//   - A store whose binlog is still whole from its installation on needs no backfill: the binlog
//     has also what was delivered and deleted.
//   - A backfill's record has the time of the message's birth, since nobody knows that of its
//     commit any more.
//   - While an obstacle is in the way, each try begins a run anew, reads the checkpoint and
//     writes one; the state is Waiting all the same, until a checkpoint is past that place.
//   - The topics are looked at every 30 s, also when nothing passes: producing to one that was
//     deleted and made anew would succeed.
//   - The partition count of a topic is what the checkpoint says, not what Kafka says now.
//     Stores that feed one topic each record it, as the first of them made it.
//   - A checkpoint topic with records but no committed one is a first start that was killed,
//     provided that every offset from 0 on is still there. Anything else without a checkpoint
//     is a lost checkpoint.
//   - The checkpoint topic is read by fetch requests of our own: it ends at the high
//     watermark, where there is a marker and not a record, which sarama's consumer never shows.
//   - A producer is fenced by a rival, and also by Kafka when its transaction took longer
//     than the time-out. It makes no difference: before a transactional id is initialised
//     the group must have confirmed the turn, in an exchange begun after the last fault. So
//     two canalds never fence each other in turns, and one that was frozen and wakes up
//     fences nobody.
//   - The group elects, fencing protects. Where the group is wrong for a moment, nothing is
//     lost or repeated, only done twice.
//   - The active one copies on while others join and leave: it joins anew with the claim that
//     it was active, and keeps its turn. sarama's consumer group would stop it each time.
//   - The partition that the group assigns is never read through the group.
//   - A standby shows a lag of 0: the active one's counts, and only that one knows it.
//   - sarama's calls take no context, and its connections cannot be closed while a call waits
//     on one. So they are made by a transact.Cutter, which ends them under sarama's feet.
//   - Kafka's retention counts from a record's timestamp, which is the commit time: what is
//     copied later than the topic's retention.ms is deleted soon after.
//   - A commit is answered before its markers are written, so a reader may see the end of a
//     transaction a little later than the checkpoint's owner knows of it.
//   - Verify counts a message in the minute of its commit, which is its record's timestamp too.
//     Kafka finds records by that time; nothing in them tells the GTID.
//   - A server that was demoted still sends heartbeats, and would look idle. So where a store's
//     address names several servers, which of them accepts writes is asked once a minute, not only
//     when a connection breaks.
//   - Records have no pos. A message is found in another server's binlog by its id and the instant
//     of its birth: a producer that had no answer sends the same id again, and that is another INSERT.
//   - A change can be withdrawn until its checkpoint is being written. So whoever stops waiting for it
//     knows that it does not come, unless Kafka did not say whether it took the write.
//   - A planned stop aborts the open transaction: readers would otherwise stand still until
//     Kafka times it out.
package mirror
