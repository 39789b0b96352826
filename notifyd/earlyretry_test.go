package notifyd_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
)

// Nacks with a delay, ack waits that run out, a group that is away for a moment, and short delays: what is pushed again
// soon is pushed from memory. Only a broker that was not there reads the store, each message once.
func TestAnEarlyRetryReadsNoBodyFromTheStore(t *testing.T) {
	s, cut := behind(t)
	quick := func(c *notifyd.Config) {
		c.AckWait = notifyd.Duration(200 * time.Millisecond)
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
		c.RetryMax = notifyd.Duration(200 * time.Millisecond)
	}
	addr, stop := s.broker(quick)
	c := s.client(addr)
	s.subscribe(c, "orders", "nacks", "sleeps", "away")
	s.until("every shard has looked for what was there before", func() bool { return cut.bodies.Load() == 8 })
	const n = 20
	first := func(what error) func(d client.Delivery) error {
		return func(d client.Delivery) error {
			if d.Attempt < 3 {
				return what
			}
			return nil
		}
	}
	nacks := s.consume(c, "nacks", first(client.RetryAfter(50*time.Millisecond, errors.New("later"))))
	sleeps := s.consume(c, "sleeps", first(client.ErrUnsettled))
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: []byte(fmt.Sprint(i)), Delay: time.Duration(i%2) * 300 * time.Millisecond})
	}
	s.until("all wait for the group that is away, and for it alone", func() bool {
		return nacks.count() == n && sleeps.count() == n && s.rows("message") == n && s.rows("pending") == n
	})
	away := s.consume(c, "away", nil)
	s.until("all are delivered and gone", func() bool { return away.count() == n && s.rows("message")+s.rows("pending") == 0 })
	if got := cut.bodies.Load() - 8; got != 0 {
		t.Errorf("%d statements read bodies", got)
	}
	away.stop()
	for range n {
		s.publish(c, client.Message{Topic: "orders"})
	}
	s.until("all wait again", func() bool { return s.rows("pending") == n })
	stop()
	seen := cut.bodies.Load()
	registry := prometheus.NewRegistry()
	addr, _ = s.brokerWith(notifyd.Deps{Registerer: registry}, quick)
	away = s.consume(s.client(addr), "away", first(errors.New("not yet")))
	s.until("they are delivered and gone", func() bool { return away.count() == n && s.rows("message") == 0 })
	if cut.bodies.Load() <= seen+8 { // and those of the start
		t.Error("the test does not see reads of bodies")
	}
	from := func(where string) (n float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "notify_due_bodies_total" && m.GetLabel()[0].GetValue() == where {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	if store, cache := from("store"), from("cache"); store != n || cache < n {
		t.Errorf("%v bodies from the store and %v from memory, want %d and as many at least", store, cache, n)
	}
}
