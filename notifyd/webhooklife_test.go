package notifyd_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
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

// A receiver that knows the ids of what it has done sees each message once, whatever it and
// the brokers go through.
func TestAReceiverThatDropsRepeatsByIDLosesAndDoublesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, faults := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
	s := newStage(t)
	small := func(c *notifyd.Config) {
		hooked(c)
		c.LeaseTime = notifyd.Duration(time.Second)
		c.MaxAttempts = 10_000
	}
	addr, stop := s.broker(small)
	_, stopSecond := s.broker(small)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	done := map[string]int{}
	var h *hook
	h = startHook(t, func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		trouble := faults.IntN(10)
		h.mu.Unlock()
		switch trouble {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 1: // killed before the work
			panic(http.ErrAbortHandler)
		}
		h.mu.Lock()
		done[r.Header.Get("webhook-id")]++
		h.mu.Unlock()
		if trouble == 2 { // killed behind the work, before the answer
			panic(http.ErrAbortHandler)
		}
	})
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, Concurrency: 8})
	published := map[string]bool{}
	for round := range 4 {
		for i := range 40 {
			published[s.publish(s.client(addr), client.Message{Topic: "orders", Body: fmt.Append(nil, round, i)})] = true
		}
		switch random.IntN(3) {
		case 0:
			h.CloseClientConnections()
		case 1:
			stopSecond()
			_, stopSecond = s.broker(small)
		case 2:
			next, stopNext := s.broker(small)
			stop()
			addr, stop = next, stopNext
		}
	}
	s.until("all delivered and gone", s.empty)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(done) != len(published) {
		t.Errorf("%d messages done, %d published", len(done), len(published))
	}
	for id := range done {
		if !published[id] {
			t.Errorf("%s was never published", id)
		}
	}
}

func TestAStoppingBrokerTakesTheAnswersOfRequestsUnderWay(t *testing.T) {
	s, c, addr, stop := newHookStage(t)
	gate := make(chan struct{})
	h := startHook(t, func(http.ResponseWriter, *http.Request) { <-gate })
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, Concurrency: 4})
	for i := range 4 {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, i)})
	}
	s.until("all under way", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.at == 4 })
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	s.until("the stopping broker gives the webhook no more", func() bool {
		_, answer := s.post(addr, "Admin/GetGroup", `{"name":"g"}`)
		g, _ := answer["group"].(map[string]any)
		list, _ := g["instances"].([]any)
		if len(list) != 1 {
			return false
		}
		_, credit := list[0].(map[string]any)["credit"]
		return !credit
	})
	close(gate)
	<-ended
	if !s.empty() {
		t.Errorf("%d messages and %d pending rows are left of 4 that were answered", s.rows("message"), s.rows("pending"))
	}
	addr, _ = s.broker(hooked)
	id := s.publish(s.client(addr), client.Message{Topic: "orders", Body: []byte("x")})
	s.until("the next one is delivered", func() bool { return len(h.requests(id)) == 1 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, all := range h.got {
		if len(all) != 1 {
			t.Errorf("%s was sent %d times", id, len(all))
		}
	}
}

func TestARequestThatHangsDoesNotHoldUpAStop(t *testing.T) {
	s, c, _, stop := newHookStage(t)
	h := startHook(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, TimeoutMs: 8_000})
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("under way", func() bool { return len(h.requests(id)) == 1 })
	stop()
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages after the stop, want the one that was not answered", n)
	}
	h.will(nil)
	s.broker(hooked)
	s.until("it comes again", func() bool { return len(h.requests(id)) >= 2 && s.empty() })
}

