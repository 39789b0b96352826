package notifyd_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// hooked is a configuration that allows webhooks on loopback.
func hooked(c *notifyd.Config) {
	c.EgressNetworks = []string{"127.0.0.0/8"}
	c.SecretKeys = []string{secretKey("k1", 1)}
	c.RetryMin, c.RetryMax = notifyd.Duration(100*time.Millisecond), notifyd.Duration(200*time.Millisecond)
}

func secretKey(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

// A hook is a receiver of webhooks that notes what it got, by webhook-id.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	got      map[string][]request
	answer   http.HandlerFunc
	at, most int // requests under way now, and at most
}

type request struct {
	header http.Header
	body   []byte
	at     time.Time
}

// newHookStage is a stage with a broker that pushes over HTTP to receivers here, and the group g of the topic orders.
func newHookStage(t *testing.T) (s *stage, c *client.Client, addr string, stop func()) {
	t.Helper()
	s = newStage(t)
	addr, stop = s.broker(hooked)
	c = s.client(addr)
	s.subscribe(c, "orders", "g")
	return s, c, addr, stop
}

// startHook starts a receiver that answers as told, by status 204 if answer is nil.
func startHook(t *testing.T, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{got: map[string][]request{}, answer: answer}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	id := r.Header.Get("webhook-id")
	h.got[id] = append(h.got[id], request{r.Header, body, time.Now()})
	h.at++
	h.most = max(h.most, h.at)
	answer := h.answer
	h.mu.Unlock()
	defer func() { h.mu.Lock(); h.at--; h.mu.Unlock() }()
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, r)
}

// will changes the answer.
func (h *hook) will(answer http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// requests are those of a message; ids are the messages.
func (h *hook) requests(id string) []request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]request(nil), h.got[id]...)
}

func (h *hook) ids() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func (s *stage) admin(c *client.Client, f func(notifyv1connect.AdminClient) error) error {
	return c.Admin(s.t.Context(), f)
}

