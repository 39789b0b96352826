package notifyd_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"
)

// outboxStore makes a store of one shard for an application's outbox.
func outboxStore(t *testing.T) *stage {
	t.Helper()
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &stage{t: t, dsn: dsn, db: db}
}

// withOutbox adds outbox-only stores to a broker's configuration, by name.
func withOutbox(stores map[string]*stage) func(*notifyd.Config) {
	return func(c *notifyd.Config) {
		for name, s := range stores {
			c.Stores[name] = notifyd.StoreConfig{DSN: s.dsn, Role: notifyd.RoleOutboxOnly}
		}
	}
}

func (s *stage) outboxIsEmpty() bool {
	return s.count("SELECT (SELECT COUNT(*) FROM outbox) + (SELECT COUNT(*) FROM message_00) + (SELECT COUNT(*) FROM pending_00)") == 0
}

func TestRowsOfSeveralOutboxStoresReachTheSameGroups(t *testing.T) {
	s, shop, bank := newStage(t), outboxStore(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop, "bank": bank}))
	c := s.client(addr)
	// Groups get other ids here than they would alone, if ids were given by each store.
	s.subscribe(c, "other", "first")
	s.subscribe(c, "orders", "mail", "points")
	want := []string{insertOutbox(t, shop.db, "orders", "", "1"), insertOutbox(t, bank.db, "orders", "", "2"), s.publish(c, client.Message{Topic: "orders"})}
	mail, points := s.consume(c, "mail", nil), s.consume(c, "points", nil)
	s.until("all are delivered and gone", func() bool {
		return mail.count() == 3 && points.count() == 3 && shop.outboxIsEmpty() && bank.outboxIsEmpty() && s.rows("message") == 0
	})
	for _, id := range want {
		if mail.got[id] != 1 || points.got[id] != 1 {
			t.Errorf("message %s was delivered %d and %d times", id, mail.got[id], points.got[id])
		}
	}
	if n := shop.count("SELECT COUNT(*) FROM dedup") + shop.count("SELECT COUNT(*) FROM half_00"); n != 0 {
		t.Errorf("%d other rows were placed in an outbox-only store", n)
	}
}

func TestAnOutboxRowOfADeadBrokerIsRelayedByAnother(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	with := withOutbox(map[string]*stage{"shop": shop})
	first, stop := s.broker(with)
	second, _ := s.broker(with)
	c := s.client(first, second)
	s.subscribe(c, "orders", "g")
	r := s.consume(c, "g", func(client.Delivery) error { return errors.New("later") })
	insertOutbox(t, shop.db, "orders", "", "a")
	s.until("delivered, and pending in its own store", func() bool { return r.count() > 0 && shop.count("SELECT COUNT(*) FROM pending_00") == 1 })
	stop()
	insertOutbox(t, shop.db, "orders", "", "b")
	s.until("the other relays", func() bool { return r.count() == 2 })
}

// A store that is away when the broker starts is opened later, learns what was declared meanwhile, and
// holds nobody up.
func TestAnOutboxStoreThatIsAwayComesLater(t *testing.T) {
	s := newStage(t)
	shop := &stage{t: t, dsn: dbtest.Schema(t)}
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	c := s.client(addr)
	admin := notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr)
	created, err := admin.CreateTopic(t.Context(), connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: "orders"}}))
	if err != nil || !slices.Equal(created.Msg.GetStoresAway(), []string{"shop"}) {
		t.Fatalf("create = %v, %v; want it to name shop", created, err)
	}
	added, err := admin.AddSubscription(t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{
		Subscription: &notifyv1.Subscription{Group: "g", Topic: "orders"}}))
	if err != nil || !slices.Equal(added.Msg.GetStoresAway(), []string{"shop"}) {
		t.Fatalf("subscription = %v, %v; want it to name shop", added, err)
	}
	r := s.consume(c, "g", nil)
	s.publish(c, client.Message{Topic: "orders"})
	s.until("the main store works", func() bool { return r.count() == 1 })

	if _, err := migrate.Migrate(t.Context(), shop.dsn, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	if shop.db, err = sql.Open("mysql", shop.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shop.db.Close() })
	insertOutbox(t, shop.db, "orders", "", "a")
	s.until("the row is delivered", func() bool { return r.count() == 2 && shop.outboxIsEmpty() })
}

