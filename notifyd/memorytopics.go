package notifyd

import (
	"context"
	"slices"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// memoryPatience bounds the last deliveries of memory topics of a stopping broker.
const memoryPatience = 5 * time.Second

// memoryTopics hold the messages of memory topics that were published to this broker. Those whose groups are
// behind are bounded; what comes beyond is refused.
type memoryTopics struct {
	*unstored
	idle chan struct{} // capacity 1: nothing is held

	// Guarded by the lock of unstored.
	closed bool
	bytes  int
}

func newMemoryTopics(c *core) *memoryTopics {
	m := &memoryTopics{idle: make(chan struct{}, 1)}
	m.unstored = newUnstored(c, m.left)
	return m
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
func (t *memoryTopics) take(p *publish) {
	if p.line != nil && p.line.broken.Load() {
		p.fail(behindFailure())
		return
	}
	m := p.item.Msg
	m.BornAt = t.clock.now()
	v := t.declared.load()
	groups := v.exchange(m)
	h := &heldMessage{msg: m, groups: slices.Clone(groups)}
	pos, err := t.admit(h)
	if err != nil {
		p.fail(err)
		return
	}
	t.metrics.published.WithLabelValues(m.Topic, "memory").Inc()
	t.metrics.publishedBytes.WithLabelValues(m.Topic).Add(float64(contentSize(m)))
	p.stored(m.ID, false)
	fs := make([]*flight, len(groups))
	for i, g := range groups {
		fs[i] = t.flight(v, h, g, pos, 1)
	}
	t.hub.offer(fs)
	t.origin.broadcast([]shard.Stored{{Pos: pos, Msg: m}})
}

// admit holds a message if there is room.
func (t *memoryTopics) admit(h *heldMessage) (shard.Pos, *apiError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return 0, newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping")
	case len(h.groups) == 0:
		t.last++
		return t.last, nil
	case len(t.held) > 0 && (len(t.held) >= t.cfg.UnstoredMessages || t.bytes+h.msg.Size() > int(t.cfg.UnstoredMemory)):
		return 0, newError(notifyv1.Reason_REASON_OVERLOADED,
			"overloaded: %d messages of memory topics, %d bytes, wait for their groups at this broker; try again", len(t.held), t.bytes)
	}
	t.bytes += h.msg.Size()
	defer t.count()
	return t.hold(h), nil
}

// left takes the end of a delivery.
func (t *memoryTopics) left(h *heldMessage, _ shard.Pos, group int32, e end) {
	if e.reason != "" {
		t.metrics.memoryDropped.WithLabelValues(h.msg.Topic, t.origin.groupName(group), e.reason).Inc()
	}
	if len(h.groups) == 0 {
		t.bytes -= h.msg.Size()
		t.count()
	}
}

// count keeps the gauges. The lock is held.
func (t *memoryTopics) count() {
	t.metrics.memoryMessages.Set(float64(len(t.held)))
	t.metrics.memoryBytes.Set(float64(t.bytes))
	if len(t.held) == 0 {
		wake(t.idle)
	}
}

// quiesce takes no more, waits until the groups have what is held, and says what is lost.
func (t *memoryTopics) quiesce(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for t.len() > 0 {
		select {
		case <-t.idle:
		case <-ctx.Done():
			t.log.Warn("messages of memory topics are lost: their groups did not acknowledge them before the broker stopped", "messages", t.len())
			return
		}
	}
}

// len is how many messages are held.
func (t *memoryTopics) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}
