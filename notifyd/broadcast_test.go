package notifyd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

func TestABroadcastMessageComesToEveryInstanceAtEveryBrokerAndLeavesNoRow(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	s.until("both have shards", func() bool { return s.count("SELECT COUNT(DISTINCT owner) FROM lease WHERE expires_at > 0") == 2 })
	c := s.client(one, two)
	s.subscribe(c, "prices", "log")
	s.add(one, &notifyv1.Subscription{Group: "screens", Topic: "prices", Mode: notifyv1.Mode_MODE_BROADCAST, Filter: `key != "skip"`})
	s.publish(c, client.Message{Topic: "prices"}) // nobody is attached
	s.until("it waits for the other group only", func() bool { return s.rows("pending") == 1 })
	a, b, log := s.consume(c, "screens", nil), s.consume(c, "screens", nil), s.consume(c, "log", nil)
	s.until("attached at both brokers", func() bool {
		return s.instances(one, "screens") == 2 && s.instances(two, "screens") == 2 && s.instances(one, "log") == 1 && s.instances(two, "log") == 1
	})
	const n = 100
	for i := range n {
		s.publish(c, client.Message{Topic: "prices", Key: fmt.Sprint(i)})
		s.publish(c, client.Message{Topic: "prices", Key: "skip"})
	}
	s.publish(c, client.Message{Topic: "prices", DeliverAt: time.Now().Add(300 * time.Millisecond)})
	s.until("everybody has all, and nothing is left", func() bool {
		return a.count() == n+1 && b.count() == n+1 && log.count() == 2*n+2 && s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0
	})
	for _, r := range []*receiver{a, b} {
		for id, times := range r.got {
			if times != 1 {
				t.Errorf("message %s came %d times", id, times)
			}
		}
	}
}

func TestACopyIsTriedAgainWhileItsStreamLivesAndThenMissed(t *testing.T) {
	s := newStage(t)
	reg := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: reg}, nil)
	c := s.client(addr)
	s.subscribe(c, "prices")
	s.add(addr, &notifyv1.Subscription{Group: "screens", Topic: "prices", Mode: notifyv1.Mode_MODE_BROADCAST,
		Delivery: &notifyv1.DeliverySettings{AckWaitMs: 200, RetryMinMs: 1, RetryMaxMs: 1, MaxAttempts: 3}})
	g, other := s.attach(addr, "screens"), s.attach(addr, "screens")
	id := s.publish(c, client.Message{Topic: "prices"})
	g.nack(&notifyv1.Nack{Token: g.next().GetToken()})
	for attempt := uint32(2); attempt <= 3; attempt++ { // the second runs out of time, the third is the last
		if d := g.next(); d.GetAttempt() != attempt || d.GetMessage().GetId() != id {
			t.Errorf("delivery %v, want attempt %d", d, attempt)
		}
	}
	d := other.next() // its copy is its own
	if d.GetAttempt() != 1 {
		t.Errorf("attempt %d of the other's copy", d.GetAttempt())
	}
	other.close()
	missed := func(want ...string) {
		t.Helper()
		s.until(strings.Join(want, ", "), func() bool {
			return testutil.GatherAndCompare(reg, strings.NewReader(`# HELP notify_broadcast_missed_total Copies of broadcast messages that an attached instance did not acknowledge and gets no more.
# TYPE notify_broadcast_missed_total counter
`+strings.Join(want, "\n")+"\n"), "notify_broadcast_missed_total") == nil
		})
	}
	missed(`notify_broadcast_missed_total{group="screens",reason="connect",topic="prices"} 1`,
		`notify_broadcast_missed_total{group="screens",reason="max_attempts",topic="prices"} 1`)
	again := s.attach(addr, "screens")
	second := s.publish(c, client.Message{Topic: "prices"})
	if d := again.next(); d.GetMessage().GetId() != second {
		t.Errorf("%v, want the second message: the first was before it attached", d)
	} else {
		again.ack(d.GetToken())
	}
	if n := s.rows("pending") + s.rows("dead_letter"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestAMessageThatIsReadFromTheStoreLaterIsBroadcastThen(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.DeliveryMemory = 16 << 10 })
	c := s.client(addr)
	s.subscribe(c, "prices", "slow")
	s.add(addr, &notifyv1.Subscription{Group: "screens", Topic: "prices", Mode: notifyv1.Mode_MODE_BROADCAST})
	gate := make(chan struct{})
	s.consume(c, "slow", func(client.Delivery) error { <-gate; return nil })
	screen := s.consume(c, "screens", nil)
	s.until("attached", func() bool { return s.instances(addr, "screens") == 1 && s.instances(addr, "slow") == 1 })
	const n = 200
	for range n {
		s.publish(c, client.Message{Topic: "prices", Body: make([]byte, 1000)})
	}
	if screen.count() == n {
		t.Error("nothing was above the memory of deliveries")
	}
	close(gate)
	s.until("all have come and gone", func() bool { return screen.count() == n && s.rows("message")+s.rows("pending") == 0 })
}
