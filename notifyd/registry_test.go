package notifyd_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/store"
)

// exec runs statements on the store.
func (s *stage) exec(statements ...string) {
	s.t.Helper()
	for _, q := range statements {
		if _, err := s.db.Exec(q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}
}

// A store that is restored from a backup, or failed over, may have lost the latest changes of the registry.
// Settling goes on by what is in force there then.
func TestARegistryThatWentBackDoesNotStopSettling(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	s.subscribe(c, "later", "h")
	r := s.consume(c, "g", nil)
	s.publish(c, client.Message{Topic: "orders"})
	s.until("delivered and gone", func() bool { return r.count() == 1 && s.rows("message") == 0 })
	s.exec("DELETE FROM registry_topic WHERE name = 'later'", "DELETE FROM registry_subscription WHERE topic = 'later'",
		"DELETE FROM registry_group WHERE name = 'h'", "UPDATE epoch SET registry_version = registry_version - 2")
	s.publish(c, client.Message{Topic: "orders"})
	s.until("delivered and gone by the older registry", func() bool { return r.count() == 2 && s.rows("message")+s.rows("pending") == 0 })
	s.until("what was lost is not declared", func() bool {
		_, err := c.Publish(t.Context(), client.Message{Topic: "later"}, client.PublishOptions{})
		var e *client.Error
		return errors.As(err, &e) && e.Reason == client.ReasonUnknownTopic
	})
}

// The main store lost a change that an outbox-only store has: its groups may mean others now.
func TestAStoreThatKnowsMoreThanTheMainStoreIsLeftAsItIs(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	c := s.client(addr)
	s.subscribe(c, "orders", "g", "h")
	s.until("the store has it", func() bool { return shop.count("SELECT COUNT(*) FROM registry_group") == 2 })
	s.exec("DELETE s FROM registry_subscription s JOIN registry_group g ON g.id = s.group_id WHERE g.name = 'h'",
		"DELETE FROM registry_group WHERE name = 'h'", "UPDATE epoch SET registry_version = registry_version - 1", "ALTER TABLE registry_group AUTO_INCREMENT = 2")
	add := func(group string) (away []string) {
		err := c.Admin(t.Context(), func(a notifyv1connect.AdminClient) error {
			r, err := a.AddSubscription(t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: group, Topic: "orders"}}))
			away = r.Msg.GetStoresAway()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return away
	}
	for _, group := range []string{"i", "j", "k"} { // i has the id that h has there
		if away := add(group); !slices.Equal(away, []string{"shop"}) {
			t.Errorf("group %s: in force everywhere but in %q", group, away)
		}
	}
	if n := shop.count("SELECT COUNT(*) FROM registry_group WHERE name IN ('g', 'h')"); n != 2 {
		t.Errorf("%d of its groups are left", n)
	}
}

func TestAStoreOfAnOlderSchemaIsNotUsed(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	shop.exec("DELETE FROM schema_version WHERE version_id > 1")
	if _, err := store.Open(t.Context(), "shop", shop.dsn); err == nil || !strings.Contains(err.Error(), "schema version 1") || !strings.Contains(err.Error(), "notifyd migrate") {
		t.Errorf("open: %v", err)
	}
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	r := s.consume(c, "g", nil)
	s.publish(c, client.Message{Topic: "orders"})
	s.until("the main store works", func() bool { return r.count() == 1 })
	if n := shop.count("SELECT COUNT(*) FROM lease WHERE expires_at > 0"); n != 0 {
		t.Errorf("%d shards of it were taken", n)
	}
}

// One row that can be no message, and one that cannot be judged, hold no other up.
func TestNoOutboxRowHoldsAnotherUp(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.AutoCreateTopics = true })
	c := s.client(addr)
	s.subscribe(c, "a.b", "g")
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"a.b", "a_b", "a.b"} { // the second is one with the first to Kafka
		insertOutbox(t, tx, topic, "", "x")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r := s.consume(c, "g", nil)
	s.until("the others are delivered, and it is rejected", func() bool {
		return r.count() == 2 && s.count("SELECT COUNT(*) FROM outbox_rejected WHERE reason LIKE '%Kafka%'") == 1
	})
}