func TestEachBrokerPushesWhatItsShardsHold(t *testing.T) {
	s := newStage(t)
	metrics := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	one, _ := s.brokerWith(notifyd.Deps{Registerer: metrics[0]}, hooked)
	two, _ := s.brokerWith(notifyd.Deps{Registerer: metrics[1]}, hooked)
	c := s.client(one)
	s.subscribe(c, "orders", "g")
	h := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	s.until("both own shards, and have an instance of the group", func() bool {
		return s.count("SELECT COUNT(DISTINCT owner) FROM lease") == 2 && s.instances(one, "g") == 1 && s.instances(two, "g") == 1
	})
	const n = 40
	other := s.client(two)
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, "one", i)})
		s.publish(other, client.Message{Topic: "orders", Body: fmt.Append(nil, "two", i)})
	}
	s.until("all delivered and gone", func() bool { return h.ids() == 2*n && s.empty() })
	for i, r := range metrics {
		if counted(t, r, "notify_push_attempts_total", "webhook") == 0 {
			t.Errorf("broker %d has pushed nothing", i+1)
		}
	}
}

// counted is the sum of a metric over the series that have all the label values.
func counted(t *testing.T, r *prometheus.Registry, metric string, labels ...string) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				n += int(m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()))
			}
		}
	}
	return n
}

func TestAWebhookIsCountedAndRefusesNothingToStreams(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, hooked)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	h := startHook(t, status(http.StatusTeapot))
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("failures are counted with their reason", func() bool {
		return counted(t, registry, "notify_push_failures_total", "webhook", "status_4xx") > 0 && counted(t, registry, "notify_push_attempts_total", "webhook") > 0 &&
			counted(t, registry, "notify_push_duration_seconds", "webhook") > 0 && counted(t, registry, "notify_subscribers_connected", "webhook") == 1
	})
	r := s.consume(c, "g", nil)
	s.until("a stream of the same group gets it, or the webhook", func() bool { h.will(nil); return s.empty() })
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	r.stop()
}

func TestATestEventSaysInWordsWhatCameBack(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	h := startHook(t, nil)
	secret := s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, TimeoutMs: 300})
	for _, x := range []struct {
		answer http.HandlerFunc
		status uint32
		words  string
	}{
		{nil, 204, "a message would be acknowledged"},
		{status(500), 500, "a message would be sent again after a pause"},
		{status(410), 410, "the webhook would be disabled"},
		{status(302), 302, "redirects are not followed"},
		{func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "9"); w.WriteHeader(429) }, 429, "after 9s, and nothing before"},
		{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 0, "no answer within 300ms"},
	} {
		h.will(x.answer)
		if err := s.admin(c, func(a notifyv1connect.AdminClient) error {
			res, err := a.TestWebhook(t.Context(), connect.NewRequest(&notifyv1.TestWebhookRequest{Group: "g"}))
			if err != nil {
				return err
			}
			if m := res.Msg; m.Status != x.status || m.Acknowledged != (x.status == 204) || !strings.Contains(m.Words, x.words) {
				t.Errorf("%v, want status %d and %q", m, x.status, x.words)
			}
			if err := verified(h.requests(res.Msg.Id)[0], secret); err != nil {
				t.Error(err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if w := s.hookOf(c, "g"); w.Disabled || w.PausedUntilUs != 0 {
		t.Errorf("tests have changed the webhook: %v", w)
	}
}

func TestMessagesOfARemovedWebhookWaitForTheNext(t *testing.T) {
	s, c, addr, _ := newHookStage(t)
	h := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	s.until("attached", func() bool { return s.instances(addr, "g") == 1 })
	if err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		_, err := a.RemoveWebhook(t.Context(), connect.NewRequest(&notifyv1.RemoveWebhookRequest{Group: "g"}))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.until("detached", func() bool { return s.instances(addr, "g") == 0 })
	if n := s.count("SELECT COUNT(*) FROM registry_setting"); n != 0 {
		t.Errorf("%d settings are left: its secrets are still there", n)
	}
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("it waits", func() bool { return s.rows("pending") == 1 })
	next := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: next.URL})
	s.until("delivered", func() bool { return len(next.requests(id)) == 1 && s.empty() })
	if n := h.ids(); n != 0 {
		t.Errorf("%d requests to the removed one", n)
	}
}
