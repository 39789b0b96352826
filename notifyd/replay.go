package notifyd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

const (
	// replayMost is how many messages one call may replay.
	replayMost = 1000
	// replayMemory bounds the bytes of messages of all replays at a broker.
	replayMemory = 64 << 20
)

// Outcomes of replayed messages, beside the reasons of dead letters and droppedGroup.
const (
	replayAcked  = "acknowledged"
	replayPassed = "passed_over"
)

// replays are the calls of Replay that are under way.
type replays struct {
	memory *semaphore.Weighted // bytes of messages

	mu   sync.Mutex
	live map[uuid.UUID]*replay // by the store of their tokens
}

func newReplays() *replays {
	return &replays{memory: semaphore.NewWeighted(replayMemory), live: map[uuid.UUID]*replay{}}
}

// begin lets acknowledgements find a replay, until end is called.
func (s *replays) begin(r *replay) (end func()) {
	key := r.origin.key.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[key] = r
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, key)
	}
}

// find returns the replay with the key, or nil.
func (s *replays) find(key uuid.UUID) *unstored {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.live[key]; r != nil {
		return r.unstored
	}
	return nil
}

// wake lets them look for room.
func (s *replays) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.live {
		wake(r.ticks)
	}
}

// A replay pushes messages of the mirror to one group again. They go the way of retries from the first attempt on: behind
// what is live, at the rate that the group's ramp and the broker's publishes leave, and never into the last quarter
// of an instance's credit. While the group is away they wait. Its caller has what is not done yet, so nothing is lost
// with this broker.
type replay struct {
	*unstored
	changed chan struct{} // capacity 1: there are outcomes

	// Guarded by the lock of unstored.
	outcomes []*notifyv1.ReplayOutcome
	left     int // messages without one
}

func newReplay(c *core, group int32, messages []*message.Message) *replay {
	r := &replay{changed: make(chan struct{}, 1), left: len(messages)}
	c.metrics.replaying.Add(float64(r.left))
	r.unstored = newUnstored(c, r.ended)
	now, v := r.clock.now(), c.declared.load()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		h := &heldMessage{msg: m, groups: []int32{group}, since: now}
		pos := r.hold(h)
		if !v.wants(group, m) {
			r.finish(pos, group, end{reason: replayPassed})
			continue
		}
		r.wait(group, owed{pos: pos, attempt: 1, due: now})
	}
	return r
}

// ended takes the end of a delivery.
func (r *replay) ended(h *heldMessage, pos shard.Pos, group int32, e end) {
	o := &notifyv1.ReplayOutcome{Index: uint32(pos - 1), Outcome: e.reason, Attempts: uint32(e.attempts), Error: e.err}
	if e.reason == "" {
		o.Outcome = replayAcked
	}
	r.metrics.replayed.WithLabelValues(h.msg.Topic, r.origin.groupName(group), o.Outcome).Inc()
	r.outcomes = append(r.outcomes, o)
	r.left--
	r.metrics.replaying.Dec()
	wake(r.changed)
}

// take returns the outcomes since the last call, and how many messages have none.
func (r *replay) take() (outcomes []*notifyv1.ReplayOutcome, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	outcomes, r.outcomes = r.outcomes, nil
	return outcomes, r.left
}

// giveUp forgets what has no outcome.
func (r *replay) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
	r.metrics.replaying.Sub(float64(r.left))
}

// run pushes until each message has an outcome and all of them are sent, ctx is done, or stopping is closed.
func (r *replay) run(ctx context.Context, stopping <-chan struct{}, send func(*notifyv1.ReplayResponse) error) error {
	work, stop := context.WithCancel(ctx)
	var pushing sync.WaitGroup
	pushing.Go(func() { r.unstored.run(work) })
	defer func() {
		stop()
		pushing.Wait()
		r.hub.drop(r.unstored)
		r.giveUp()
	}()
	wake(r.ticks)
	for {
		outcomes, left := r.take()
		if len(outcomes) > 0 {
			if err := send(&notifyv1.ReplayResponse{Outcomes: outcomes}); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return rpcError(newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping"))
		}
	}
}

// Replay implements the API.
func (b *Broker) Replay(ctx context.Context, req *connect.Request[notifyv1.ReplayRequest], stream *connect.ServerStream[notifyv1.ReplayResponse]) error {
	messages, size, err := replayed(req.Msg.GetMessages())
	if err != nil {
		return rpcError(err)
	}
	group, err := b.replayTo(ctx, req.Msg.GetGroup(), messages)
	if err != nil {
		return rpcError(err)
	}
	size = min(size, replayMemory) // one alone is always taken
	if !b.replays.memory.TryAcquire(size) {
		return rpcError(newError(notifyv1.Reason_REASON_OVERLOADED, "overloaded: replays at this broker hold %d bytes of messages at most; try again", replayMemory))
	}
	defer b.replays.memory.Release(size)
	r := newReplay(b.core, group, messages)
	defer b.replays.begin(r)()
	return r.run(ctx, b.stopping, stream.Send)
}

// replayed reads messages of the mirror, and about the memory they take, in bytes.
func replayed(in []*notifyv1.Message) (messages []*message.Message, size int64, err error) {
	if n := len(in); n > replayMost {
		return nil, 0, &message.FieldError{Field: "messages", Rule: "too many", Size: n, Limit: replayMost}
	}
	for i, p := range in {
		m := &message.Message{Topic: p.GetTopic(), Key: p.GetKey(), Headers: p.GetHeaders(), Body: p.GetBody(), BornAt: p.GetBornAtUs()}
		if m.ID, err = uuid.Parse(p.GetId()); err != nil {
			err = &message.FieldError{Field: "id", Rule: "not a UUID"}
		} else {
			err = m.Validate(math.MaxInt) // whatever bodies may be now
		}
		if field, ok := errors.AsType[*message.FieldError](err); ok {
			field.Field = fmt.Sprintf("messages[%d].%s", i, field.Field)
		}
		if err != nil {
			return nil, 0, err
		}
		messages, size = append(messages, m), size+int64(m.Size())
	}
	return messages, size, nil
}

// replayTo finds the group, which must subscribe to the messages' topics.
func (b *Broker) replayTo(ctx context.Context, group string, messages []*message.Message) (int32, error) {
	return knownOrRead(ctx, b, func(v *view) (int32, error) { return v.replayTo(group, messages) })
}

func (v *view) replayTo(group string, messages []*message.Message) (int32, error) {
	g, ok := v.Groups[group]
	if !ok {
		return 0, unknownGroup(group)
	}
	asked := "" // messages of one topic stand side by side
	for _, m := range messages {
		if m.Topic == asked {
			continue
		}
		asked = m.Topic
		s, ok := v.Subscription(group, m.Topic)
		if !ok {
			return 0, unknownSubscription(group, m.Topic)
		}
		if s.Settings.Broadcast {
			return 0, &message.FieldError{Field: "group", Rule: fmt.Sprintf("%q gets topic %q by broadcast, of which nothing is kept: its instances read the mirror themselves", group, m.Topic)}
		}
	}
	return g.ID, nil
}
