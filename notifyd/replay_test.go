package notifyd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// history makes n messages of a topic as the mirror has them, of a day ago.
func history(topic string, n int) []client.Message {
	ms := make([]client.Message, n)
	for i := range ms {
		ms[i] = client.Message{ID: uuid.NewString(), Topic: topic, Key: fmt.Sprint("k", i%7), Headers: map[string]string{"n": fmt.Sprint(i % 10)},
			Body: fmt.Append(nil, i), BornAt: time.Now().Add(-24 * time.Hour).Truncate(time.Microsecond)}
	}
	return ms
}

// forbid makes any INSERT of a message, of a pending row or of a dead letter an error.
func (s *stage) forbid() {
	for i := range 8 {
		for _, table := range []string{"message", "pending", "dead_letter"} {
			s.exec(fmt.Sprintf("CREATE TRIGGER no_%s_%02d BEFORE INSERT ON %s_%02d FOR EACH ROW SIGNAL SQLSTATE '45000'", table, i, table, i))
		}
	}
}

// outcomes of a replay, by index.
type outcomes struct {
	mu  sync.Mutex
	got map[int]client.ReplayOutcome
	dup int
}

func (o *outcomes) told(x client.ReplayOutcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.got == nil {
		o.got = map[int]client.ReplayOutcome{}
	}
	if _, ok := o.got[x.Index]; ok {
		o.dup++
	}
	o.got[x.Index] = x
}

func (o *outcomes) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.got)
}

func TestAReplayIsFilteredRetriedMarkedAndNeverStored(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, func(c *notifyd.Config) {
		c.RetryMin, c.RetryMax = notifyd.Duration(100*time.Millisecond), notifyd.Duration(100*time.Millisecond)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "other")
	s.add(addr, &notifyv1.Subscription{Group: "books", Topic: "orders", Filter: `headers["n"] != "9"`,
		Delivery: &notifyv1.DeliverySettings{MaxAttempts: 3, AckWaitMs: 500, MaxAgeMs: 3_600_000}})
	s.forbid()
	other := s.consume(c, "other", nil)
	books := s.consume(c, "books", func(d client.Delivery) error {
		switch n := d.Headers["n"]; {
		case !d.Replayed || d.BornAt.After(time.Now().Add(-time.Hour)):
			return client.Reject(fmt.Errorf("not marked, or not old: %+v", d))
		case n == "1":
			return client.Reject(errors.New("no such book"))
		case n == "2":
			return errors.New("always")
		case n == "3" && d.Attempt == 1:
			return errors.New("at first")
		case n == "4" && d.Attempt == 1:
			return client.ErrUnsettled
		}
		return nil
	})
	const n = 200
	ms := history("orders", n)
	var out outcomes
	if err := c.Replay(t.Context(), "books", ms, out.told); err != nil {
		t.Fatal(err)
	}
	want := map[string]client.ReplayOutcome{ // of the messages that end with the digit; others are acknowledged at once
		"9": {Outcome: client.ReplayPassedOver}, "1": {Outcome: client.ReplayRejected, Attempts: 1, Error: "rejected: no such book"},
		"2": {Outcome: client.ReplayMaxAttempts, Attempts: 3, Error: "nack: always"}, "3": {Outcome: client.ReplayAcknowledged, Attempts: 2}, "4": {Outcome: client.ReplayAcknowledged, Attempts: 2},
	}
	for i := range n {
		w, ok := want[fmt.Sprint(i%10)]
		if !ok {
			w = client.ReplayOutcome{Outcome: client.ReplayAcknowledged, Attempts: 1}
		}
		w.Index = i
		got := out.got[i]
		if w.Outcome == client.ReplayAcknowledged { // a loaded machine may need more
			got.Attempts = max(1, min(got.Attempts, w.Attempts))
		}
		if got != w {
			t.Errorf("message %d: %+v, want %+v", i, out.got[i], w)
		}
	}
	if books.count() != n*9/10 || other.count() != 0 || out.dup != 0 {
		t.Errorf("%d messages came, %d to another group; %d outcomes repeated", books.count(), other.count(), out.dup)
	}
	if got, err := testutil.GatherAndCount(registry, "notify_delivery_latency_seconds"); got != 0 || err != nil {
		t.Errorf("a replay is in the latency of deliveries: %d series", got)
	}
	if got, err := testutil.GatherAndCount(registry, "notify_replayed_messages_total"); got != 4 || err != nil {
		t.Errorf("%d series of notify_replayed_messages_total, want 4 outcomes", got)
	}
}