// setHook gives a group a webhook and returns its secret.
func (s *stage) setHook(c *client.Client, req *notifyv1.SetWebhookRequest) string {
	s.t.Helper()
	var secret string
	if err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		res, err := a.SetWebhook(s.t.Context(), connect.NewRequest(req))
		if err == nil {
			secret = res.Msg.GetSecret()
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func (s *stage) hookOf(c *client.Client, group string) (w *notifyv1.Webhook) {
	s.t.Helper()
	if err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		res, err := a.GetWebhook(s.t.Context(), connect.NewRequest(&notifyv1.GetWebhookRequest{Group: group}))
		if err == nil {
			w = res.Msg.GetWebhook()
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return w
}

func (s *stage) empty() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 }

// pendingError is the last error of some pending row, or "".
func (s *stage) pendingError() (text string) {
	s.t.Helper()
	for i := range 8 {
		rows, err := s.db.Query(fmt.Sprintf("SELECT last_error FROM pending_%02d WHERE attempts > 0", i))
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			if err := rows.Scan(&text); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			s.t.Fatal(err)
		}
	}
	return text
}

func verified(r request, secret string) error {
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return v.Verify(r.body, r.header)
}

func TestAGroupIsPushedToOverHTTPWithASignedCloudEvent(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(hooked)
	c := s.client(addr)
	s.subscribe(c, "orders", "billing")
	h := startHook(t, nil)
	secret := s.setHook(c, &notifyv1.SetWebhookRequest{Group: "billing", Url: h.URL + "/hook?x=1"})
	id := s.publish(c, client.Message{Topic: "orders", Key: "42", Headers: map[string]string{"content-type": "application/json", "tenant id": "ü"}, Body: []byte(`{"total": 12}`)})
	s.until("received, and its rows are gone", func() bool { return len(h.requests(id)) == 1 && s.empty() })
	got := h.requests(id)[0]
	if err := verified(got, secret); err != nil {
		t.Error(err)
	}
	event, err := binding.ToEvent(context.Background(), cehttp.NewMessage(got.header, io.NopCloser(bytes.NewReader(got.body))))
	if err != nil {
		t.Fatal(err)
	}
	if event.ID() != id || event.Type() != "orders" || event.Source() != "/notify/topics/orders" || event.Extensions()["partitionkey"] != "42" ||
		event.DataContentType() != "application/json" || string(event.Data()) != `{"total": 12}` {
		t.Errorf("event %s", event)
	}
	if got.header.Get("notify-attempt") != "1" || got.header.Get("notify-group") != "billing" || got.header.Get("notify-header-tenant%20id") != "%C3%BC" {
		t.Errorf("headers %v", got.header)
	}
	if n := s.count("SELECT COUNT(*) FROM registry_setting WHERE value LIKE '%whsec%' OR value LIKE '%" + secret[6:20] + "%'"); n != 0 {
		t.Error("the secret stands in the store as it is")
	}
}

func TestWhatAReceiverAnswersDecides(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	h := startHook(t, nil)
	secret := s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, TimeoutMs: 300})
	elsewhere := startHook(t, nil)
	for name, x := range map[string]struct {
		answer http.HandlerFunc
		err    string // in the pending row; empty: acknowledged
	}{
		"200 with a huge body": {answer: func(w http.ResponseWriter, _ *http.Request) {
			part := make([]byte, 1<<20)
			for range 64 {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}},
		"200 with a body that drips": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-r.Context().Done():
					return
				case <-tick.C:
					if _, err := w.Write([]byte{'.'}); err != nil || http.NewResponseController(w).Flush() != nil {
						return
					}
				}
			}
		}},
		"400": {status(400), "status 400 Bad Request"},
		"404": {status(404), "status 404 Not Found"},
		"500": {status(500), "status 500 Internal Server Error"},
		"503": {status(503), "status 503 Service Unavailable"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "status 307 Temporary Redirect: redirects are not followed"},
		"no answer in time": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 300ms"},
		"cut":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"too large a header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
		}, "server response headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			h.will(x.answer)
			id := s.publish(c, client.Message{Topic: "orders", Body: []byte(name)})
			if x.err == "" {
				s.until("acknowledged", s.empty)
				if n := len(h.requests(id)); n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
				return
			}
			s.until("the pending row says why", func() bool { return strings.Contains(s.pendingError(), x.err) })
			s.until("sent again", func() bool { return len(h.requests(id)) > 2 })
			h.will(nil)
			s.until("acknowledged in the end", s.empty)
			all := h.requests(id)
			if err := verified(all[len(all)-1], secret); err != nil {
				t.Errorf("the last attempt: %v", err)
			}
			if last := all[len(all)-1].header.Get("notify-attempt"); last == "1" {
				t.Errorf("attempt %s after %d requests", last, len(all))
			}
		})
	}
	if n := elsewhere.ids(); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

func TestAReceiverThatIsGoneDisablesItsWebhookAndNothingIsLost(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(hooked)
	two, _ := s.broker(hooked)
	c := s.client(one)
	s.subscribe(c, "orders", "g")
	h := startHook(t, status(http.StatusGone))
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	first := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("disabled at both brokers", func() bool {
		w := s.hookOf(c, "g")
		return w.Disabled && w.DisabledReason == "the receiver answered 410 Gone" && s.instances(one, "g")+s.instances(two, "g") == 0
	})
	before := len(h.requests(first))
	second := s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
	s.until("both wait", func() bool { return s.rows("pending") == 2 })
	if n := len(h.requests(second)); n != 0 || len(h.requests(first)) != before {
		t.Errorf("%d requests of a new message to a disabled webhook", n)
	}
	h.will(nil)
	if err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		_, err := a.EnableWebhook(t.Context(), connect.NewRequest(&notifyv1.EnableWebhookRequest{Group: "g"}))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.until("both are delivered", func() bool { return len(h.requests(second)) == 1 && s.empty() })
}

