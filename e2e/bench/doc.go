// Command bench measures the whole path on one machine and says of each number whether it
// meets what is required:
//
//	publish   acknowledged publishes per second, 64 pipelined streams, against raw inserts
//	unary     the same with 64 unary publishers
//	idle      the latency of a single publish on an idle system, against one bare INSERT
//	catchup   a mirror's catch-up, against a serial pipeline that checks nothing, the same without
//	          exactly-once, and reading the binlog alone
//	latency   publish to push, and commit to readable in the mirror, at 1,000 messages/s
//	readable  commit to readable in the mirror, at 2,000 messages/s
//	readers   what store and broker need with the mirror and ten stream consumers, and without
//	replicas  publish p99 beside connections that read the binlog, for some settings of it
//	screen    publish to a board's number changed in a browser, at 1,000 messages/s
//	board     a board's page at 5,000 messages/s: frames a second, those that were not drawn, and the number at the end
//	read      one consumer against the bare client library over 2,000,000 records, and windows over their replay
//	filters   publish and push with ten filters, one of them true, against one subscription without a filter
//	halves    publishing beside 200,000 halves that nobody decides, against publishing beside none
//	relay     commit of an outbox row to the delivery of its message, at 1,000 rows/s
//	push      publish, push to 1 and to 3 groups, acknowledge and delete, against raw inserts
//	credit    what is delivered twice to slow handlers behind a credit of 1,000
//	rolling   what is delivered twice, or lost, while brokers are restarted one after the other
//	piled     publishing and pushing while 2,000,000 messages pile up for one of five groups, and for all
//	          of them; then the groups return
//	depth     publishing into a store in which 5,000,000 messages are pending, against raw inserts into
//	          tables as deep
//
// catchup and readable are measured on Apache Kafka too, where -kafka names its jars.
//
// Every ratio is of two runs next to each other, A B A B ..., and the median of the pairs is
// reported: what else the machine does at the time weighs on both sides.
//
// The database is a private MySQL or MariaDB with durable settings. It, the broker, the
// mirror, Kafka and the naive pipeline are processes of their own; the load comes from this
// one.
//
// # Files
//
//	main.go      flags, and the measurements one after the other
//	child.go     this program again, as a broker, a mirror, ...   roles.go  what it does then
//	database.go  the private server and its schemas               rows.go   the messages
//	broker.go    a broker with the topic declared                 caller.go  unary calls
//	raw.go, publish.go, idle.go, catchup.go, latency.go, readable.go, readers.go, replicas.go,
//	screen.go, board.go, read.go, filters.go, halves.go, relay.go, push.go, credit.go, rolling.go, piled.go, depth.go  one
//	measurement each
//	naive.go, plain.go, replica.go  what the mirror is compared with   kafka.go  the Kafkas
//	consume.go, crowd.go  groups that listen                      line.go  one stream   pile.go  what waits
//	history.go   messages in the mirror, without a broker
//	stats.go     medians and percentiles                          usage.go  who used the processors
//	machine.go   what it was measured on                          report.go table and Markdown
//
// # Not obvious
//
//   - Without a subscription a message is deleted as soon as it is stored, so publish rates
//     include the deletes. The raw inserts have none.
//   - Streams publish keyed messages, which stay with the shard of their key. Unary calls
//     publish unkeyed ones, as a caller who wants no order does.
//   - Raw inserts go to four tables, one for each connection: the most that the server takes.
//   - Both sides of a pair begin with empty tables and a server that has purged what the run
//     before deleted.
//   - Each run of catch-up reads the same binlog, and has an empty Kafka of its own: so each
//     is a first start.
//   - Catch-up is timed from the start of the process to the last commit, start-up included,
//     on both sides.
//   - The naive pipeline uses the client library as it comes; the one without exactly-once is the mirror's
//     own way to Kafka, so that the difference is what transactions, checkpoints and checks cost. Which
//     rate a pipeline reaches depends on what else needs the processors: the microseconds of processors
//     a message, beside the ratio, do not.
//   - The binlog in memory stands for the best disk of its own: its flushes cost nothing.
//   - Delays in the mirror are counted from born_at, which the store reads when the insert's
//     transaction begins: they include that transaction's commit.
//   - Filters are measured where they weigh most: ten are asked, and one delivery is made. Publishing waits while 8,000
//     messages are not handled yet, so that neither side piles them up.
//   - The halves are all due at once, and their producer answers that it does not know: the most that
//     checking can cost. It is attached only while it is published beside them, so that the other
//     side pays nothing for them.
//   - A pile is put into the tables by SQL, under an epoch that no broker has had, before the broker starts: as if
//     the group had been away for long.
//   - The two stores of piled get the same messages, and the groups that listen have the same lead; in one of
//     them the first group is away. With all groups away there is nobody whom publishing could outrun.
//   - A drain is measured alone, once it has had 6 s to find its rate, and then beside a live flow, once
//     that has gone on for a while. What its
//     deliveries are compared with is publishing into a store without groups, on the same server.
//   - Each handler of credit has 10 places: what its credit brings waits for twice the ack wait.
//   - The relay's delay ends in the consumer's handler: it holds the relay, its transaction and the push.
//   - A consumer and the bare library are timed from their first record on: joining a group takes its time, once.
//   - Windows are kept by partition, as a processor keeps them: partitions are read at their own speeds, and windows over
//     all of them would wait for the slowest.
//   - A child ends when its standard input does, so none outlives this process.
package main
