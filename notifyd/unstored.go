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
)

// unstoredPeriod is how often it is looked for what is due again.
const unstoredPeriod = 50 * time.Millisecond

// droppedGroup is why a delivery from memory is over, beside the reasons of dead letters.
const droppedGroup = "group_dropped"

// unstored holds messages that are in no table, so nothing may be promised of them: those of memory topics that
// were published to this broker (memorytopics.go), or those of one replay (replay.go). They are lost when it dies, and
// a delivery that would be a dead letter is over, and counted. All else is as for stored ones: groups, credit, ack waits,
// retries.
//
//	hold --> offered to the group --> acknowledged: over
//	            ^     |
//	            |     +--> deferred or failed: waits until due and the group has room
//	            +-----------------------------+
//
// The position is that of no shard: it names a message to this one only.
type unstored struct {
	*core
	origin *origin // of broadcast copies
	clock  *clock
	ticks  chan struct{} // capacity 1: a group has room
	// over is told how each delivery ended, when it is forgotten. The lock is held.
	over func(h *heldMessage, pos shard.Pos, group int32, e end)

	mu      sync.Mutex
	last    shard.Pos
	held    map[shard.Pos]*heldMessage
	waiting map[int32]*owedHeap // by group, none of them empty
}

// An end is how a delivery from memory ended.
type end struct {
	reason   string // why without an acknowledgement; empty: with one
	attempts int
	err      string // of the last one
}

type heldMessage struct {
	msg    *message.Message
	groups []int32 // that have not acknowledged
	since  int64   // of a replay: when its age counts from; 0: when it was born
}

func newUnstored(c *core, over func(h *heldMessage, pos shard.Pos, group int32, e end)) *unstored {
	clock := newClock(time.Now())
	return &unstored{core: c, clock: clock, ticks: make(chan struct{}, 1), over: over,
		origin: &origin{core: c, registry: c.declared, clock: clock, key: shardKey{store: uuid.New()}, unstored: true},
		held:   map[shard.Pos]*heldMessage{}, waiting: map[int32]*owedHeap{}}
}

// hold keeps a message for its groups. The lock is held.
func (u *unstored) hold(h *heldMessage) shard.Pos {
	u.last++
	u.held[u.last] = h
	return u.last
}

func (u *unstored) flight(v *view, h *heldMessage, group int32, pos shard.Pos, attempt int) *flight {
	f := &flight{from: u, pos: pos, group: group, attempt: attempt, msg: h.msg, size: h.msg.Size(), ackWait: v.policy(h.msg.Topic, group).ackWait.Microseconds(),
		since: h.since, replayed: h.since != 0}
	f.token = u.origin.token(f, false)
	return f
}

// owes reports whether the group has not acknowledged. The lock is held.
func (u *unstored) owes(pos shard.Pos, group int32) bool {
	h := u.held[pos]
	return h != nil && slices.Contains(h.groups, group)
}

// finish ends a delivery. The lock is held.
func (u *unstored) finish(pos shard.Pos, group int32, e end) {
	if !u.owes(pos, group) {
		return
	}
	h := u.held[pos]
	h.groups = slices.DeleteFunc(h.groups, func(g int32) bool { return g == group })
	if len(h.groups) == 0 {
		delete(u.held, pos)
	}
	u.over(h, pos, group, e)
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
		u.finish(f.pos, f.group, end{dead, f.attempt, x.err})
	default:
		u.wait(f.group, owed{pos: f.pos, attempt: f.attempt + 1, due: next, err: x.err})
	}
}

// ack ends a delivery, also a late one.
func (u *unstored) ack(t token) {
	if f := u.hub.group(t.group).finish(flightKey{u, t.pos}, 0); f != nil {
		u.origin.counted(f, "")
		u.heard(f, alive, "")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.finish(t.pos, t.group, end{attempts: t.attempt})
}

// nack ends an attempt in flight.
func (u *unstored) nack(t token, n *notifyv1.Nack) {
	if f := u.hub.group(t.group).finish(flightKey{u, t.pos}, t.attempt); f != nil {
		u.failed(f, failureOf(n))
	}
}

// extend gives an attempt in flight its whole ack wait again.
func (u *unstored) extend(t token) {
	u.hub.group(t.group).extend(flightKey{u, t.pos}, t.attempt)
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

var _ source = (*unstored)(nil)