func TestAStoreOfAnotherClusterIsRefused(t *testing.T) {
	s, other, shop := newStage(t), newStage(t), outboxStore(t)
	with := withOutbox(map[string]*stage{"shop": shop})
	addr, _ := s.broker(with)
	s.subscribe(s.client(addr), "orders", "g")
	leads := func() bool { return shop.count("SELECT COUNT(*) FROM registry_setting WHERE name = 'leader'") == 1 }
	s.until("the store is the cluster's", leads)

	// Another cluster does not get it,
	addr, _ = other.broker(with)
	c := other.client(addr)
	other.subscribe(c, "orders", "g", "h")
	insertOutbox(t, shop.db, "orders", "", "a")
	s.until("its own cluster relays", func() bool { return shop.count("SELECT COUNT(*) FROM outbox") == 0 })
	if n := shop.count("SELECT COUNT(*) FROM registry_group"); n != 1 {
		t.Errorf("%d groups in a store that is another cluster's, want the one of its own", n)
	}
	// and it cannot be a main store.
	b, err := notifyd.New(notifyd.Config{Listen: "127.0.0.1:0", Stores: map[string]notifyd.StoreConfig{"a": {DSN: shop.dsn}}}, notifyd.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := b.Run(ctx); err == nil || !strings.Contains(err.Error(), "outbox-only store of the cluster") {
		t.Errorf("run = %v", err)
	}
}

func TestRejectedRowsOfAllStoresAreListed(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	for range 3 {
		insertOutbox(t, s.db, "unknown", "", "x")
		insertOutbox(t, shop.db, "unknown", "", "x")
	}
	s.until("all are rejected", func() bool {
		return s.count("SELECT COUNT(*) FROM outbox_rejected") == 3 && shop.count("SELECT COUNT(*) FROM outbox_rejected") == 3
	})
	admin := notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr)
	var names []string
	for after := ""; ; {
		res, err := admin.ListRejected(t.Context(), connect.NewRequest(&notifyv1.ListRejectedRequest{After: after, Limit: 2}))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.Msg.GetRejected() {
			names = append(names, r.GetStore())
		}
		if after = res.Msg.GetNext(); after == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "a", "a", "shop", "shop", "shop"}) {
		t.Errorf("listed of stores %q", names)
	}
	s.subscribe(s.client(addr), "unknown", "g")
	if _, err := admin.ResubmitRejected(t.Context(), connect.NewRequest(&notifyv1.ResubmitRejectedRequest{Store: "shop", Seq: 1})); err != nil {
		t.Fatal(err)
	}
	s.until("it is relayed in its own store", func() bool { return shop.count("SELECT COUNT(*) FROM pending_00") == 1 })
}

// The broker that declares knows nothing of the store, so it cannot bring it there.
func TestARowOfATopicNotYetInForceInItsStoreIsNotLost(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	s.broker(withOutbox(map[string]*stage{"shop": shop}))
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.until("the store is in use", func() bool { return shop.count("SELECT COUNT(*) FROM lease WHERE expires_at > 0") == 1 })
	s.subscribe(c, "orders", "g")
	id := insertOutbox(t, shop.db, "orders", "", "a")
	s.until("relayed, and waiting for the group", func() bool { return shop.count("SELECT COUNT(*) FROM outbox") == 0 })
	r := s.consume(c, "g", nil)
	other := s.publish(c, client.Message{Topic: "orders"})
	s.until("delivered", func() bool { return r.count() == 2 })
	if r.got[id] != 1 || r.got[other] != 1 {
		t.Errorf("delivered %v", r.got)
	}
}
