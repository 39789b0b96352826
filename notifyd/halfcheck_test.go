package notifyd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// nowMicros is the store's clock in SQL.
const nowMicros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// halfWhere counts halves of all shards for which a condition holds.
func (s *stage) halfWhere(condition string) (n int) {
	s.t.Helper()
	for i := range 8 {
		n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM half_%02d WHERE %s", i, condition))
	}
	return n
}

// lastErrors are those of all halves.
func (s *stage) lastErrors() (out []string) {
	s.t.Helper()
	for i := range 8 {
		var text string
		if err := s.db.QueryRow(fmt.Sprintf("SELECT COALESCE(GROUP_CONCAT(last_error), '') FROM half_%02d", i)).Scan(&text); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, text)
	}
	return out
}

func TestATopicsCheckDelayGoesBeforeTheBrokersAndAHalfsOwnBeforeBoth(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	m := raw(addr)
	ok := func(method, body string) map[string]any {
		t.Helper()
		code, answer := s.post(addr, method, body)
		if code != http.StatusOK {
			t.Fatalf("%s: %v", method, answer)
		}
		return answer
	}
	firstCheck := func(ownMillis uint32, want time.Duration) {
		t.Helper()
		req := prepareOf("orders", "x")
		req.CheckAfterMs = ownMillis
		id := uuid.MustParse(s.prepare(m, req).Id)
		if s.halfWhere(fmt.Sprintf("id = UNHEX('%x') AND next_check_at = prepared_at + %d", id[:], want.Microseconds())) != 1 {
			t.Errorf("the first check is not %s behind Prepare", want)
		}
	}
	ok("Admin/CreateTopic", `{"topic":{"name":"orders","checkAfterMs":3600000}}`)
	firstCheck(0, time.Hour)
	firstCheck(7000, 7*time.Second)
	if topic := ok("Admin/UpdateTopic", `{"name":"orders","checkAfterMs":120000}`)["topic"].(map[string]any); topic["checkAfterMs"] != float64(120000) {
		t.Errorf("the topic as it is now: %v", topic)
	}
	firstCheck(0, 2*time.Minute)
	ok("Admin/UpdateTopic", `{"name":"orders","checkAfterMs":0}`)
	firstCheck(0, notifyd.DefaultCheckAfter)
	for body, want := range map[string]string{
		`{"name":"orders","checkAfterMs":5}`: "check_after_ms: must be 0 for the broker's setting, or 100ms to 720h",
		`{"name":"orders"}`:                  "check_after_ms: missing",
		`{"name":"none","checkAfterMs":500}`: "notify topic create none",
	} {
		if code, answer := s.post(addr, "Admin/UpdateTopic", body); code == http.StatusOK || !strings.Contains(fmt.Sprint(answer), want) {
			t.Errorf("%s: %v, want %q", body, answer, want)
		}
	}
}

func TestACallbackThatCannotBeReachedSpendsNoCheckAndIsTriedSeldomer(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.CheckAfter, c.CheckMax, c.CheckBudget = notifyd.Duration(100*time.Millisecond), notifyd.Duration(time.Hour), 2
		c.EgressNetworks = []string{"127.0.0.0/8"}
	})
	s.subscribe(s.client(addr), "orders", "g")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody listens there any more
	req := prepareOf("orders", "x")
	req.CheckUrl = "http://" + listener.Addr().String() + "/check"
	id := s.prepare(raw(addr), req).Id
	s.until("the next try is seconds away, though the first came after 100 ms", func() bool {
		return s.halfWhere("next_check_at > "+nowMicros+" + 2000000") == 1
	})
	if n := s.halfWhere("checks = 0 AND parked = 0 AND last_error LIKE '%refused%'"); n != 1 {
		t.Errorf("it is counted, parked or without its error")
	}
	_, answer := s.post(addr, "Admin/GetHalf", fmt.Sprintf(`{"id":%q}`, id))
	why := fmt.Sprint(answer["half"].(map[string]any)["why"])
	if !strings.Contains(why, "was not asked yet; the last check:") || !strings.Contains(why, "refused") {
		t.Errorf("why it waits: %s", why)
	}
}

