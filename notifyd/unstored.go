package notifyd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// unstoredPeriod is how often it is looked for what is due again.
	unstoredPeriod = 50 * time.Millisecond
	// unstoredPatience bounds the last deliveries of a stopping broker.
	unstoredPatience = 5 * time.Second
)

// Reasons why a delivery from memory is dropped, beside those of dead letters.
const droppedGroup = "group_dropped"

// unstored holds the messages of memory topics that were published to this broker. They are in no
// table, so nothing may be promised of them: they are lost when it dies, and a delivery that would be a
// dead letter is dropped and counted. All else is as for stored ones: groups, credit, ack waits, retries.
//
//	take --> offered to the group --> acknowledged: gone
//	            ^     |
//	            |     +--> deferred or failed: waits until due and the group has room
//	            +-----------------------------+
//
// The position is that of no shard: it names a message to this broker only.
type unstored struct {
	*core
	origin *origin // of broadcast copies
	clock  *clock
	ticks  chan struct{} // capacity 1: a group has room
	idle   chan struct{} // capacity 1: nothing is held

	mu      sync.Mutex
	closed  bool
	last    shard.Pos
	held    map[shard.Pos]*heldMessage
	bytes   int
	waiting map[int32]*owedHeap // by group, none of them empty
}

type heldMessage struct {
	msg    *message.Message
	groups []int32 // that have not acknowledged
}

func newUnstored(c *core) *unstored {
	clock := newClock(time.Now())
	return &unstored{core: c, clock: clock, ticks: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		origin: &origin{core: c, registry: c.declared, clock: clock, key: shardKey{store: uuid.New()}, unstored: true},
		held:   map[shard.Pos]*heldMessage{}, waiting: map[int32]*owedHeap{}}
}

// inMemory reports whether the topic's messages are never stored.
func inMemory(t store.Topic) bool { return t.Settings.Durability == store.InMemory }

// checkUnstored refuses what a memory topic cannot do.
func checkUnstored(topic, what string) error {
	return &message.FieldError{Field: "topic", Rule: topic + " is in memory only and takes no " + what}
}

// checkKey refuses an idempotency key, but for the message's own id: SDKs send that unasked, and it is passed over.
func checkKey(req *notifyv1.PublishRequest, m *message.Message) error {
	if k := req.GetIdempotencyKey(); k != "" && k != m.ID.String() {
		return checkUnstored(m.Topic, "idempotency keys")
	}
	return nil
}

// take holds a message, answers the publish and pushes the message.
func (u *unstored) take(p *publish) {
	if p.line != nil && p.line.broken.Load() {
		p.fail(behindFailure())
		return
	}
	m := p.item.Msg
	m.BornAt = u.clock.now()
	v := u.declared.load()
	groups := v.exchange(m)
	pos, err := u.hold(m, groups)
	if err != nil {
		p.fail(err)
		return
	}
	u.metrics.published.WithLabelValues(m.Topic, "memory").Inc()
	u.metrics.publishedBytes.WithLabelValues(m.Topic).Add(float64(contentSize(m)))
	p.stored(m.ID, false)
	fs := make([]*flight, len(groups))
	for i, g := range groups {
		fs[i] = u.flight(v, m, g, pos, 1)
	}
	u.hub.offer(fs)
	u.origin.broadcast([]shard.Stored{{Pos: pos, Msg: m}})
}

// hold keeps a message for its groups, if there is room.
func (u *unstored) hold(m *message.Message, groups []int32) (shard.Pos, *apiError) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return 0, newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping")
	case len(groups) > 0 && len(u.held) > 0 && (len(u.held) >= u.cfg.UnstoredMessages || u.bytes+m.Size() > int(u.cfg.UnstoredMemory)):
		return 0, newError(notifyv1.Reason_REASON_OVERLOADED,
			"overloaded: %d messages of memory topics, %d bytes, wait for their groups at this broker; try again", len(u.held), u.bytes)
	}
	u.last++
	if len(groups) > 0 {
		u.held[u.last] = &heldMessage{msg: m, groups: slices.Clone(groups)}
		u.bytes += m.Size()
		u.count()
	}
	return u.last, nil
}

// count keeps the gauges. The lock is held.
func (u *unstored) count() {
	u.metrics.memoryMessages.Set(float64(len(u.held)))
	u.metrics.memoryBytes.Set(float64(u.bytes))
	if len(u.held) == 0 {
		wake(u.idle)
	}
}

