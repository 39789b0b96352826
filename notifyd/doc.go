// Package notifyd is the broker: it stores messages in MySQL or MariaDB before it
// acknowledges them, pushes them to every subscribed consumer group until each has
// acknowledged, and then deletes them.
//
// The path of a message, hop by hop:
//
//	publish   publish.go, stream.go,  a request is checked and given a place in line;
//	          strict.go               what is not known in it is refused
//	route     route.go                its key chooses one of the shards owned here
//	forward   forward.go              a broker without a shard passes it on
//	coalesce  coalesce.go             what arrives during one commit is the next batch
//	gate      gate.go                 few small batches commit at once, so that they grow
//	insert    insert.go               one fenced transaction; COMMIT is the promise
//	exchange  exchange.go             the registry and its filters name the groups that get it
//	push      push.go, attach.go,     one instance of each group, as far as its credit goes;
//	          subscribe.go, flight.go each attempt is a flight
//	broadcast broadcast.go            or a copy to each of them, of which nothing is kept
//	webhook   webhook.go              the same over HTTP: an endpoint is an instance of its group
//	extend    extend.go               a consumer may ask for more time
//	pace      pace.go, breaker.go,    a group that is down is left alone; one that is back catches
//	          ramp.go, yield.go       up at a rate that grows while it takes it well and nobody
//	                                  who publishes has to wait for it
//	settle    settle.go               outcomes become batched deletes or pending rows
//	drain     drain.go, bodycache.go  due pending rows and unread messages come back
//	delay     delay.go                a delayed message is exchanged when its time has come
//	retry     retry.go                when a failed delivery is due again, or why it is not
//	bury      dead.go                 one that is not becomes a dead letter
//	sweep     sweep.go                what a dropped group left is removed
//
// subscription.go says what a subscription may be, and how two definitions differ (declared by
// admin_subscription.go); deadlines.go ends the ack waits, which differ from one to the other.
//
// replicated.go keeps what a replicated topic promises: an answer only when a replica of the store has the message.
//
// unstored.go holds and pushes what comes near no shard: the messages of memory topics (memorytopics.go), and those of
// the mirror that somebody has pushed to one group again (replay.go); unstoredline.go is where they wait.
//
// Two other ways lead to the same INSERT. A half message (half.go) is prepared, then committed or
// rolled back; one that nobody decides is asked about (check.go) over the streams of its
// producer group (producers.go, checkback.go) or at a URL (callback.go, callbackhosts.go), later each time (checkdelay.go). An outbox row is
// what an application inserts in a transaction of its own; the owner of shard 0 relays it (relay.go).
//
// webhook.go keeps a pusher (webhookpush.go) for each enabled endpoint of the registry; a pusher takes
// deliveries as a stream does, has a goroutine for each request (webhooksend.go), and settles by the answer.
//
// A broker works on several stores: the main one, into which messages are published, and any
// number whose only source is their outbox. stores.go opens them, side.go is what the parts
// that work on one of them share. All follow the registry of the main store, with its group ids, so
// that a group gets the messages of all stores as one.
//
// A delivery that is over without an acknowledgement is a dead letter (dead.go). Any broker lists them;
// admin_dead.go has them redriven or purged by the owners of their shards.
//
// lease.go holds the shards, doubt.go learns the outcome of a lost COMMIT. Package shard is the
// pure core of all this, package store its SQL, package message what a message may be.
//
// A shard that this broker owns is an owner (owner.go) with a few goroutines: the inserter is
// the only one that inserts messages, the settler the only one that deletes them or touches
// pending rows and dead letters, the reader only reads, the checker asks about halves, and in shard 0 the
// relay feeds the inserter from the outbox; a counter counts what waits, for metrics (backlog.go). A keeper
// (keeper.go) has one goroutine that renews leases (lease.go), and never waits for anything else, and one
// that takes and hands over shards (takeover.go).
//
// hub.go holds the groups and the instances that are attached. The rest serves the Admin service: admin.go, and
// admin_*.go for what one kind of thing needs; pending.go counts what waits for groups; webhookseal.go keeps the secrets of webhooks;
// refuse.go answers what is no call. One message's life is
// what the store has (store.Life) and what its owner sees in memory (look.go), put into words by life.go.
//
// What is not obvious:
//
//   - No timer stands between a publish and its commit. An idle broker sends at once; a busy
//     shard takes everything that came while its last commit ran, or while it waited for
//     one of the few places of small batches.
//   - A connection that breaks in a write transaction ends the ownership of its shard. The
//     shard is taken again under a new epoch, which makes sure that nothing of the old one
//     can still commit; only then can the range of the lost batch be read and answered.
//   - When the set of owned shards changes, publishes wait until everything that was routed
//     by the old set is answered. Otherwise two messages of one key could overtake each other.
//   - An owner whose lease may be over stops pushing by its own monotonic clock. That saves
//     repeats; safety comes from the epoch row alone.
//   - A group with nobody attached is a fact about the group, not an error of its messages:
//     they become pending rows that were not attempted, and leave memory.
//   - An attempt counts when its delivery was handed to the stream. What a broker or a
//     stream lost before that is tried again as if nothing had been.
//   - A redrive inserts into no message table: a dead letter becomes a pending row, in one
//     transaction. Rows of many come with times apart, which is all that limits their rate.
//   - A half may stand in two shards, when its Prepare was sent again through another broker. Its
//     decision is one row of its id, so whichever copy is decided second is only deleted.
//   - A check that could not be asked is not counted, so such a half is tried for ever; each time the wait
//     is as long as the half is old, up to check_max.
//   - A scrape of metrics asks no store. Halves are counted by their owners, by a key that holds nothing else, up
//     to 10,000 a shard and topic, every 5 to 20 s, by a thousandth of the time if that is enough.
//   - The relay reads the outbox from the start every 50 ms: a row becomes visible when its
//     transaction commits, which may be long after rows with a higher seq.
//   - A stopping broker first waits for the answers of its webhooks, up to 5 s, and then hands over:
//     nobody else could take them.
//   - All drains of a broker share one rate, which is judged by how long publishes take and not by the groups: a group
//     takes gladly what the processors and the disk are then missing for everybody else.
//   - Shards settle, ask and count in turn: eight transactions at one instant are felt by whoever publishes then.
//   - Settling waits for up to 200 ms so that deletes come in batches. Nobody waits for it.
package notifyd