func TestAnAnswerBehindTheDeadlineAndTheBodyOfAnErrorDecideNothing(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		quickChecks(c)
		c.CheckBudget = 1
		c.EgressNetworks = []string{"127.0.0.0/8"}
	})
	s.subscribe(s.client(addr), "orders", "g")
	var redirected, late atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done() // the broker has given up
		late.Add(1)
		fmt.Fprint(w, `{"decision":"commit"}`)
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"decision":`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		fmt.Fprint(w, `"commit"}`)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"decision":"commit"`+strings.Repeat(" ", 5000)+"}")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
		fmt.Fprint(w, `{"decision":"commit"}`)
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { redirected.Add(1) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	m := raw(addr)
	for _, path := range []string{"/late", "/drip", "/long", "/moved"} {
		req := prepareOf("orders", path)
		req.CheckUrl = server.URL + path
		s.prepare(m, req)
	}
	s.until("each was asked once and is parked", func() bool {
		return s.halfWhere("parked = 1 AND checks = 1 AND last_error IS NOT NULL") == 4 && late.Load() == 1
	})
	for path, want := range map[string]string{"/late": "no answer within 5s", "/drip": "no answer within 5s", "/long": "longer than 4096 bytes", "/moved": "status 302"} {
		if s.halfWhere(fmt.Sprintf("check_url LIKE '%%%s' AND last_error LIKE '%%%s%%'", path, want)) != 1 {
			t.Errorf("%s: the last error does not say %q but %q", path, want, s.lastErrors())
		}
	}
	if n := s.rows("message"); n != 0 || redirected.Load() != 0 {
		t.Errorf("%d messages, %d redirects followed; want none", n, redirected.Load())
	}
}