func (u *unstored) flight(v *view, m *message.Message, group int32, pos shard.Pos, attempt int) *flight {
	f := &flight{from: u, pos: pos, group: group, attempt: attempt, msg: m, size: m.Size(), ackWait: v.policy(m.Topic, group).ackWait.Microseconds()}
	f.token = u.origin.token(f, false)
	return f
}

// owes reports whether the group has not acknowledged. The lock is held.
func (u *unstored) owes(pos shard.Pos, group int32) bool {
	h := u.held[pos]
	return h != nil && slices.Contains(h.groups, group)
}

// done ends a delivery. The lock is held.
func (u *unstored) done(pos shard.Pos, group int32) {
	h := u.held[pos]
	if h == nil {
		return
	}
	h.groups = slices.DeleteFunc(h.groups, func(g int32) bool { return g == group })
	if len(h.groups) == 0 {
		delete(u.held, pos)
		u.bytes -= h.msg.Size()
		u.count()
	}
}

// sent implements source.
func (u *unstored) sent(fs []*flight) []*flight {
	u.mu.Lock()
	defer u.mu.Unlock()
	ok := fs[:0:0]
	for _, f := range fs {
		if u.owes(f.pos, f.group) {
			ok = append(ok, f)
		}
	}
	return ok
}

// deferred implements source.
func (u *unstored) deferred(fs []*flight) {
	now := u.clock.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range fs {
		if u.owes(f.pos, f.group) {
			u.wait(f.group, owed{pos: f.pos, attempt: f.attempt, due: now})
		}
	}
}

// failed implements source.
func (u *unstored) failed(f *flight, x failure) {
	u.origin.counted(f, cmp.Or(x.kind, kindNack))
	u.heard(f, endingOf(x), x.err)
	next, dead := u.declared.load().policy(f.msg.Topic, f.group).retry.next(u.clock.now(), f.ageFrom(), f.attempt, x, retrySeed(f.msg.ID, f.group, f.attempt))
	if dead == "" && f.outlives(next) {
		dead = deadExpired
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !u.owes(f.pos, f.group):
	case dead != "":
		u.drop(f.pos, f.group, dead)
	default:
		u.wait(f.group, owed{pos: f.pos, attempt: f.attempt + 1, due: next})
	}
}

// drop ends a delivery that nobody acknowledged. The lock is held.
func (u *unstored) drop(pos shard.Pos, group int32, reason string) {
	u.metrics.memoryDropped.WithLabelValues(u.held[pos].msg.Topic, u.origin.groupName(group), reason).Inc()
	u.done(pos, group)
}

// ack ends a delivery, also a late one. A token of another run of this broker is nothing here any more.
func (u *unstored) ack(t token) {
	if t.store != u.origin.key.store {
		return
	}
	if f := u.hub.group(t.group).finish(flightKey{u, t.pos}, 0); f != nil {
		u.origin.counted(f, "")
		u.heard(f, alive, "")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done(t.pos, t.group)
}

// nack ends an attempt in flight.
func (u *unstored) nack(t token, n *notifyv1.Nack) {
	if t.store != u.origin.key.store {
		return
	}
	if f := u.hub.group(t.group).finish(flightKey{u, t.pos}, t.attempt); f != nil {
		u.failed(f, failureOf(n))
	}
}

// extend gives an attempt in flight its whole ack wait again.
func (u *unstored) extend(t token) {
	if t.store == u.origin.key.store {
		u.hub.group(t.group).extend(flightKey{u, t.pos}, t.attempt)
	}
}

// run offers again what is due, and drops what is too old or of no group, until ctx is done.
func (u *unstored) run(ctx context.Context) {
	t := time.NewTicker(unstoredPeriod)
	defer t.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-u.ticks:
		}
		if time.Since(swept) >= unstoredSweep {
			u.sweep()
			swept = time.Now()
		}
		for _, g := range u.groups() {
			u.again(g)
		}
	}
}

// groups are those for which something waits.
func (u *unstored) groups() []int32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.waiting))
}

// owedTo is how many messages are held for a group.
func (u *unstored) owedTo(group int32) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pos := range u.held {
		if u.owes(pos, group) {
			n++
		}
	}
	return n
}

// quiesce takes no more, waits until the groups have what is held, and says what is lost.
func (u *unstored) quiesce(ctx context.Context) {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	for u.len() > 0 {
		select {
		case <-u.idle:
		case <-ctx.Done():
			u.log.Warn("messages of memory topics are lost: their groups did not acknowledge them before the broker stopped", "messages", u.len())
			return
		}
	}
}

// len is how many messages are held.
func (u *unstored) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.held)
}

var _ source = (*unstored)(nil)
