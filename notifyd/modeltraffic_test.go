package notifyd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// What happens in a schedule of the model, but for faults.

// modelKinds are what a header of each message says; one group wants the first only.
var modelKinds = [...]string{"x", "y"}

// modelWants reports whether a group wants a message of a kind.
func modelWants(group, kind string) bool { return group != "chooses" || kind == modelKinds[0] }

func (m *model) traffic(r *rand.Rand) {
	kind := modelKinds[r.IntN(len(modelKinds))]
	switch n := r.IntN(26); {
	case n < 10:
		m.publish(1+r.IntN(4), "", kind, 0)
	case n < 14:
		m.publish(1, fmt.Sprint("k", r.IntN(5)), kind, 0)
	case n < 16:
		m.publish(1, "", kind, time.Duration(100+r.IntN(2000))*time.Millisecond)
	case n < 19:
		m.half(r.IntN(3), kind)
	case n < 22:
		m.outbox(kind, r.IntN(4) > 0)
	case n < 23:
		m.redrive()
	case n < 25:
		m.purge(r)
	default:
		m.noRowOfBroadcasts(r.IntN(8))
	}
}

func (m *model) publish(n int, key, kind string, delay time.Duration) {
	before := m.inForce()
	for range n {
		m.send(func(ctx context.Context) {
			p, err := m.client.Publish(ctx, client.Message{Topic: "t", Key: key, Headers: map[string]string{"kind": kind}, Delay: delay}, client.PublishOptions{})
			if err == nil {
				m.stored(p.ID, kind, before)
			}
		})
	}
}

// half prepares one and decides it, or leaves it to the end.
func (m *model) half(choice int, kind string) {
	before := m.inForce()
	at := m.brokers[m.r.IntN(len(m.brokers))].front.addr
	m.send(func(ctx context.Context) {
		c := raw(at)
		h, err := c.Prepare(ctx, connect.NewRequest(&notifyv1.PrepareRequest{ProducerGroup: "shop", Message: &notifyv1.Message{Topic: "t", Headers: map[string]string{"kind": kind}}}))
		if err != nil {
			return
		}
		d := connect.NewRequest(&notifyv1.DecideRequest{Handle: h.Msg.Handle, ProducerGroup: "shop"})
		switch choice {
		case 0:
			if _, err := c.Commit(ctx, d); err == nil {
				m.stored(h.Msg.Id, kind, before)
			}
		case 1:
			if _, err := c.Rollback(ctx, d); err == nil {
				m.rolledBack(h.Msg.Id)
			}
		}
	})
}

// outbox inserts a row in a transaction of its own, which is rolled back sometimes.
func (m *model) outbox(kind string, commit bool) {
	before := m.inForce()
	tx, err := m.db.BeginTx(m.t.Context(), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	defer tx.Rollback()
	id := insertOutbox(m.t, tx, "t", fmt.Sprintf(`{"kind":%q}`, kind), "x")
	if !commit {
		m.rolledBack(id)
		return
	}
	if err := tx.Commit(); err != nil {
		m.t.Fatal(err)
	}
	m.stored(id, kind, before)
}

func (m *model) rolledBack(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.never[id] = true
}

func (m *model) redrive() {
	m.send(func(ctx context.Context) {
		m.client.Admin(ctx, func(a notifyv1connect.AdminClient) error {
			_, err := a.RedriveDeadLetters(ctx, connect.NewRequest(&notifyv1.ChangeDeadLettersRequest{All: true}))
			return err // it is done again at the end
		})
	})
}

// purge deletes one of the dead letters, if it is one by then.
func (m *model) purge(r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reject) == 0 {
		return
	}
	d := m.reject[r.IntN(len(m.reject))]
	m.done[d] = true
	m.send(func(ctx context.Context) {
		m.client.Admin(ctx, func(a notifyv1connect.AdminClient) error {
			_, err := a.PurgeDeadLetters(ctx, connect.NewRequest(&notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Group: d.group, Ids: []string{d.id}}}))
			return err // what is left is delivered
		})
	})
}

// noRowOfBroadcasts looks whether a shard holds anything for the group that is broadcast to.
func (m *model) noRowOfBroadcasts(shard int) {
	for _, table := range []string{"pending", "dead_letter"} {
		if n := m.count(fmt.Sprintf("SELECT COUNT(*) FROM %s_%02d x JOIN registry_group g ON g.id = x.group_id WHERE g.name = 'all'", table, shard)); n > 0 {
			m.t.Errorf("%d rows of %s are of a group that is broadcast to", n, table)
		}
	}
}

// handle decides by the seed what becomes of an attempt.
func (m *model) handle(d modelDelivery, got client.Delivery) error {
	thirds, verdict := m.decide(d, got.Headers["kind"])
	for range thirds {
		if !got.Extend() {
			return client.ErrUnsettled
		}
		<-time.After(modelAckWait / 3)
	}
	if verdict == nil {
		m.mu.Lock()
		m.done[d] = true
		m.mu.Unlock()
	}
	return verdict
}

// decide is for how many thirds of the ack wait an attempt takes, and what becomes of it.
func (m *model) decide(d modelDelivery, kind string) (thirds int, verdict error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.never[d.id]:
		m.t.Errorf("message %s was rolled back, and delivered to %s", d.id, d.group)
	case !modelWants(d.group, kind):
		m.t.Errorf("message %s of kind %s was delivered to %s", d.id, kind, d.group)
	}
	m.tries[d]++
	r := rand.New(rand.NewPCG(m.seed, uint64(m.tries[d])<<32|uint64(len(m.tries))))
	switch n := r.IntN(40); {
	case m.final || n < 22:
		return 0, nil
	case n < 24:
		return 5, nil
	case n < 29:
		return 0, errors.New("later")
	case n < 31:
		return 0, client.RetryAfter(time.Duration(1+r.IntN(300))*time.Millisecond, errors.New("busy"))
	case n < 32:
		return 5, errors.New("later still")
	case n < 36:
		m.reject = append(m.reject, d)
		return 0, client.Reject(errors.New("never"))
	}
	return 0, client.ErrUnsettled
}
