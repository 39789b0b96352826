package notifyd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

const (
	defaultCredit = 100
	maxCredit     = 100_000
	// Limits of one frame of deliveries.
	frameDeliveries = 200
	frameBytes      = 1 << 20
)

type subscribeStream = connect.BidiStream[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]

// A consumer is one attached stream while it lives.
type consumer struct {
	b       *Broker
	stream  *subscribeStream
	group   *pushGroup
	dropped <-chan struct{} // closed: the group that it asked for is not declared any more
	inst    *instance
	refused chan [][]byte // tokens that another broker must settle
}

// Subscribe implements the API.
func (b *Broker) Subscribe(ctx context.Context, stream *subscribeStream) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	c, err := b.attach(ctx, stream, first)
	if err != nil {
		return rpcError(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gauge := b.metrics.subscribers.WithLabelValues(first.GetAttach().GetGroup(), transportStream)
	gauge.Inc()
	defer gauge.Dec()
	defer b.wakeReaders()
	defer c.group.detach(c.inst)
	ended := make(chan error, 1)
	go func() { ended <- c.receive(ctx) }()
	if err := stream.Send(&notifyv1.SubscribeResponse{Attached: &notifyv1.Attached{
		BrokerId: b.cfg.ID, AckWaitMs: uint32(b.declared.load().ackWait(c.group.id).Milliseconds())}}); err != nil {
		return err
	}
	b.wakeReaders()
	return c.send(ctx, ended)
}

// knownOrRead answers a question by what this broker knows of the registry, and where that refuses by what is in force:
// it may be news from another.
func knownOrRead[T any](ctx context.Context, b *Broker, ask func(*view) (T, error)) (T, error) {
	answer, err := ask(b.declared.load())
	if err == nil {
		return answer, nil
	}
	if err := b.main.readRegistry(ctx); err != nil {
		return answer, err
	}
	return ask(b.declared.load())
}

func (b *Broker) attach(ctx context.Context, stream *subscribeStream, first *notifyv1.SubscribeRequest) (*consumer, error) {
	a := first.GetAttach()
	if a == nil {
		return nil, &message.FieldError{Field: "attach", Rule: "must be in the first message of the stream"}
	}
	if err := message.ValidateGroup(a.GetGroup()); err != nil {
		return nil, err
	}
	if n := len(a.GetInstance()); n > message.MaxKeyBytes {
		return nil, &message.FieldError{Field: "instance", Rule: "too many bytes", Size: n, Limit: message.MaxKeyBytes}
	}
	credit, err := checkCredit(first.GetCredit())
	if err != nil {
		return nil, err
	}
	g, err := knownOrRead(ctx, b, func(v *view) (store.Group, error) { return v.admit(a) })
	if err != nil {
		return nil, err
	}
	group := b.hub.group(g.ID)
	name, dropped := group.follow(b.declared)
	if name != g.Name { // meanwhile
		return nil, unknownGroup(g.Name)
	}
	return &consumer{b: b, stream: stream, group: group, dropped: dropped, refused: make(chan [][]byte, 16),
		inst: group.attach(a.GetInstance(), stream.Peer().Addr, credit)}, nil
}

// admit finds the group that an instance asks for, and refuses one that takes its
// subscriptions for something else.
func (v *view) admit(a *notifyv1.Attach) (store.Group, error) {
	g, ok := v.Groups[a.GetGroup()]
	if !ok {
		return g, unknownGroup(a.GetGroup())
	}
	for _, s := range a.GetSubscriptions() {
		if s.GetGroup() != "" && s.GetGroup() != a.GetGroup() {
			return g, &message.FieldError{Field: "subscriptions", Rule: fmt.Sprintf("one is of group %q, attached is %q", s.GetGroup(), a.GetGroup())}
		}
		yours, err := settingsOf(s)
		if err != nil {
			return g, err
		}
		if err := v.compare(a.GetGroup(), s.GetTopic(), yours); err != nil {
			return g, err
		}
	}
	return g, nil
}

// checkCredit returns the window asked for; 0 asks for the default of 100.
func checkCredit(credit uint32) (int, error) {
	switch {
	case credit == 0:
		return defaultCredit, nil
	case credit > maxCredit:
		return 0, &message.FieldError{Field: "credit", Rule: "too many", Size: int(credit), Limit: maxCredit}
	}
	return int(credit), nil
}

// send pushes deliveries until the stream ends.
func (c *consumer) send(ctx context.Context, ended chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-c.b.stopping:
			return rpcError(newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping"))
		case <-c.dropped:
			return rpcError(newError(notifyv1.Reason_REASON_UNKNOWN_GROUP, "the group was dropped"))
		case <-ctx.Done():
			return ctx.Err()
		case tokens := <-c.refused:
			if err := c.stream.Send(&notifyv1.SubscribeResponse{NotOwner: tokens}); err != nil {
				return err
			}
		case <-c.inst.wake:
			fs := c.group.take(c.inst, frameDeliveries, frameBytes)
			if len(fs) == 0 {
				continue
			}
			res := &notifyv1.SubscribeResponse{Deliveries: make([]*notifyv1.Delivery, len(fs))}
			for i, f := range fs {
				res.Deliveries[i] = delivery(f)
			}
			if err := c.stream.Send(res); err != nil {
				return err
			}
		}
	}
}