func TestAReplayLeavesRoomForWhatIsLive(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.AckWait = notifyd.Duration(time.Minute) })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	stream := raw(addr).Subscribe(t.Context())
	defer stream.CloseRequest()
	if err := stream.Send(&notifyv1.SubscribeRequest{Attach: &notifyv1.Attach{Group: "g"}, Credit: 8}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	replayed, live := [][]byte{}, 0
	go func() {
		for {
			res, err := stream.Receive()
			if err != nil {
				return
			}
			mu.Lock()
			for _, d := range res.GetDeliveries() {
				if d.GetReplayed() {
					replayed = append(replayed, d.GetToken())
				} else {
					live++
				}
			}
			mu.Unlock()
		}
	}()
	var out outcomes
	done := make(chan error, 1)
	go func() { done <- c.Replay(t.Context(), "g", history("orders", 30), out.told) }()
	seen := func() (int, int) { mu.Lock(); defer mu.Unlock(); return len(replayed), live }
	s.until("the replay has what it may take", func() bool { n, _ := seen(); return n >= 6 })
	s.publish(c, client.Message{Topic: "orders"})
	s.publish(c, client.Message{Topic: "orders"})
	s.until("what is live comes though nothing was acknowledged", func() bool { _, n := seen(); return n == 2 })
	if n, _ := seen(); n != 6 {
		t.Errorf("%d of 8 places were taken by the replay, want 6", n)
	}
	s.until("the rest comes as there is room", func() bool {
		mu.Lock()
		acks := replayed
		replayed = nil
		mu.Unlock()
		if len(acks) > 0 {
			if err := stream.Send(&notifyv1.SubscribeRequest{Acks: acks}); err != nil {
				t.Fatal(err)
			}
		}
		return out.count() == 30
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAReplayGoesOnAtAnotherBrokerWithWhatHasNoOutcome(t *testing.T) {
	s := newStage(t)
	one, stop := s.broker(nil)
	two, _ := s.broker(nil)
	c := s.client(one, two)
	s.subscribe(c, "orders", "g")
	var mu sync.Mutex
	half := make(chan struct{})
	held := 0
	g := s.consume(c, "g", func(d client.Delivery) error {
		if d.Broker == one && len(d.Body) > 0 && d.Body[len(d.Body)-1]%2 == 1 {
			mu.Lock()
			if held++; held == 50 {
				close(half)
			}
			mu.Unlock()
			return client.ErrUnsettled
		}
		return nil
	})
	s.until("the group is attached to both", func() bool { return s.instances(one, "g") == 1 && s.instances(two, "g") == 1 })
	var out outcomes
	done := make(chan error, 1)
	first := s.client(one, two)
	go func() { done <- first.Replay(t.Context(), "g", history("orders", 100), out.told) }()
	select {
	case <-half:
	case <-time.After(patience):
		t.Fatal("the first broker did not push")
	}
	s.until("the others are acknowledged", func() bool { return out.count() == 50 })
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.count() != 100 || out.dup != 0 || g.count() != 100 {
		t.Errorf("%d outcomes, %d repeated, %d messages", out.count(), out.dup, g.count())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	more := 0
	for _, n := range g.got {
		more += n - 1
	}
	if more != 50 {
		t.Errorf("%d deliveries were repeated, want the 50 that had no outcome", more)
	}
}

func TestAReplayReachesWebhooksAndSaysWhatItIs(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	h := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	ms := history("orders", 5)
	h.will(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("webhook-id") == ms[0].ID && r.Header.Get("Notify-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	live := s.publish(c, client.Message{Topic: "orders"})
	var out outcomes
	if err := c.Replay(t.Context(), "g", ms, out.told); err != nil {
		t.Fatal(err)
	}
	s.until("the live one is there too", func() bool { return h.ids() == 6 })
	if out.got[0].Attempts != 2 || h.requests(ms[1].ID)[0].header.Get("Notify-Replayed") != "true" || h.requests(live)[0].header["Notify-Replayed"] != nil {
		t.Errorf("outcome %+v, headers %v and %v", out.got[0], h.requests(ms[1].ID)[0].header, h.requests(live)[0].header)
	}
}

func TestAReplayThatCannotBeIsRefusedAndOneThatIsLeftIsForgotten(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, nil)
	replaying := func(n int) func() bool {
		want := fmt.Sprintf("# HELP notify_replaying_messages Messages of replays that have no outcome yet.\n# TYPE notify_replaying_messages gauge\nnotify_replaying_messages %d\n", n)
		return func() bool {
			return testutil.GatherAndCompare(registry, strings.NewReader(want), "notify_replaying_messages") == nil
		}
	}
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	s.subscribe(c, "news", "h")
	s.add(addr, &notifyv1.Subscription{Group: "all", Topic: "news", Mode: notifyv1.Mode_MODE_BROADCAST})
	bad := client.Message{ID: "x", Topic: "orders"}
	for _, x := range []struct {
		group string
		ms    []client.Message
		want  string
	}{
		{"missing", history("orders", 1), `group "missing" is not declared`},
		{"g", history("news", 1), `group "g" does not subscribe to topic "news"`},
		{"all", history("news", 1), "by broadcast"},
		{"g", []client.Message{bad}, "messages[0].id: not a UUID"},
	} {
		err := c.Replay(t.Context(), x.group, x.ms, func(client.ReplayOutcome) { t.Error("an outcome") })
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.group, err, x.want)
		}
	}
	many := &notifyv1.ReplayRequest{Group: "g", Messages: make([]*notifyv1.Message, 1001)}
	err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		stream, err := a.Replay(t.Context(), connect.NewRequest(many))
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "messages: too many: size 1001, limit 1000") {
		t.Errorf("too many: %v", err)
	}

	// Nobody is attached: it waits. When the caller leaves, nothing of it is pushed any more.
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Replay(ctx, "g", history("orders", 3), func(client.ReplayOutcome) { t.Error("an outcome") })
	}()
	s.until("the broker has it", replaying(3))
	leave()
	if err := <-done; err == nil {
		t.Error("Replay returned nil although its caller left")
	}
	s.until("it is forgotten", replaying(0))
	g := s.consume(c, "g", nil)
	id := s.publish(c, client.Message{Topic: "orders"})
	s.until("what is live comes", func() bool { return g.count() == 1 })
	if g.last.ID != id {
		t.Errorf("got %+v", g.last)
	}
}
