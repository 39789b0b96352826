package notifyd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

func adminOf(addr string) notifyv1connect.AdminClient {
	return notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr)
}

// add declares a subscription; its topic must be there.
func (s *stage) add(addr string, sub *notifyv1.Subscription) {
	s.t.Helper()
	if _, err := adminOf(addr).AddSubscription(s.t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: sub})); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) update(addr string, r *notifyv1.UpdateSubscriptionRequest) *notifyv1.Subscription {
	s.t.Helper()
	res, err := adminOf(addr).UpdateSubscription(s.t.Context(), connect.NewRequest(r))
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Msg.GetSubscription()
}

func ptr[T any](v T) *T { return &v }

func TestAGroupGetsWhatItsFilterLetsThroughAndTheRestIsDeleted(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders")
	s.add(addr, &notifyv1.Subscription{Group: "eu", Topic: "orders", Filter: `headers.region == "eu"`})
	s.add(addr, &notifyv1.Subscription{Group: "not-eu", Topic: "orders", Filter: `headers.region != "eu" && key != "9"`})
	eu, rest := s.consume(c, "eu", nil), s.consume(c, "not-eu", nil)
	want := map[string]*receiver{}
	for i := range 10 {
		want[s.publish(c, client.Message{Topic: "orders", Key: fmt.Sprint(i), Headers: map[string]string{"region": "eu"}})] = eu
		want[s.publish(c, client.Message{Topic: "orders", Key: fmt.Sprint(i)})] = rest // no region at all
	}
	s.until("delivered and gone", func() bool { return eu.count() == 10 && rest.count() == 9 && s.rows("message")+s.rows("pending") == 0 })
	for _, r := range []*receiver{eu, rest} {
		for id := range r.got {
			if want[id] != r {
				t.Errorf("message %s came to the wrong group", id)
			}
		}
	}
}

func TestAMessageForWhichAFilterFailsIsDeliveredAndCounted(t *testing.T) {
	s := newStage(t)
	reg := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: reg}, nil)
	c := s.client(addr)
	s.subscribe(c, "orders")
	s.add(addr, &notifyv1.Subscription{Group: "g", Topic: "orders", Filter: `int(headers.size) > 3`})
	r := s.consume(c, "g", nil)
	s.publish(c, client.Message{Topic: "orders", Headers: map[string]string{"size": "1"}})
	id := s.publish(c, client.Message{Topic: "orders", Headers: map[string]string{"size": "large"}})
	s.until("delivered and gone", func() bool { return r.count() == 1 && s.rows("message")+s.rows("pending") == 0 })
	if r.got[id] != 1 {
		t.Errorf("delivered %v, want %s", r.got, id)
	}
	want := `# HELP notify_filter_errors_total Messages for which a subscription's filter failed; they are delivered.
# TYPE notify_filter_errors_total counter
notify_filter_errors_total{group="g",topic="orders"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "notify_filter_errors_total"); err != nil {
		t.Error(err)
	}
}

func TestABadDefinitionIsRefusedInOneLineAndDeclaresNothing(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders")
	for want, sub := range map[string]*notifyv1.Subscription{
		`filter: column 16: `:                       {Filter: `headers.region = "eu"`},
		`filter: it is of type string, want bool`:   {Filter: `key`},
		`ack_wait: want 100ms to 12h0m0s`:           {Delivery: &notifyv1.DeliverySettings{AckWaitMs: 99}},
		`retry_min: 2s is above retry_max, 1s`:      {Delivery: &notifyv1.DeliverySettings{RetryMinMs: 2000, RetryMaxMs: 1000}},
		`max_age: want 1ms to 8784h0m0s`:            {Delivery: &notifyv1.DeliverySettings{MaxAgeMs: 1 << 63}},
		`mode: want MODE_CLUSTER or MODE_BROADCAST`: {Mode: 7},
		`retry_max: want 1ms to 24h0m0s, or 0 for `: {Delivery: &notifyv1.DeliverySettings{RetryMaxMs: 90_000_000}},
	} {
		sub.Group, sub.Topic = "g", "orders"
		_, err := adminOf(addr).AddSubscription(t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: sub}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) || strings.ContainsRune(err.Error(), '\n') {
			t.Errorf("add = %v, want %q", err, want)
		}
	}
	if n := s.count("SELECT COUNT(*) FROM registry_group"); n != 0 {
		t.Errorf("%d groups", n)
	}
}

func TestAnInstanceThatTakesASubscriptionForSomethingElseIsShownTheDifference(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	s.subscribe(s.client(one), "orders")
	s.add(one, &notifyv1.Subscription{Group: "g", Topic: "orders", Filter: `key == "a"`, Delivery: &notifyv1.DeliverySettings{AckWaitMs: 1000}})
	run := func(addr string, subs ...client.Subscription) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		con, err := s.client(addr).NewConsumer(client.ConsumerConfig{Group: "g", Subscriptions: subs, Handler: func(context.Context, client.Delivery) error { cancel(); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return con.Run(ctx)
	}
	refused := func(err error, reason client.Reason, want string) {
		t.Helper()
		var e *client.Error
		if !errors.As(err, &e) || e.Reason != reason || !strings.Contains(e.Message, want) {
			t.Errorf("%v; want %s with %s", err, reason, want)
		}
	}
	same := client.Subscription{Topic: "orders", Filter: `key == "a"`, AckWait: time.Second}
	s.publish(s.client(one), client.Message{Topic: "orders", Key: "a"})
	if err := run(one, same); err != nil {
		t.Errorf("the same definition: %v", err)
	}
	refused(run(two, client.Subscription{Topic: "orders", Filter: `key == "b"`, MaxAttempts: 3}), client.ReasonDefinedOtherwise,
		`(yours / the server's): filter: "key == \"b\"" / "key == \"a\""; ack_wait: the broker's / 1s; max_attempts: 3 / the broker's; `)
	refused(run(two, client.Subscription{Topic: "other"}), client.ReasonUnknownSubscription, `notify sub add --group g --topic other`)

	// What is declared through one broker counts at the other at once.
	if sub := s.update(one, &notifyv1.UpdateSubscriptionRequest{Group: "g", Topic: "orders", Filter: ptr("")}); sub.GetVersion() != 2 || sub.GetFilter() != "" || sub.GetDelivery().GetAckWaitMs() != 1000 {
		t.Errorf("updated to %v", sub)
	}
	s.publish(s.client(one), client.Message{Topic: "orders"})
	same.Filter = ""
	if err := run(two, same); err != nil {
		t.Errorf("the changed definition: %v", err)
	}
	add := func(sub *notifyv1.Subscription) error {
		_, err := adminOf(two).AddSubscription(t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: sub}))
		return err
	}
	err := add(&notifyv1.Subscription{Group: "g", Topic: "orders", Delivery: &notifyv1.DeliverySettings{AckWaitMs: 2000}})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "ack_wait: 2s / 1s") {
		t.Errorf("another one: %v", err)
	}
	err = add(&notifyv1.Subscription{Group: "g", Topic: "orders", Delivery: &notifyv1.DeliverySettings{AckWaitMs: 1000}})
	if connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("the same again: %v", err)
	}
}