func TestEveryOtherDecisionIsRefusedByItsReason(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "g")
	m := raw(addr)
	never := s.prepare(m, prepareOf("orders", "x")).Handle
	never[len(never)-1]++ // another id of the same shard
	for name, decide := range map[string]func(context.Context, *connect.Request[notifyv1.DecideRequest]) (*connect.Response[notifyv1.DecideResponse], error){"commit": m.Commit, "rollback": m.Rollback} {
		if _, err := decide(t.Context(), decideOf(never)); reason(err) != notifyv1.Reason_REASON_UNKNOWN_HALF {
			t.Errorf("%s of a half that was never prepared: %v", name, err)
		}
		foreign := append([]byte(nil), never...)
		foreign[3]++ // another store
		if _, err := decide(t.Context(), decideOf(foreign)); reason(err) != notifyv1.Reason_REASON_UNKNOWN_HALF {
			t.Errorf("%s of a half of another cluster: %v", name, err)
		}
		if _, err := decide(t.Context(), decideOf([]byte("garbage"))); reason(err) != notifyv1.Reason_REASON_INVALID {
			t.Errorf("%s of garbage: %v", name, err)
		}
		nobody := decideOf(never)
		nobody.Msg.ProducerGroup = ""
		if _, err := decide(t.Context(), nobody); reason(err) != notifyv1.Reason_REASON_INVALID {
			t.Errorf("%s by nobody: %v", name, err)
		}
	}
	gone := s.prepare(m, prepareOf("orders", "y"))
	if _, err := m.Rollback(t.Context(), decideOf(gone.Handle)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Commit(t.Context(), decideOf(gone.Handle)); reason(err) != notifyv1.Reason_REASON_DECIDED_OTHERWISE || !strings.Contains(err.Error(), "rollback was taken first") {
		t.Errorf("a commit after the rollback: %v", err)
	}
	if again, err := m.Rollback(t.Context(), decideOf(gone.Handle)); err != nil || !again.Msg.Repeated {
		t.Errorf("the rollback again: %v, %v", again, err)
	}
	if _, err := m.Prepare(t.Context(), connect.NewRequest(&notifyv1.PrepareRequest{ProducerGroup: "shop",
		Message: &notifyv1.Message{Id: gone.Id, Topic: "orders", Body: []byte("y")}})); reason(err) != notifyv1.Reason_REASON_DECIDED_OTHERWISE {
		t.Errorf("the same prepared again after its rollback: %v", err)
	}
	code, answer := s.post(addr, "Admin/GetHalf", fmt.Sprintf(`{"id":%q}`, gone.Id))
	if code != http.StatusNotFound || !strings.Contains(fmt.Sprint(answer["message"]), "its decision was rollback, at ") {
		t.Errorf("a decided half shown: %d %v", code, answer)
	}
	if _, err := s.db.Exec("UPDATE half_decision SET decided_at = " + nowMicros + " - 24 * 3600 * 1000000"); err != nil {
		t.Fatal(err)
	}
	s.until("the broker forgets the decision", func() bool { return s.count("SELECT COUNT(*) FROM half_decision") == 0 })
	if _, err := m.Commit(t.Context(), decideOf(gone.Handle)); reason(err) != notifyv1.Reason_REASON_UNKNOWN_HALF {
		t.Errorf("a commit after the decision was forgotten: %v", err)
	}
	if n := s.rows("message"); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestAParkedHalfIsShownWithItsContentAndAskedAboutAgainByHand(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(quickChecks)
	s.subscribe(s.client(addr), "orders", "g")
	id := s.prepare(raw(addr), prepareOf("orders", "hello")).Id
	var sure atomic.Bool
	s.answering(addr, func(*notifyv1.Check) notifyv1.Decision {
		if sure.Load() {
			return notifyv1.Decision_DECISION_COMMIT
		}
		return notifyv1.Decision_DECISION_UNKNOWN
	})
	s.until("parked", func() bool { return s.halfWhere("parked = 1") == 1 })
	_, answer := s.post(addr, "Admin/GetHalf", fmt.Sprintf(`{"id":%q}`, id))
	half, _ := answer["half"].(map[string]any)
	if msg, _ := half["message"].(map[string]any); msg["body"] != "aGVsbG8=" || half["parked"] != true || half["producerGroup"] != "shop" {
		t.Errorf("shown: %v", answer)
	}
	if why := fmt.Sprint(half["why"]); !strings.HasPrefix(why, `parked: producer group "shop" was asked 3 of 3 times`) {
		t.Errorf("why: %s", why)
	}
	sure.Store(true)
	if code, answer := s.post(addr, "Admin/CheckHalf", fmt.Sprintf(`{"id":%q}`, id)); code != http.StatusOK || answer["wasParked"] != true {
		t.Fatalf("check by hand: %v", answer)
	}
	s.until("its answer decides it", func() bool { return s.rows("half") == 0 && s.rows("message") == 1 })
	if code, answer := s.post(addr, "Admin/CheckHalf", fmt.Sprintf(`{"id":%q}`, uuid.New())); code != http.StatusNotFound {
		t.Errorf("a check of an unknown half: %d %v", code, answer)
	}
}

func TestWhatWaitsIsCountedForMetrics(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	b, err := notifyd.New(notifyd.Config{Listen: "127.0.0.1:0", Stores: map[string]notifyd.StoreConfig{"a": {DSN: s.dsn}}}, notifyd.Deps{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	s.until("ready", func() bool { return b.Ready() == nil })
	s.subscribe(s.client(b.Addr()), "orders", "g")
	m := raw(b.Addr())
	for range 20 {
		s.prepare(m, prepareOf("orders", "x"))
	}
	for i := range 8 {
		if _, err := s.db.Exec(fmt.Sprintf("UPDATE half_%02d SET parked = 1, prepared_at = prepared_at - 100000000", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.prepare(m, prepareOf("orders", "x"))
	insertOutbox(t, s.db, "nowhere", "", "x") // is rejected
	values := map[string]float64{}
	s.until("all of it is counted", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "notify_half_m") || strings.HasPrefix(f.GetName(), "notify_outbox") {
				values[f.GetName()] = f.Metric[0].GetGauge().GetValue()
			}
		}
		return values["notify_half_messages"] == 21 && values["notify_half_messages_parked"] == 20 &&
			values["notify_half_message_oldest_age_seconds"] > 99 && values["notify_outbox_rejected_rows"] == 1
	})
	for _, name := range []string{"notify_outbox_rows", "notify_outbox_oldest_age_seconds"} {
		if v, ok := values[name]; !ok || v != 0 {
			t.Errorf("%s: %g, %t; want 0", name, v, ok)
		}
	}
}

func TestACallbackThatHangsLeavesSlotsToTheOthers(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		quickChecks(c)
		c.EgressNetworks = []string{"127.0.0.0/8"}
	})
	s.subscribe(s.client(addr), "orders", "g")
	var asked atomic.Int64
	released := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-released
	}))
	var before atomic.Int64
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		before.Store(asked.Load())
		fmt.Fprint(w, `{"decision":"commit"}`)
	}))
	t.Cleanup(func() { close(released); hangs.Close(); well.Close() })
	prepare := func(url string) {
		req := prepareOf("orders", "x")
		req.CheckUrl = url
		s.prepare(raw(addr), req)
	}
	for range 40 {
		prepare(hangs.URL)
	}
	s.until("callbacks hang", func() bool { return asked.Load() >= 12 })
	prepare(well.URL)
	s.until("another is asked", func() bool { return s.rows("message") == 1 })
	if n := before.Load(); n >= 16 { // 14 when the first 12 have hung for 5 s
		t.Errorf("it was asked behind %d callbacks to one host, want 12", n)
	}
}
