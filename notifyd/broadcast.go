package notifyd

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

// maxCopyBytes bounds the copies that one instance may be behind; what comes beyond is missed.
const maxCopyBytes = 16 << 20

// Reasons why an instance missed a copy.
const (
	missedBehind = "behind"
	missedStream = "connect"
)

// Broadcast. When a message is exchanged, each stream of the group that is attached to the
// owner's broker gets a copy; an instance attaches to every broker, so that is every instance.
// Settling knows nothing of copies: a group that is only broadcast to is no target, has
// no rows, and holds no message. A copy lives in memory, at its instance alone, until it is acknowledged,
// rejected, out of attempts, or its stream ends. It takes part in the instance's credit, and in
// neither breaker nor ramp. A new owner exchanges unsettled messages again, so their copies may repeat.

// copies are where the copies of one shard's messages for one instance come from and end.
type copies struct {
	from  *origin // the one that exchanged first: for metrics and settings
	group *pushGroup
	inst  *instance
}

// An origin is where messages are exchanged: a shard, or this broker's memory.
type origin struct {
	*core
	registry *registry
	clock    *clock
	key      shardKey // in tokens
	unstored bool     // it is the broker's memory
}

func (s *side) origin(no int) *origin {
	return &origin{core: s.core, registry: s.registry, clock: s.clock, key: shardKey{s.storeID, no}}
}

// token names a flight of a copy, or of a delivery.
func (o *origin) token(f *flight, copy bool) []byte {
	return token{store: o.key.store, shard: o.key.no, pos: f.pos, id: f.msg.ID, group: f.group, attempt: f.attempt, copy: copy, unstored: o.unstored && !copy}.encode()
}

func (o *origin) groupName(id int32) string { return o.registry.load().groupName(id) }

func (o *owner) broadcast(stored []shard.Stored) { o.copies.broadcast(stored) }

type shardKey struct {
	store uuid.UUID
	no    int
}

// broadcast hands messages that were exchanged just now to the groups that they are broadcast to.
func (o *origin) broadcast(stored []shard.Stored) {
	v := o.registry.load()
	if !v.broadcasts {
		return
	}
	now := o.clock.now()
	for _, m := range stored {
		if m.Delayed || m.Msg.ExpiresAt != 0 && m.Msg.ExpiresAt <= now {
			continue
		}
		for _, g := range v.broadcastTo(m.Msg) {
			o.hub.group(g).copyToAll(o, &flight{pos: m.Pos, group: g, attempt: 1, msg: m.Msg, size: m.Msg.Size(), ackWait: v.policy(m.Msg.Topic, g).ackWait.Microseconds()})
		}
	}
}

// copyToAll queues a copy for each stream.
func (g *pushGroup) copyToAll(o *origin, f *flight) {
	g.mu.Lock()
	for _, inst := range g.instances {
		if inst.transport != transportStream {
			continue
		}
		if inst.copyBytes+f.size > maxCopyBytes {
			o.missed(f.msg, f.group, missedBehind)
			continue
		}
		c := *f
		c.from = inst.copiesOf(o, g)
		c.token = o.token(&c, true)
		inst.copyBytes += c.size
		inst.copies = append(inst.copies, &c)
	}
	g.mu.Unlock()
	g.pump()
}

// copiesOf finds the source of a shard's copies for the instance. The group's lock is held.
func (i *instance) copiesOf(o *origin, g *pushGroup) *copies {
	if i.sources[o.key] == nil {
		if i.sources == nil {
			i.sources = map[shardKey]*copies{}
		}
		i.sources[o.key] = &copies{from: o, group: g, inst: i}
	}
	return i.sources[o.key]
}

func (o *origin) missed(m *message.Message, group int32, reason string) {
	o.metrics.missed.WithLabelValues(m.Topic, o.groupName(group), reason).Inc()
}

// assignCopies gives copies to their instances, as far as the credit goes. The lock is held.
func (g *pushGroup) assignCopies(now int64) (assigned []*flight) {
	for _, inst := range g.instances {
		n := min(max(0, inst.free()), len(inst.copies))
		for _, f := range inst.copies[:n] {
			g.assignTo(inst, f, now)
		}
		assigned = append(assigned, cut(&inst.copies, n)...)
	}
	return assigned
}

// wakeCopies queues the copies that failed and are due again, and reports whether there were any. The lock is held.
func (g *pushGroup) wakeCopies(now int64) (any bool) {
	for _, inst := range g.instances {
		inst.resting = slices.DeleteFunc(inst.resting, func(f *flight) bool {
			if f.queuedAt > now {
				return false
			}
			inst.copies = append(inst.copies, f)
			any = true
			return true
		})
	}
	return any
}

