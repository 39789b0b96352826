package notifyd

import (
	"context"
	"fmt"
	"slices"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// Replicated topics. What is published, prepared or committed of one is acknowledged only when a
// replica of the store has it, by what the server says of itself:
//
//	status --> BEGIN ... COMMIT --> status --> answer
//	  |          waits for a replica  |
//	  |                               +-- off, or a COMMIT was missed: "result unknown"
//	  +-- off, or no replica attached: a retryable error, nothing is stored
//
// The status is read on the connection that commits, so that it is the same server's. It counts the
// commits of all sessions: what another one missed makes an answer here unknown, never the reverse.

// A guarantee is what replicated topics need of one batch. nil: the batch has none.
type guarantee struct {
	topics map[string]store.Topic
	before store.SemiSync
}

// guarantee reads the status before a batch and refuses what could not be acknowledged, and what is
// behind that on its lines. The rest is returned.
func (o *owner) guarantee(ctx context.Context, batch []*publish) (*guarantee, []*publish, error) {
	v := o.registry.load()
	if !v.replicates {
		return nil, batch, nil
	}
	g := &guarantee{topics: v.Topics}
	needed := false
	for _, p := range batch {
		p.replicated = g.needs(p.item.Msg, p.item.Decide)
		needed = needed || p.replicated
	}
	if !needed {
		return nil, batch, nil
	}
	var err error
	if g.before, err = o.inserts.SemiSync(context.WithoutCancel(ctx)); err != nil || g.before.Acknowledging() {
		return g, batch, err
	}
	rest := make([]*publish, 0, len(batch))
	for _, p := range batch {
		switch {
		case p.line != nil && p.line.broken.Load():
			p.fail(behindFailure())
		case p.replicated && p.item.Msg != nil:
			p.fail(o.notReplicated(p.item.Msg.Topic, g.before))
		default:
			rest = append(rest, p)
		}
	}
	return g, rest, nil
}

// needs reports whether an answer needs a replica: of a message or half of a replicated topic, or
// of a commit, whose topic is known only when its half was read, and not at all when it is a repeat.
func (g *guarantee) needs(m *message.Message, d *store.Decide) bool {
	if m == nil {
		return d.Decision == store.Committed
	}
	return g.topics[m.Topic].Settings.Durability == store.Replicated && (d == nil || d.Decision == store.Committed)
}

// prepare makes a transaction keep the guarantee.
func (g *guarantee) prepare(o *owner, in *store.Insert) {
	if g == nil {
		return
	}
	in.Mark = true
	in.Admit = func(m *message.Message) error {
		if g.topics[m.Topic].Settings.Durability == store.Replicated && !g.before.Acknowledging() {
			return o.notReplicated(m.Topic, g.before)
		}
		return nil
	}
}

// doubt returns why the replicated part of a committed batch is in doubt, or nil.
func (g *guarantee) doubt(ctx context.Context, w *store.Writer) error {
	if g == nil {
		return nil
	}
	after, err := w.SemiSync(context.WithoutCancel(ctx))
	if err == nil && !g.before.Covers(after) {
		err = fmt.Errorf("%s, and %d commits were not acknowledged meanwhile", after, after.Missed-g.before.Missed)
	}
	return err
}

// notReplicated says that nothing was stored.
func (s *side) notReplicated(topic string, seen store.SemiSync) *apiError {
	return newError(notifyv1.Reason_REASON_STORE_AWAY,
		"topic %q is replicated and no replica of store %s acknowledges, nothing was stored: %s; send it again", topic, s.st.Name, seen)
}

// replicaUnsure says that the message is stored, and that a replica may not have it.
func replicaUnsure(err error) *apiError {
	return newError(notifyv1.Reason_REASON_RESULT_UNKNOWN,
		"result unknown: it is stored, but its topic is replicated and a replica may not have it; send it again with the same idempotency key: %s", err)
}

// relayLook is how often the relay looks whether a replica acknowledges again.
const relayLook = time.Second

// A waitingRoom keeps outbox rows of replicated topics out of the relay's way while no replica acknowledges.
type waitingRoom struct {
	topics []string
	until  time.Time
	seen   *store.SemiSync // in the read under way
}

// open begins a read of the outbox and returns the topics to leave out.
func (w *waitingRoom) open(now time.Time) []string {
	w.seen = nil
	if !now.Before(w.until) {
		w.topics = nil
	}
	return w.topics
}

// hold returns why a row of the topic has to wait, or nil.
func (w *waitingRoom) hold(ctx context.Context, o *owner, topic store.Topic) error {
	if topic.Settings.Durability != store.Replicated {
		return nil
	}
	if w.seen == nil {
		seen, err := o.st.SemiSync(ctx)
		if err != nil {
			return err
		}
		w.seen = &seen
	}
	if w.seen.Acknowledging() {
		return nil
	}
	if len(w.topics) == 0 {
		w.until = time.Now().Add(relayLook)
	}
	if !slices.Contains(w.topics, topic.Name) {
		w.topics = append(w.topics, topic.Name)
	}
	return o.notReplicated(topic.Name, *w.seen)
}