func TestSettingsOfASubscriptionGoBeforeTheBrokers(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.AckWait = notifyd.Duration(time.Hour) })
	c := s.client(addr)
	s.subscribe(c, "hasty")
	s.subscribe(c, "patient", "g")
	s.add(addr, &notifyv1.Subscription{Group: "g", Topic: "hasty", Delivery: &notifyv1.DeliverySettings{
		AckWaitMs: 200, RetryMinMs: 1, RetryMaxMs: 10, MaxAttempts: 3}})
	g := s.attach(addr, "g")
	s.publish(c, client.Message{Topic: "patient"})
	if d := g.next(); d.GetAckWaitMs() != uint32(time.Hour.Milliseconds()) {
		t.Errorf("ack wait %d ms, want the broker's", d.GetAckWaitMs())
	}
	s.publish(c, client.Message{Topic: "hasty"})
	for attempt := uint32(1); attempt <= 3; attempt++ {
		if d := g.next(); d.GetAttempt() != attempt || d.GetAckWaitMs() != 200 || d.GetMessage().GetTopic() != "hasty" {
			t.Errorf("delivery %v, want attempt %d of the hasty one", d, attempt)
		}
	}
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	if got := s.dead("CONCAT(reason, attempts)"); got[0] != "max_attempts3" {
		t.Errorf("dead letter %q", got)
	}
	// A change counts for what is tried again from then on.
	s.update(addr, &notifyv1.UpdateSubscriptionRequest{Group: "g", Topic: "hasty", MaxAttempts: ptr(uint32(1)), AckWaitMs: ptr(uint32(0))})
	s.publish(c, client.Message{Topic: "hasty"})
	d := g.next()
	if d.GetAckWaitMs() != uint32(time.Hour.Milliseconds()) {
		t.Errorf("ack wait %d ms, want the broker's again", d.GetAckWaitMs())
	}
	g.nack(&notifyv1.Nack{Token: d.GetToken()})
	s.until("another dead letter, after one attempt", func() bool { return s.rows("dead_letter") == 2 })
}

func TestARemovedSubscriptionStillDeliversWhatWaits(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	id := s.publish(c, client.Message{Topic: "orders"})
	s.until("it waits", func() bool { return s.rows("pending") == 1 })
	remove := func() error {
		_, err := adminOf(addr).RemoveSubscription(t.Context(), connect.NewRequest(&notifyv1.RemoveSubscriptionRequest{Group: "g", Topic: "orders"}))
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	s.publish(c, client.Message{Topic: "orders"})
	r := s.consume(c, "g", nil)
	s.until("delivered, and nothing is left", func() bool { return r.count() == 1 && s.rows("message")+s.rows("pending") == 0 })
	if r.got[id] != 1 {
		t.Errorf("delivered %v, want %s", r.got, id)
	}
	if err := remove(); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("removed twice: %v", err)
	}
}

func TestASubscriptionsSettingsAreInForceInEveryStore(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	c := s.client(addr)
	s.subscribe(c, "orders")
	s.add(addr, &notifyv1.Subscription{Group: "g", Topic: "orders", Filter: `headers.kind == "a"`})
	// A setting of a newer program is carried along.
	if _, err := s.db.Exec(`UPDATE registry_subscription SET settings = JSON_SET(settings, '$.later', 'x')`); err != nil {
		t.Fatal(err)
	}
	s.update(addr, &notifyv1.UpdateSubscriptionRequest{Group: "g", Topic: "orders", MaxAttempts: ptr(uint32(7))})
	var main, copied string
	for db, into := range map[*stage]*string{s: &main, shop: &copied} {
		if err := db.db.QueryRow("SELECT settings FROM registry_subscription").Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	if main != copied || !strings.Contains(main, `"later"`) || !strings.Contains(main, `"max_attempts":7`) {
		t.Errorf("settings %s, and copied %s", main, copied)
	}
	r := s.consume(c, "g", nil)
	insertOutbox(t, shop.db, "orders", `{"kind":"b"}`, "1")
	id := insertOutbox(t, shop.db, "orders", `{"kind":"a"}`, "2")
	s.until("delivered and gone", func() bool { return r.count() == 1 && shop.outboxIsEmpty() })
	if r.got[id] != 1 {
		t.Errorf("delivered %v, want %s", r.got, id)
	}
}