// sent implements source.
func (c *copies) sent(fs []*flight) []*flight { return fs }

// deferred implements source: the copies wait again, unless their stream has ended.
func (c *copies) deferred(fs []*flight) {
	for _, f := range fs {
		c.again(f, f.attempt, 0)
	}
}

// failed implements source.
func (c *copies) failed(f *flight, x failure) {
	c.from.counted(f, cmp.Or(x.kind, kindNack))
	policy := c.from.registry.load().policy(f.msg.Topic, f.group).retry
	now := c.group.clock.now()
	at, dead := policy.next(now, now, f.attempt, x, retrySeed(f.msg.ID, f.group, f.attempt))
	if dead != "" {
		c.from.missed(f.msg, f.group, dead)
		c.gone(f)
		return
	}
	c.again(f, f.attempt+1, at)
}

// again lets a copy wait for another attempt, which is due at at.
func (c *copies) again(f *flight, attempt int, at int64) {
	next := &flight{from: c, pos: f.pos, group: f.group, attempt: attempt, msg: f.msg, size: f.size, ackWait: f.ackWait, queuedAt: at}
	next.token = c.from.token(next, true)
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.inst.gone {
		c.from.missed(f.msg, f.group, missedStream)
		return
	}
	c.inst.resting = append(c.inst.resting, next)
}

// gone takes a copy out of the instance's account.
func (c *copies) gone(f *flight) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.inst.copyBytes -= f.size
}

// forgetCopies drops what an instance that is gone had waiting. The lock is held.
func (i *instance) forgetCopies() {
	for _, f := range slices.Concat(i.copies, i.resting) {
		f.from.(*copies).from.missed(f.msg, f.group, missedStream)
	}
	i.copies, i.resting = nil, nil
}

// counted counts an attempt that is over; kind is empty when it was acknowledged.
func (o *origin) counted(f *flight, kind string) {
	group := o.groupName(f.group)
	o.metrics.attempts.WithLabelValues(f.msg.Topic, group, f.inst.transport).Inc()
	if kind != "" {
		o.metrics.failures.WithLabelValues(f.msg.Topic, group, f.inst.transport, kind).Inc()
		return
	}
	if !f.replayed {
		o.metrics.latency.WithLabelValues(f.msg.Topic, group).Observe(float64(o.clock.now()-f.msg.BornAt) / 1e6)
	}
}

// finishCopy takes the copy of a token out when it is in flight at the instance. attempt 0 means any.
func (g *pushGroup) finishCopy(inst *instance, t token, attempt int) *flight {
	g.mu.Lock()
	from := inst.sources[shardKey{t.store, t.shard}]
	g.mu.Unlock()
	if from == nil {
		return nil
	}
	return g.finish(flightKey{from, t.pos}, attempt)
}

// settleCopies takes the tokens of copies out of a request and settles them: they are this
// instance's or nobody's.
func (c *consumer) settleCopies(req *notifyv1.SubscribeRequest) error {
	var failed error
	mine := func(raw []byte) (t token, ok bool) {
		t, err := decodeToken(raw)
		if err != nil && failed == nil {
			failed = &message.FieldError{Field: "token", Rule: err.Error()}
		}
		return t, err == nil && t.copy
	}
	req.Acks = slices.DeleteFunc(req.Acks, func(raw []byte) bool {
		t, ok := mine(raw)
		if !ok {
			return false
		}
		if f := c.group.finishCopy(c.inst, t, 0); f != nil {
			c := f.from.(*copies)
			c.from.counted(f, "")
			c.gone(f)
		}
		return true
	})
	req.Nacks = slices.DeleteFunc(req.Nacks, func(n *notifyv1.Nack) bool {
		t, ok := mine(n.GetToken())
		if !ok {
			return false
		}
		if f := c.group.finishCopy(c.inst, t, t.attempt); f != nil {
			f.from.failed(f, failureOf(n))
		}
		return true
	})
	req.Extends = slices.DeleteFunc(req.Extends, func(raw []byte) bool {
		t, ok := mine(raw)
		if ok {
			c.group.extendCopy(c.inst, t)
		}
		return ok
	})
	return failed
}

// extendCopy gives a copy in flight its whole ack wait again.
func (g *pushGroup) extendCopy(inst *instance, t token) {
	g.mu.Lock()
	from := inst.sources[shardKey{t.store, t.shard}]
	g.mu.Unlock()
	if from != nil {
		g.extend(flightKey{from, t.pos}, t.attempt)
	}
}

var _ source = (*copies)(nil)
