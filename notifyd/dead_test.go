package notifyd_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// A rawConsumer is an instance of a group without an SDK: the test answers each delivery.
type rawConsumer struct {
	s      *stage
	stream *connect.BidiStreamForClient[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]
	got    []*notifyv1.Delivery
}

func (s *stage) attach(addr, group string) *rawConsumer {
	s.t.Helper()
	c := &rawConsumer{s: s, stream: raw(addr).Subscribe(s.t.Context())}
	c.send(&notifyv1.SubscribeRequest{Attach: &notifyv1.Attach{Group: group}})
	if _, err := c.stream.Receive(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.close)
	return c
}

func (c *rawConsumer) close() {
	c.stream.CloseRequest()
	c.stream.CloseResponse()
}

func (c *rawConsumer) send(req *notifyv1.SubscribeRequest) {
	c.s.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.s.t.Fatal(err)
	}
}

// next is the next delivery.
func (c *rawConsumer) next() *notifyv1.Delivery {
	c.s.t.Helper()
	for len(c.got) == 0 {
		res, err := c.stream.Receive()
		if err != nil {
			c.s.t.Fatal(err)
		}
		c.got = res.GetDeliveries()
	}
	d := c.got[0]
	c.got = c.got[1:]
	return d
}

func (c *rawConsumer) nack(n *notifyv1.Nack) {
	c.s.t.Helper()
	c.send(&notifyv1.SubscribeRequest{Nacks: []*notifyv1.Nack{n}})
}

func (c *rawConsumer) ack(token []byte) {
	c.s.t.Helper()
	c.send(&notifyv1.SubscribeRequest{Acks: [][]byte{token}})
}

// text joins one column of the dead letters of all shards, sorted.
func (s *stage) dead(column string) []string {
	s.t.Helper()
	var out []string
	for i := range 8 {
		rows, err := s.db.Query(fmt.Sprintf("SELECT %s FROM dead_letter_%02d", column, i))
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			var v string
			if err := rows.Scan(&v); err != nil {
				s.t.Fatal(err)
			}
			out = append(out, v)
		}
		rows.Close()
	}
	slices.Sort(out)
	return out
}

const deadRow = "CONCAT_WS('|', reason, attempts, first_error, last_error)"

func TestARejectedDeliveryIsADeadLetterAtOnceAndItsMessageStays(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock", "mail")
	stock, mail := s.attach(addr, "stock"), s.attach(addr, "mail")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	stock.nack(&notifyv1.Nack{Token: stock.next().Token, Reject: true, Reason: "no such article", DelayMs: 1})
	mail.ack(mail.next().Token)
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	if got, want := s.dead(deadRow), []string{"rejected|1|rejected: no such article|rejected: no such article"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	if n := s.rows("pending"); n != 0 {
		t.Errorf("%d pending rows beside it", n)
	}
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages, want the one that the dead letter needs", n)
	}
}

func TestARejectedRetryIsADeadLetterWithItsFirstAndLastError(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.RetryMin = notifyd.Duration(100 * time.Millisecond) })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "one"})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "two"})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "three", Reject: true})
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"rejected|3|nack: one|rejected: three"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestMaxAttemptsMakeADeadLetter(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
		c.AckWait = notifyd.Duration(300 * time.Millisecond)
		c.MaxAttempts = 2
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "one"})
	if d := g.next(); d.Attempt != 2 {
		t.Errorf("attempt %d, want 2", d.Attempt)
	}
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"max_attempts|2|nack: one|no acknowledgement in time"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestAnAttemptThatWasNeverSentDoesNotCount(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxAttempts = 1 })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("it waits for the group", func() bool { return s.rows("pending") == 1 })
	g := s.attach(addr, "stock")
	d := g.next()
	if d.Attempt != 1 || d.Message.Id != id {
		t.Errorf("attempt %d of %s, want the first of %s", d.Attempt, d.Message.Id, id)
	}
	g.ack(d.Token)
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 })
}

func TestAnOldDeliveryExpiresInsteadOfBeingTriedAgain(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxAge = notifyd.Duration(time.Hour) })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "later", DelayMs: 3_600_000}) // beyond its age
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	g.close()
	s.until("detached", func() bool { return s.instances(addr, "stock") == 0 })
	s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
	s.until("it waits for the group", func() bool { return s.rows("pending") == 1 })
	for i := range 8 { // a weekend later
		if _, err := s.db.Exec(fmt.Sprintf("UPDATE message_%02d SET born_at = born_at - 3600000000", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.attach(addr, "stock")
	s.until("a second dead letter", func() bool { return s.rows("dead_letter") == 2 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"expired|0||", "expired|1|nack: later|nack: later"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestADelayAskedForTakesTheBackoffsPlaceUpToADay(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin, c.RetryMax = notifyd.Duration(time.Hour), notifyd.Duration(time.Hour)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, DelayMs: 50})
	d := g.next() // not after an hour
	if d.Attempt != 2 {
		t.Errorf("attempt %d, want 2", d.Attempt)
	}
	g.nack(&notifyv1.Nack{Token: d.Token, DelayMs: 4_000_000_000})
	day := "next_at BETWEEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 86000000000 AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 86400000000"
	s.until("it is due within a day", func() bool {
		n := 0
		for i := range 8 {
			n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM pending_%02d WHERE attempts = 2 AND %s", i, day))
		}
		return n == 1
	})
}

func TestALateAckCompletesADeadLetterAndTakesTheMessageAlong(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
		c.AckWait = notifyd.Duration(300 * time.Millisecond)
		c.MaxAttempts = 1
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock", "mail")
	stock := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	token := stock.next().Token
	s.until("a dead letter, and a row for the group that is away", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 1 })
	stock.ack(token)
	s.until("the dead letter is gone", func() bool { return s.rows("dead_letter") == 0 })
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages; one group has not had it", n)
	}
	mail := s.attach(addr, "mail")
	token = mail.next().Token
	s.until("the other's dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	mail.ack(token)
	s.until("nothing is left", func() bool { return s.rows("message")+s.rows("dead_letter")+s.rows("pending") == 0 })
}

func TestADeadLetterIsNotDeliveredAgainByTheNextOwner(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("bad")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reject: true})
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	stop()
	for i := range 8 { // as if the owner had settled nothing since
		if _, err := s.db.Exec("UPDATE settled SET pos = 0 WHERE shard = ?", i); err != nil {
			t.Fatal(err)
		}
	}
	addr, _ = s.broker(nil)
	r := s.consume(s.client(addr), "stock", nil)
	good := s.publish(s.client(addr), client.Message{Topic: "orders", Body: []byte("good")})
	s.until("the next one comes", func() bool { return r.count() >= 1 && s.rows("message") == 1 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != 1 || r.got[good] != 1 {
		t.Errorf("delivered %v, want %s only", r.got, good)
	}
}