func delivery(f *flight) *notifyv1.Delivery {
	return &notifyv1.Delivery{Token: f.token, Attempt: uint32(f.attempt), AckWaitMs: uint32(f.wait / 1000), Message: messageProto(f.msg), Replayed: f.replayed}
}

// receive takes acknowledgements until the consumer closes its side.
func (c *consumer) receive(ctx context.Context) error {
	for {
		req, err := c.stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if req.GetAttach() != nil {
			return rpcError(&message.FieldError{Field: "attach", Rule: "given twice on one stream"})
		}
		if req.GetCredit() != 0 {
			credit, err := checkCredit(req.GetCredit())
			if err != nil {
				return rpcError(err)
			}
			c.group.setCredit(c.inst, credit)
		}
		refused, err := c.settle(req)
		if err != nil {
			return rpcError(err)
		}
		if len(refused) > 0 {
			select {
			case c.refused <- refused:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// settle passes acks, nacks and extensions to the owners of their shards and returns the tokens that
// cannot be settled here now. Those of other groups change nothing.
func (c *consumer) settle(req *notifyv1.SubscribeRequest) (refused [][]byte, err error) {
	if err := c.settleCopies(req); err != nil {
		return nil, err
	}
	for _, raw := range req.GetAcks() {
		if c.foreign(raw) {
			continue
		}
		done, err := c.b.settleAck(raw)
		if err != nil {
			return nil, err
		}
		if !done {
			refused = append(refused, raw)
		}
	}
	for _, n := range req.GetNacks() {
		t, o, err := c.b.settler(n.GetToken())
		if err != nil {
			return nil, err
		}
		if t.group != c.group.id {
			continue
		}
		if t.unstored {
			if u := c.b.holder(t); u != nil {
				u.nack(t, n)
			}
			continue
		}
		if o == nil {
			refused = append(refused, n.GetToken())
			continue
		}
		if f := c.group.finish(flightKey{o, t.pos}, t.attempt); f != nil {
			o.nacked(f, n)
		}
	}
	for _, raw := range req.GetExtends() {
		if c.foreign(raw) {
			continue
		}
		if err := c.b.extend(raw); err != nil {
			return nil, err
		}
	}
	c.group.pump()
	c.b.wakeReaders()
	return refused, nil
}

// foreign reports whether a token is of another group.
func (c *consumer) foreign(raw []byte) bool {
	t, err := decodeToken(raw)
	return err == nil && t.group != c.group.id
}

// settleAck settles the delivery of a token. It reports false when that cannot be done here
// now: the shard is another broker's, or was taken over just now and the message is not read yet.
func (b *Broker) settleAck(raw []byte) (done bool, err error) {
	t, o, err := b.settler(raw)
	if err == nil && t.unstored {
		if u := b.holder(t); u != nil {
			u.ack(t)
		}
		return true, nil
	}
	if err != nil || o == nil {
		return false, err
	}
	f := b.hub.group(t.group).finish(flightKey{o, t.pos}, 0)
	if !o.ack(t.pos, t.group) {
		if f != nil {
			o.heardEarly(f)
		}
		return false, nil
	}
	if f != nil {
		o.ended(f, "")
	}
	return true, nil
}

// settler finds the owner of a token's shard; nil when it is not here.
func (b *Broker) settler(raw []byte) (token, *owner, error) {
	t, err := decodeToken(raw)
	if err != nil {
		return t, nil, &message.FieldError{Field: "token", Rule: err.Error()}
	}
	k := b.stores.byID(t.store)
	if k == nil {
		return t, nil, nil
	}
	return t, k.owner(t.shard), nil
}

// holder finds who holds the message of a token in memory; nil when that is over: another run of this broker, or a
// replay that has ended.
func (b *Broker) holder(t token) *unstored {
	if t.store == b.inMemory.origin.key.store {
		return b.inMemory.unstored
	}
	return b.replays.find(t.store)
}

// wakeReaders lets owners look for due rows: credit has become free.
func (b *Broker) wakeReaders() {
	wake(b.inMemory.ticks)
	b.replays.wake()
	for _, k := range b.stores.all() {
		for _, o := range k.owned() {
			wake(o.readWake)
		}
	}
}
