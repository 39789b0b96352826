package notifyd_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

func (s *stage) dropGroup(addr, name string) {
	s.t.Helper()
	if _, err := adminOf(addr).DropGroup(s.t.Context(), connect.NewRequest(&notifyv1.DropGroupRequest{Name: name})); err != nil {
		s.t.Fatal(err)
	}
}

func TestADroppedGroupLeavesNothingBehindAndTakesNothingOfOthers(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	c := s.client(addr)
	s.subscribe(c, "orders", "gone", "kept")
	s.subscribe(c, "only", "gone")
	for range 20 {
		s.publish(c, client.Message{Topic: "orders"})
		s.publish(c, client.Message{Topic: "only"})
		insertOutbox(t, shop.db, "only", "", "x")
	}
	s.until("all wait", func() bool { return s.rows("pending") == 60 && shop.count("SELECT COUNT(*) FROM pending_00") == 20 })
	g := s.attach(addr, "gone")
	g.nack(&notifyv1.Nack{Token: g.next().GetToken(), Reject: true})
	s.until("a dead letter", func() bool { return s.rows("dead_letter")+shop.count("SELECT COUNT(*) FROM dead_letter_00") == 1 })
	s.dropGroup(addr, "gone")
	s.until("only the other group's are left", func() bool {
		return s.rows("message") == 20 && s.rows("pending") == 20 && s.rows("dead_letter") == 0 && shop.count("SELECT COUNT(*) FROM dead_letter_00") == 0 && shop.outboxIsEmpty()
	})
	for {
		if _, err := g.stream.Receive(); err != nil {
			if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "dropped") {
				t.Errorf("its stream ended with %v", err)
			}
			break
		}
	}
	// Its name may be used again; the new group has nothing of the old one.
	s.subscribe(c, "again", "gone")
	id := s.publish(c, client.Message{Topic: "again"})
	again, kept := s.consume(c, "gone", nil), s.consume(c, "kept", nil)
	s.until("all delivered and gone", func() bool { return again.count() == 1 && kept.count() == 20 && s.rows("message") == 0 })
	if again.got[id] != 1 {
		t.Errorf("delivered %v", again.got)
	}
	if n := s.count("SELECT COUNT(DISTINCT id) FROM registry_group"); n != 3 {
		t.Errorf("%d group ids, want three: none is used again", n)
	}
}

func TestANewOwnerSweepsAGroupDroppedBefore(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "gone")
	for range 10 {
		s.publish(c, client.Message{Topic: "orders"})
	}
	s.until("all wait", func() bool { return s.rows("pending") == 10 })
	stop()
	for _, q := range []string{"DELETE FROM registry_subscription", "UPDATE registry_group SET name = NULL, dropped_at = 1", "UPDATE epoch SET registry_version = registry_version + 1"} {
		if _, err := s.db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	s.broker(nil)
	s.until("nothing is left", func() bool { return s.rows("message")+s.rows("pending") == 0 })
}
