package notifyd_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// down asks a broker whether it takes a group for down.
func (s *stage) down(c *client.Client, group string) (down bool) {
	s.t.Helper()
	err := c.Admin(s.t.Context(), func(a notifyv1connect.AdminClient) error {
		r, err := a.GetGroup(s.t.Context(), connect.NewRequest(&notifyv1.GetGroupRequest{Name: group}))
		if err == nil {
			down = r.Msg.GetGroup().GetDown()
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return down
}

// pending asks a broker for its groups' pending rows.
func (s *stage) pending(c *client.Client) map[string]uint64 {
	s.t.Helper()
	rows := map[string]uint64{}
	err := c.Admin(s.t.Context(), func(a notifyv1connect.AdminClient) error {
		r, err := a.ListGroups(s.t.Context(), connect.NewRequest(&notifyv1.ListGroupsRequest{}))
		if err != nil {
			return err
		}
		for _, g := range r.Msg.GetGroups() {
			rows[g.GetName()] = g.GetPending()
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// untouched counts pending rows of messages that were never attempted.
func (s *stage) untouched() (n int) {
	for i := range 8 {
		n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM pending_%02d WHERE attempts = 0", i))
	}
	return n
}

func TestAGroupThatFailsIsLeftAloneUntilItIsBack(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin, c.RetryMax = notifyd.Duration(100*time.Millisecond), notifyd.Duration(100*time.Millisecond)
		c.MaxAttempts = 10_000
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "bad", "good")
	var works atomic.Bool
	var calls atomic.Int64
	bad := s.consume(c, "bad", func(client.Delivery) error {
		calls.Add(1)
		if works.Load() {
			return nil
		}
		return errors.New("database away")
	})
	good := s.consume(c, "good", nil)
	published := 0
	s.until("the group is down", func() bool {
		s.publish(c, client.Message{Topic: "orders"})
		published++
		return s.down(c, "bad")
	})
	before, left := calls.Load(), s.untouched()
	const more = 300
	for range more {
		s.publish(c, client.Message{Topic: "orders"})
		published++
	}
	s.until("its messages wait without an attempt, the other group has all", func() bool {
		return s.untouched() >= left+more-20 && good.count() == published
	})
	s.until("a list of groups says how many wait", func() bool {
		rows := s.pending(c)
		return rows["bad"] >= uint64(left+more-20) && rows["good"] == 0
	})
	if n := calls.Load() - before; n > 20 {
		t.Errorf("%d attempts while it was down", n)
	}
	works.Store(true)
	s.until("it is back, and everything is delivered and gone", func() bool {
		return !s.down(c, "bad") && bad.count() == published && s.rows("message")+s.rows("pending") == 0
	})
	for id, n := range good.got {
		if n != 1 {
			t.Errorf("message %s came %d times to the group that works", id, n)
		}
	}
}