func TestRetryAfterPausesTheWholeEndpoint(t *testing.T) {
	for name, value := range map[string]func() string{
		"seconds": func() string { return "2" },
		"date":    func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _, _ := newHookStage(t)
			var once sync.Once
			h := startHook(t, func(w http.ResponseWriter, _ *http.Request) {
				code := http.StatusNoContent
				once.Do(func() {
					w.Header().Set("Retry-After", value())
					code = http.StatusTooManyRequests
				})
				w.WriteHeader(code)
			})
			s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
			first := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
			s.until("paused", func() bool { return s.hookOf(c, "g").PausedUntilUs != 0 })
			until := time.UnixMicro(s.hookOf(c, "g").PausedUntilUs)
			second := s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
			s.until("both are delivered", func() bool { return len(h.requests(first)) == 2 && len(h.requests(second)) == 1 && s.empty() })
			for what, at := range map[string]time.Time{"the same message": h.requests(first)[1].at, "another message": h.requests(second)[0].at} {
				if at.Before(until.Add(-10 * time.Millisecond)) {
					t.Errorf("%s was sent %s before the time asked for", what, until.Sub(at))
				}
			}
		})
	}
}

func TestAnAbsurdRetryAfterIsBoundedAndEndsWithAnyChange(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	h := startHook(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "99999999999999999999")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("paused", func() bool { return s.hookOf(c, "g").PausedUntilUs != 0 })
	if left := time.Until(time.UnixMicro(s.hookOf(c, "g").PausedUntilUs)); left > time.Hour {
		t.Errorf("paused for %s", left)
	}
	h.will(nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Concurrency: 3})
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
	s.until("pushed again", func() bool { return len(h.requests(id)) == 1 })
}

func TestSecretsAreExchangedWithoutARefusal(t *testing.T) {
	s, c, _, stop := newHookStage(t)
	h := startHook(t, nil)
	old := s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	rotate := func(req *notifyv1.RotateWebhookRequest) (secret string, err error) {
		err = s.admin(c, func(a notifyv1connect.AdminClient) error {
			res, err := a.RotateWebhook(t.Context(), connect.NewRequest(req))
			if err == nil {
				secret = res.Msg.GetSecret()
			}
			return err
		})
		return secret, err
	}
	signedBy := func(secrets ...string) (by []bool) {
		t.Helper()
		id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
		s.until("received", func() bool { return len(h.requests(id)) == 1 })
		for _, x := range secrets {
			by = append(by, verified(h.requests(id)[0], x) == nil)
		}
		return by
	}
	fresh, err := rotate(&notifyv1.RotateWebhookRequest{Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	s.until("both sign", func() bool { by := signedBy(old, fresh); return by[0] && by[1] })
	if _, err := rotate(&notifyv1.RotateWebhookRequest{Group: "g"}); err == nil || !strings.Contains(err.Error(), "two secrets sign until") {
		t.Errorf("a third secret: %v", err)
	}
	stop() // the key is put behind a new one, which seals from now on
	addr, _ := s.broker(func(cfg *notifyd.Config) {
		hooked(cfg)
		cfg.SecretKeys = []string{secretKey("k2", 2), secretKey("k1", 1)}
	})
	c = s.client(addr)
	none := uint32(0)
	last, err := rotate(&notifyv1.RotateWebhookRequest{Group: "g", KeepMs: &none, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	s.until("the last one signs alone", func() bool { by := signedBy(old, fresh, last); return !by[0] && !by[1] && by[2] })
	if w := s.hookOf(c, "g"); len(w.Secrets) != 1 || w.Secrets[0].KeyId != "k2" {
		t.Errorf("secrets %v", w.Secrets)
	}
}

func TestABrokerWithoutTheKeySaysSoAndKeepsTheMessages(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(hooked)
	c := s.client(addr)
	s.subscribe(c, "orders", "g", "other")
	h := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL})
	stop()
	addr, stop = s.broker(func(cfg *notifyd.Config) { hooked(cfg); cfg.SecretKeys = nil })
	c = s.client(addr)
	if w := s.hookOf(c, "g"); !strings.Contains(w.Problem, "secret key not configured: k1") {
		t.Errorf("problem %q", w.Problem)
	}
	err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		_, err := a.SetWebhook(t.Context(), connect.NewRequest(&notifyv1.SetWebhookRequest{Group: "other", Url: h.URL}))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "secret_keys") {
		t.Errorf("a secret without a key: %v", err)
	}
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	stop()
	s.broker(hooked)
	s.until("delivered by a broker that has it", func() bool { return len(h.requests(id)) == 1 })
}

func TestAWebhookIsNeverSentMoreRequestsAtOnceThanItsConcurrency(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	gate := make(chan struct{})
	h := startHook(t, func(w http.ResponseWriter, _ *http.Request) { <-gate; w.WriteHeader(http.StatusOK) })
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: h.URL, Concurrency: 3})
	const n = 50
	for i := range n {
		s.publish(c, client.Message{Topic: "orders", Body: fmt.Append(nil, i)})
	}
	s.until("as many as allowed are under way", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.at == 3 })
	close(gate)
	s.until("all delivered and gone", func() bool { return h.ids() == n && s.empty() })
	if h.most != 3 {
		t.Errorf("%d requests at once, want 3", h.most)
	}
}

