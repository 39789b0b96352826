package notifyd_test

import (
	"testing"
	"time"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// The delivery outlives its ack wait several times, and the settling of its message: its pending row is
// due long before it ends.
func TestADeliveryThatIsExtendedIsNotRepeated(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.AckWait, c.RetryMin = notifyd.Duration(1500*time.Millisecond), notifyd.Duration(100*time.Millisecond)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	d := g.next()
	extend := func() { g.send(&notifyv1.SubscribeRequest{Extends: [][]byte{d.Token}}) }
	s.until("it is settled", func() bool { extend(); return s.rows("pending") == 1 })
	overdue := s.now() + 3_000_000
	s.until("its row is due", func() bool { extend(); return s.now() > overdue })
	g.ack(d.Token)
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 })
	s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
	if next := g.next(); next.Message.Id == d.Message.Id {
		t.Errorf("delivered again, attempt %d", next.Attempt)
	}
}

func TestADeliveryThatIsNotExtendedAnyMoreIsRepeated(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.AckWait, c.RetryMin = notifyd.Duration(500*time.Millisecond), notifyd.Duration(100*time.Millisecond)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	d := g.next()
	s.until("it is settled", func() bool {
		g.send(&notifyv1.SubscribeRequest{Extends: [][]byte{d.Token}})
		return s.rows("pending") == 1
	})
	again := g.next()
	if again.Message.Id != d.Message.Id || again.Attempt != 2 {
		t.Errorf("attempt %d of %s", again.Attempt, again.Message.Id)
	}
	g.send(&notifyv1.SubscribeRequest{Extends: [][]byte{d.Token}}) // of an attempt that is over
	g.ack(again.Token)
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending") == 0 })
}
