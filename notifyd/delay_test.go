package notifyd_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/schema"
)

func (s *stage) now() (us int64) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT " + schema.NowMicros).Scan(&us); err != nil {
		s.t.Fatal(err)
	}
	return us
}

func TestADelayedMessageIsPushedWhenItsTimeHasCome(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	early := make(chan int64, 10)
	r := s.consume(c, "g", func(d client.Delivery) error {
		if at := d.DeliverAt.UnixMicro(); !d.DeliverAt.IsZero() && s.now() < at {
			early <- at
		}
		return nil
	})
	delayed := s.publish(c, client.Message{Topic: "orders", Delay: 1500 * time.Millisecond, Headers: map[string]string{"a": "b"}, TTL: time.Hour})
	s.publish(c, client.Message{Topic: "orders"})
	if n := s.rows("message"); n < 1 {
		t.Error("the delayed message is not in the store")
	}
	s.until("both are delivered and gone", func() bool { return r.count() == 2 && s.rows("message")+s.rows("pending") == 0 })
	if len(early) > 0 {
		t.Errorf("delivered before %d", <-early)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.last; d.ID != delayed || len(d.Headers) != 1 || d.Headers["a"] != "b" || d.ExpiresAt.Sub(d.DeliverAt) != time.Hour || r.got[delayed] != 1 {
		t.Errorf("delivered %d times, as %+v", r.got[delayed], d)
	}
}

// The row that says when is kept until the message is settled, so whoever owns the shard then delivers it; also
// to a group that came after the publish.
func TestADelayedMessageOutlivesItsBroker(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	at := s.now() + 3_000_000
	const n = 40
	for range n {
		s.publish(c, client.Message{Topic: "orders", DeliverAt: time.UnixMicro(at)})
	}
	stop()
	if got := s.rows("pending"); got != n {
		t.Errorf("%d rows wait for their time, want %d", got, n)
	}
	addr, _ = s.broker(nil)
	c = s.client(addr)
	err := c.Admin(t.Context(), func(a notifyv1connect.AdminClient) error {
		_, err := a.AddSubscription(t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: "h", Topic: "orders"}}))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	g, h := s.consume(c, "g", nil), s.consume(c, "h", nil)
	s.until("all are delivered and gone", func() bool { return g.count() == n && h.count() == n && s.rows("message")+s.rows("pending") == 0 })
	for _, r := range []*receiver{g, h} {
		for id, times := range r.got {
			if times != 1 {
				t.Errorf("%s was delivered %d times", id, times)
			}
		}
	}
}

func TestADelayedHalfIsDelayedAfterItsCommit(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	msgs := notifyv1connect.NewMessagingClient(http.DefaultClient, "http://"+addr)
	p, err := msgs.Prepare(t.Context(), connect.NewRequest(&notifyv1.PrepareRequest{ProducerGroup: "shop",
		Message: &notifyv1.Message{Topic: "orders", DelayMs: 2000}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := msgs.Commit(t.Context(), connect.NewRequest(&notifyv1.DecideRequest{Handle: p.Msg.GetHandle(), ProducerGroup: "shop"})); err != nil {
		t.Fatal(err)
	}
	if s.rows("message") != 1 || s.rows("pending") != 1 {
		t.Errorf("%d messages and %d pending rows after the commit", s.rows("message"), s.rows("pending"))
	}
	r := s.consume(c, "g", nil)
	s.until("delivered and gone", func() bool { return r.count() == 1 && s.rows("message")+s.rows("pending") == 0 })
}

func TestTimesThatCannotBeAreRefused(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders")
	now := time.UnixMicro(s.now())
	for name, m := range map[string]client.Message{
		"too far ahead":           {DeliverAt: now.Add(41 * 24 * time.Hour)},
		"too long a delay":        {Delay: 41 * 24 * time.Hour},
		"delay and time":          {Delay: time.Second, DeliverAt: now.Add(time.Hour)},
		"expired":                 {ExpiresAt: now.Add(-time.Second)},
		"expires before delivery": {ExpiresAt: now.Add(time.Second), Delay: time.Minute},
		"too long a life":         {TTL: 366 * 24 * time.Hour},
		"life and end":            {TTL: time.Second, ExpiresAt: now.Add(time.Hour)},
		"negative":                {TTL: -time.Second},
	} {
		m.Topic = "orders"
		_, err := c.Publish(t.Context(), m, client.PublishOptions{NoDedup: true})
		if e := (*client.Error)(nil); !errors.As(err, &e) || e.Reason != client.ReasonInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.rows("message") + s.rows("pending"); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
}

// The first answer may have been lost; that the message has expired meanwhile changes nothing.
func TestARepeatOfAnExpiredMessageGetsTheFirstAnswer(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	m := client.Message{Topic: "orders", ExpiresAt: time.UnixMicro(s.now() + 1_500_000)}
	first, err := c.Publish(t.Context(), m, client.PublishOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	s.until("it has expired", func() bool { return s.now() > m.ExpiresAt.UnixMicro() })
	again, err := c.Publish(t.Context(), m, client.PublishOptions{IdempotencyKey: "k"})
	if err != nil || again.ID != first.ID || !again.Duplicate {
		t.Errorf("again: %+v, %v; want the first id %s", again, err, first.ID)
	}
}

func TestAnExpiredMessageIsADeadLetter(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x"), TTL: time.Hour})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "later", DelayMs: 3_600_000}) // beyond its life
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	g.close()
	s.until("detached", func() bool { return s.instances(addr, "stock") == 0 })
	s.publish(c, client.Message{Topic: "orders", Body: []byte("y"), TTL: time.Second})
	s.until("it waits for the group", func() bool { return s.rows("pending") == 1 })
	s.until("its life is over", func() bool {
		return s.rows("message") == 2 && s.now() > s.births()+1_000_000
	})
	s.attach(addr, "stock")
	s.until("a second dead letter", func() bool { return s.rows("dead_letter") == 2 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"expired|0||", "expired|1|nack: later|nack: later"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

// births is the store's time at which the last message was born.
func (s *stage) births() (at int64) {
	for i := range 8 {
		at = max(at, int64(s.count(fmt.Sprintf("SELECT COALESCE(MAX(born_at), 0) FROM message_%02d", i))))
	}
	return at
}
