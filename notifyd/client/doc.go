// Package client publishes to and consumes from notifyd, and ties messages to the
// application's own transactions.
//
//	c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:7700"}})
//	defer c.Close()
//	r, err := c.Publish(ctx, client.Message{Topic: "orders", Key: "42", Body: body}, client.PublishOptions{})
//
// Six ways in:
//
//   - Client.Publish stores one message and returns when it is durable,
//     Client.PublishBatch many.
//   - Publisher pipelines: many messages are on their way on one stream, results
//     come back in order, and a broken stream is opened again and given the
//     unanswered messages in the order they were first sent.
//   - Consumer makes the process an instance of a consumer group at every broker
//     and calls a handler for each delivery.
//   - TransactionalProducer publishes a message if and only if a local transaction
//     commits: prepare, run it, commit or roll back.
//   - Client.Replay pushes messages of the mirror to one group again (replay.go).
//   - CheckListener makes the process an instance of a producer group at every
//     broker, and is asked how local transactions ended whose decision never came.
//
// The path of a message through a Publisher is window.go (what is unanswered),
// publisher.go and batch.go (the API), pipe.go (one stream). That of a delivery is
// attachment.go (one stream), subscription.go (what the program takes the group to get), queue.go (received, not begun), consumer.go
// (handlers), verdict.go (what they return), outbox.go (settlements that wait to be sent),
// reroute.go (settlements that a broker could not take), credit.go (how many
// deliveries may be under way). A transaction is transact.go (the helper),
// transactional.go (its steps), decide.go (decisions in the background),
// checklistener.go (the other side), checkstream.go (one stream). members.go keeps
// the streams of Consumers and CheckListeners to every live broker.
//
// # Transactions
//
// The local transaction must record under Half.ID that it happened, in the same
// database transaction as the business change, and the CheckListener answers from
// that record. A check may come while the local transaction still runs. If its
// handler answers Rollback because it sees no record, and the transaction then
// commits, the two disagree (ErrDecidedOtherwise). Either make
// TransactionalConfig.CheckAfter longer than any local transaction can last, or
// have the handler insert the same key as a refusal before it answers Rollback:
// a unique key lets one of the two in, so a late local transaction fails. The
// bank transfer in the examples does so.
//
// # Not obvious
//
//   - There is no timer in batching. While one frame is being written, what
//     arrives is queued, and the next frame takes all of it; an idle stream sends
//     at once. Publishes and acks work the same way.
//   - A stream that broke tells nothing about the messages that it had not
//     answered. They are sent again; each carries its id as idempotency key, unless
//     NoDedup says otherwise, so that the broker recognises those it had stored.
//   - Config.Addrs is where to begin: every Client lists the live brokers now and
//     then, and goes to the next one when the one it uses fails (directory.go).
//   - Acks are not acknowledged. One that is lost with its connection means one
//     more delivery, never a lost message.
//   - A broker that does not own a message's shard any more hands the ack back
//     (not_owner). It is offered to every other broker, and again while all
//     refuse, since a takeover takes seconds.
//   - Time in the receive queue counts against the broker's ack wait. So the
//     credit shrinks when deliveries wait too long for a handler, and a delivery
//     that has waited past its deadline is dropped: the broker sends it again.
//   - Every Publisher and Consumer has connections of its own. HTTP/2 shares one
//     receive window among the streams of a connection, so a publish stream that
//     the broker does not read would hold up acks beside it.
//   - The end of a context does not reach an HTTP/2 stream that waits for more of
//     its request's body; half-closing it does. So whoever writes a stream
//     half-closes it, however it ends.
//   - A stopped process (SIGSTOP, a frozen host) keeps its sockets open. Pings on
//     idle connections notice it.
package client
