package notifyd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
)

func TestANackedDeliveryComesAgainFromItsPendingRowAndThenLeaves(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.RetryMin = notifyd.Duration(200 * time.Millisecond) })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	var mu sync.Mutex
	var attempts []int
	s.consume(c, "g", func(d client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, d.Attempt)
		if d.Attempt < 4 {
			return errors.New("no stock")
		}
		return nil
	})
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("a pending row says why", func() bool {
		for i := range 8 {
			if s.count(fmt.Sprintf("SELECT COUNT(*) FROM pending_%02d WHERE last_error = 'nack: no stock'", i)) == 1 {
				return true
			}
		}
		return false
	})
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending") == 0 })
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(attempts) != "[1 2 3 4]" {
		t.Errorf("attempts %v, want 1 to 4", attempts)
	}
}

func TestADeliveryWithoutAnAckComesAgain(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.AckWait = notifyd.Duration(300 * time.Millisecond)
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	r := s.consume(c, "g", func(d client.Delivery) error {
		if d.Attempt < 3 {
			return client.ErrUnsettled
		}
		return nil
	})
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending") == 0 && r.count() == 1 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got[id] < 3 { // or more: an ack that takes longer than the ack wait is late
		t.Errorf("%d deliveries, want 3 at least", r.got[id])
	}
}

func TestAGroupThatIsAwayGetsEverythingLaterWhileTheOtherIsServed(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "here", "away")
	here := s.consume(c, "here", nil)
	const n = 300
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, i)})
	}
	s.until("the live group has all, the other's wait", func() bool { return here.count() == n && s.rows("pending") == n })
	away := s.consume(c, "away", nil)
	s.until("the other has all and nothing is left", func() bool {
		return away.count() == n && s.rows("message")+s.rows("pending") == 0
	})
	here.mu.Lock()
	defer here.mu.Unlock()
	for id, times := range here.got {
		if times != 1 {
			t.Errorf("message %s came %d times to the live group", id, times)
		}
	}
}

func TestInstancesOfAGroupShareItsMessages(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	a, b := s.consume(c, "g", nil), s.consume(c, "g", nil)
	s.until("both attached", func() bool { return s.instances(addr, "g") == 2 })
	const n = 200
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, i)})
	}
	s.until("all delivered", func() bool { return a.count()+b.count() == n && s.rows("message") == 0 })
	if a.count() < n/4 || b.count() < n/4 {
		t.Errorf("%d and %d deliveries: not in turn", a.count(), b.count())
	}
}

func (s *stage) instances(addr, group string) int {
	_, answer := s.post(addr, "Admin/GetGroup", fmt.Sprintf(`{"name":%q}`, group))
	g, _ := answer["group"].(map[string]any)
	list, _ := g["instances"].([]any)
	return len(list)
}

func TestDeliveriesAbovetheMemoryBudgetArePagedFromTheStore(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.DeliveryMemory = 64 << 10 })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	gate := make(chan struct{})
	r := s.consume(c, "g", func(client.Delivery) error { <-gate; return nil })
	s.until("attached", func() bool { return s.instances(addr, "g") == 1 })
	p := s.publisher(c)
	const n = 1000
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		if err := p.Send(t.Context(), client.Message{Topic: "orders", Body: make([]byte, 1000)}, client.PublishOptions{}, func(_ client.Published, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	close(gate)
	s.until("all delivered and gone", func() bool { return r.count() == n && s.rows("message")+s.rows("pending") == 0 })
}

func TestARestartLosesNothingAndHandsShardsOverAtOnce(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	const n = 100
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, i)})
	}
	stop()
	if held := s.count("SELECT COUNT(*) FROM lease WHERE expires_at > 0"); held != 0 {
		t.Errorf("%d shards are still leased after a graceful stop", held)
	}
	if live := s.count("SELECT COUNT(*) FROM registry_broker"); live != 0 {
		t.Errorf("%d brokers are still listed after a graceful stop", live)
	}
	addr, _ = s.broker(nil)
	r := s.consume(s.client(addr), "g", nil)
	s.until("all delivered and gone", func() bool { return r.count() == n && s.rows("message")+s.rows("pending") == 0 })
}

func TestAGroupAddedBeforeAPublishIsNeverMissed(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	c1, c2 := s.client(one), s.client(two)
	s.subscribe(c1, "orders", "first")
	s.consume(c1, "first", nil)
	for i := range 10 {
		topic := fmt.Sprint("t", i)
		s.subscribe(c1, topic, "first", "late") // through one broker, published through the other
		s.publish(c2, client.Message{Topic: topic, Body: []byte("x")})
	}
	late := s.consume(c2, "late", nil)
	s.until("the new group has all", func() bool { return late.count() == 10 })
}

func TestAttachingToAGroupThatIsNotDeclaredIsRefused(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	con, err := s.client(addr).NewConsumer(client.ConsumerConfig{Group: "nobody", Handler: func(context.Context, client.Delivery) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var e *client.Error
	if err := con.Run(t.Context()); !errors.As(err, &e) || e.Reason != client.ReasonUnknownGroup {
		t.Fatalf("Run = %v, want an unknown group", err)
	}
}

func TestATroubledStartOfAShardDoesNotStopItsDeliveries(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "g")
	stop()
	rename := func(from, to string) {
		t.Helper()
		for i := range 8 {
			if _, err := s.db.Exec(fmt.Sprintf("RENAME TABLE %s_%02d TO %s_%02d", from, i, to, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rename("pending", "hidden")
	addr, _ = s.broker(nil)
	c := s.client(addr)
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	rename("hidden", "pending")
	r := s.consume(c, "g", nil)
	s.until("delivered and gone", func() bool { return r.count() == 1 && s.rows("message")+s.rows("pending") == 0 })
	if r.got[id] == 0 {
		t.Errorf("delivered %v, want %s", r.got, id)
	}
}

func TestASettlementThatCannotCommitIsNotRepeatedForEver(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	g := s.attach(addr, "g")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.next()
	for i := range 8 { // the row that its settling would insert
		if _, err := s.db.Exec(fmt.Sprintf(`INSERT INTO pending_%02d (pos, group_id, next_at, attempts, last_error)
			SELECT m.pos, (SELECT MAX(id) FROM registry_group), 0, 1, '' FROM message_%02d m`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	g.ack(g.next().Token)
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending") == 0 })
}

func TestAStopEndsAlthoughTheStoreRefusesToSettle(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	if _, err := s.db.Exec("RENAME TABLE settled TO hidden"); err != nil {
		t.Fatal(err)
	}
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	s.until("the broker has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if held := s.count("SELECT COUNT(*) FROM lease WHERE expires_at > 0"); held != 0 {
		t.Errorf("%d shards are still leased", held)
	}
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestTwoTopicsThatKafkaCannotTellApartAreNeverBothDeclared(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.AutoCreateTopics = true })
	c := s.client(addr)
	s.publish(c, client.Message{Topic: "a.b", Body: []byte("x")})
	_, err := c.Publish(t.Context(), client.Message{Topic: "a_b", Body: []byte("x")}, client.PublishOptions{})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonInvalid || e.Field != "topic" {
		t.Errorf("publish to a_b: %v", err)
	}
}