func TestAddressesThatAreNotAllowedAreNeverDialled(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { hooked(c); c.EgressNetworks = nil })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	h := startHook(t, nil)
	s.setHook(c, &notifyv1.SetWebhookRequest{Group: "g", Url: strings.Replace(h.URL, "127.0.0.1", "localhost", 1)})
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("the pending row says why", func() bool { return strings.Contains(s.pendingError(), "egress_networks allows more") })
	if n := h.ids(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}

func TestBadWebhooksAreRefusedWithTheFieldThatIsWrong(t *testing.T) {
	s, c, _, _ := newHookStage(t)
	for name, x := range map[string]struct {
		req  *notifyv1.SetWebhookRequest
		want string
	}{
		"no url":        {&notifyv1.SetWebhookRequest{Group: "g"}, "url: it must begin with https"},
		"password":      {&notifyv1.SetWebhookRequest{Group: "g", Url: "https://u:p@example.com"}, "url: it holds a user or password"},
		"metadata":      {&notifyv1.SetWebhookRequest{Group: "g", Url: "http://169.254.169.254/latest"}, "169.254.169.254 is not public; egress_networks allows more"},
		"private":       {&notifyv1.SetWebhookRequest{Group: "g", Url: "https://[::ffff:10.0.0.1]:8443/x"}, "10.0.0.1 is not public"},
		"concurrency":   {&notifyv1.SetWebhookRequest{Group: "g", Url: "https://example.com", Concurrency: 1001}, "concurrency: 1001 is not 1 to 1000"},
		"timeout":       {&notifyv1.SetWebhookRequest{Group: "g", Url: "https://example.com", TimeoutMs: 60001}, "timeout: 1m0.001s is not 100ms to 1m0s"},
		"secret":        {&notifyv1.SetWebhookRequest{Group: "g", Url: "https://example.com", Secret: "whsec_eA=="}, "secret: the secret has 1 bytes"},
		"unknown group": {&notifyv1.SetWebhookRequest{Group: "x", Url: "https://example.com"}, `group "x" is not declared`},
	} {
		err := s.admin(c, func(a notifyv1connect.AdminClient) error {
			_, err := a.SetWebhook(t.Context(), connect.NewRequest(x.req))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
	err := s.admin(c, func(a notifyv1connect.AdminClient) error {
		_, err := a.EnableWebhook(t.Context(), connect.NewRequest(&notifyv1.EnableWebhookRequest{Group: "g"}))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "notify webhook set g --url URL") {
		t.Errorf("enable without a webhook: %v", err)
	}
	if n := s.count("SELECT COUNT(*) FROM registry_setting"); n != 0 {
		t.Errorf("%d settings stand after nothing but refusals", n)
	}
}
