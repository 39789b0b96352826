package notifyd

import (
	"strings"
	"testing"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// lifeOf is a message of topic t that one subscribed group, g, is owed.
func lifeOf(s groupSight, row *shard.PendingRow, target *shard.TargetLook) *life {
	side := newTestSide()
	v := side.viewer.view(&store.Registry{Version: 1, GroupNames: map[int32]string{1: "g"},
		Subscriptions: []store.Subscription{{GroupID: 1, Topic: "t", Settings: store.SubscriptionSettings{MaxAttempts: 5}}}}, nil)
	l := &life{id: "x", now: 10e6, owner: "one", view: v, sight: &sight{place: shard.Settled, groups: map[int32]groupSight{1: s}}}
	l.store.Stored = shard.Stored{Pos: 7, Msg: &message.Message{Topic: "t", BornAt: 1}}
	if row != nil {
		row.Group = 1
		l.store.Pending = []store.PendingLook{{PendingRow: *row}}
	}
	if target != nil {
		target.Group = 1
		l.sight.place, l.sight.look.Targets = shard.InMemory, []shard.TargetLook{*target}
	}
	return l
}

func TestWhyADeliveryWaitsIsSaidInWords(t *testing.T) {
	due := &shard.PendingRow{}
	for _, c := range []struct {
		want   string
		life   *life
		change func(*life)
	}{
		{"waits: no instance of group g is attached (since 1970-01-01T00:00:03Z)", lifeOf(groupSight{aloneAt: 3e6}, due, nil), nil},
		{"waits: no instance of group g is attached to broker one", lifeOf(groupSight{}, due, nil), nil},
		{"waits: the group's webhook is disabled since 1970-01-01T00:00:02Z: 410", lifeOf(groupSight{}, due, nil),
			func(l *life) { l.hooks = map[int32]store.Endpoint{1: {Disabled: true, DisabledAt: 2e6, Reason: "410"}} }},
		{"waits: the group's breaker is open since 1970-01-01T00:00:04Z, after 3 failures in a row; a probe at 1970-01-01T00:00:12Z tells whether it is back",
			lifeOf(groupSight{instances: 1, credit: 9, down: true, downAt: 4e6, probeAt: 12e6, failures: 3}, due, nil), nil},
		{"waits: number 2 in line for credit: 3 of 3 are in flight", lifeOf(groupSight{instances: 1, credit: 3, inFlight: 3, line: 2}, nil, &shard.TargetLook{State: shard.Open}), nil},
		{"waits: the credit of 2 instances is used up: 3 of 3 are in flight", lifeOf(groupSight{instances: 2, credit: 3, inFlight: 3}, due, nil), nil},
		{"waits: it is read when what is before it was: the group catches up in order; attempt 3 of 5 is due, after: nack: db down",
			lifeOf(groupSight{instances: 1, credit: 3}, &shard.PendingRow{Attempts: 2, NextAt: 9e6, Err: "nack: db down"}, nil), nil},
		{"waits: attempt 2 of 5 at 1970-01-01T00:00:20Z, after: nack", lifeOf(groupSight{}, &shard.PendingRow{Attempts: 1, NextAt: 20e6, Err: "nack"}, nil), nil},
		{"waits: attempt 2 of 5 at 1970-01-01T00:00:20Z, after: nack", lifeOf(groupSight{}, nil, &shard.TargetLook{State: shard.Failed, Attempts: 1, At: 20e6, Err: "nack"}), nil},
		{"waits: redriven, and due at 1970-01-01T00:00:20Z", lifeOf(groupSight{}, &shard.PendingRow{NextAt: 20e6}, nil), nil},
		{"waits: no broker owns its shard now", lifeOf(groupSight{}, due, nil), func(l *life) { l.owner, l.sight = "", nil }},
		{"waits: it is due; broker one, which knows more, was not asked or did not answer", lifeOf(groupSight{}, due, nil), func(l *life) { l.sight = nil }},
		{"waits: its outcome is being written", lifeOf(groupSight{settler: settlerSight{busy: true}}, due, nil), nil},
		{"in flight to i at p since 1970-01-01T00:00:08Z, attempt 2 of 5; it has until 1970-01-01T00:00:13Z to answer",
			lifeOf(groupSight{flight: &flightSight{"i", "p", transportStream, 2, 8e6, 13e6, true}}, due, nil), nil},
		{"waits in the line of i at p: the instance does not read", lifeOf(groupSight{flight: &flightSight{"i", "p", transportStream, 1, 8e6, 13e6, false}}, due, nil), nil},
		{"acknowledged", lifeOf(groupSight{settler: settlerSight{acked: true}}, due, nil), nil},
		{"acknowledged", lifeOf(groupSight{}, nil, &shard.TargetLook{State: shard.Acked}), nil},
		{"the group was dropped: its row is removed in a moment", lifeOf(groupSight{}, due, nil), func(l *life) { delete(l.view.GroupNames, 1) }},
		{"acknowledged, or not owed: the group subscribed after it", lifeOf(groupSight{}, nil, nil), func(l *life) {
			l.view.Subscriptions[0].CreatedAt = 5
			l.store.Dead = []store.DeadLetter{{DeadKey: store.DeadKey{Group: 2}}}
		}},
	} {
		if c.change != nil {
			c.change(c.life)
		}
		if got := c.life.group(1).proto(); got.Why != c.want && !strings.HasPrefix(got.Why, c.want+", at ") {
			t.Errorf("%s: %s\nwant %s", got.State, got.Why, c.want)
		}
	}
}

func TestWhyAMessageIsThereIsSaidInWords(t *testing.T) {
	delayed := func(l *life) { l.store.Pending = []store.PendingLook{{PendingRow: shard.PendingRow{NextAt: 20e6}}} }
	for _, c := range []struct {
		want   string
		change func(*life)
	}{
		{"waits: its first delivery is at 1970-01-01T00:00:20Z", delayed},
		{"waits: its time has come, and its exchange is next", func(l *life) { delayed(l); l.now = 30e6 }},
		{"waits: broker one has not read it yet; it took the shard a moment ago, or its delivery memory is full", func(l *life) { l.sight.place = shard.Unpaged }},
		{"waits: no broker owns its shard now", func(l *life) { l.sight, l.owner = nil, "" }},
		{"waits for its exchange, or is delivered and not settled: broker one, which knows, was not asked or did not answer", func(l *life) { l.sight = nil }},
		{"it is being settled at this moment: ask again", func(*life) {}},
		{"kept for 1 dead letter", func(l *life) { l.store.Dead = []store.DeadLetter{{DeadKey: store.DeadKey{Group: 1}}} }},
		{"nobody waits for it: it is deleted in a moment", func(l *life) { l.sight.place = shard.InMemory; l.view.Subscriptions = nil }},
	} {
		l := lifeOf(groupSight{}, nil, nil)
		c.change(l)
		if got := l.proto(&keeper{side: &side{st: &store.Store{}}}, store.Place{}).Why; got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// The look at a group is by the clock of the message's store, and names the delivery that is asked for.
func TestALookAtAGroupFollowsTheStoresClock(t *testing.T) {
	g, src := newTestGroup()
	inst := g.attach("i", "p", 1)
	g.offer(flightsOf(src, 3))
	g.take(inst, 10, 1<<30)
	now := g.clock.now() + 3600e6 // an hour ahead
	s := g.look(flightKey{src, 1}, now)
	if f := s.flight; f == nil || f.instance != "i" || !f.taken || f.ackBy < now || f.ackBy > now+ackWaitOfTests || f.sentAt > now || s.inFlight != 1 || s.credit != 1 {
		t.Errorf("in flight: %+v, %+v", s, s.flight)
	}
	if s := g.look(flightKey{src, 3}, now); s.line != 2 || s.flight != nil {
		t.Errorf("in line: %+v", s)
	}
	g.detach(inst)
	if s := g.look(flightKey{src, 3}, now); s.line != 0 || s.instances != 0 || s.aloneAt < now-60e6 || s.aloneAt > g.clock.now()+3601e6 {
		t.Errorf("nobody there: %+v", s)
	}
}
