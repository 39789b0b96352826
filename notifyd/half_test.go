package notifyd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// raw is a client without an SDK's retries.
func raw(addr string) notifyv1connect.MessagingClient {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return notifyv1connect.NewMessagingClient(&http.Client{Transport: &http.Transport{Protocols: p}}, "http://"+addr, connect.WithGRPC())
}

func (s *stage) prepare(c notifyv1connect.MessagingClient, req *notifyv1.PrepareRequest) *notifyv1.PrepareResponse {
	s.t.Helper()
	res, err := c.Prepare(s.t.Context(), connect.NewRequest(req))
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Msg
}

func prepareOf(topic, body string) *notifyv1.PrepareRequest {
	return &notifyv1.PrepareRequest{ProducerGroup: "shop", Message: &notifyv1.Message{Topic: topic, Body: []byte(body)}}
}

// reason is the reason of an error of the API.
func reason(err error) notifyv1.Reason {
	var e *connect.Error
	if errors.As(err, &e) {
		for _, d := range e.Details() {
			if v, err := d.Value(); err == nil {
				if x, ok := v.(*notifyv1.ErrorDetail); ok {
					return x.Reason
				}
			}
		}
	}
	return notifyv1.Reason_REASON_UNSPECIFIED
}

func decideOf(h []byte) *connect.Request[notifyv1.DecideRequest] {
	return connect.NewRequest(&notifyv1.DecideRequest{Handle: h, ProducerGroup: "shop"})
}

func TestAHalfIsPushedWhenCommittedAndNeverWhenRolledBack(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	r := s.consume(c, "g", nil)
	m := raw(addr)
	yes, no := s.prepare(m, prepareOf("orders", "yes")), s.prepare(m, prepareOf("orders", "no"))
	if n := s.rows("message"); n != 0 || s.rows("half") != 2 {
		t.Fatalf("%d messages and %d halves after two Prepares", n, s.rows("half"))
	}
	if _, err := m.Commit(t.Context(), decideOf(yes.Handle)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rollback(t.Context(), decideOf(no.Handle)); err != nil {
		t.Fatal(err)
	}
	s.until("the committed one is delivered and gone", func() bool {
		return r.count() == 1 && s.rows("message")+s.rows("pending")+s.rows("half") == 0
	})
	if r.got[yes.Id] != 1 {
		t.Errorf("delivered %v, want %s", r.got, yes.Id)
	}
}

func TestTheFirstDecisionWinsAndRepeatsAreAnsweredAlike(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	other, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "g")
	m, m2 := raw(addr), raw(other)
	h := s.prepare(m, prepareOf("orders", "x")).Handle
	wrong := decideOf(h)
	wrong.Msg.ProducerGroup = "thief"
	if _, err := m.Commit(t.Context(), wrong); reason(err) != notifyv1.Reason_REASON_NOT_YOURS {
		t.Fatalf("commit by another group: %v", err)
	}
	first, err := m2.Commit(t.Context(), decideOf(h)) // any broker takes it
	if err != nil || first.Msg.Repeated {
		t.Fatalf("commit: %v, %v", first, err)
	}
	for _, c := range []notifyv1connect.MessagingClient{m, m2} {
		again, err := c.Commit(t.Context(), decideOf(h))
		if err != nil || !again.Msg.Repeated || again.Msg.Id != first.Msg.Id {
			t.Errorf("the same decision again: %v, %v", again, err)
		}
		if _, err := c.Rollback(t.Context(), decideOf(h)); reason(err) != notifyv1.Reason_REASON_DECIDED_OTHERWISE {
			t.Errorf("a contrary decision: %v", err)
		}
	}
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	if _, err := s.db.Exec("DELETE FROM half_decision"); err != nil { // forgotten after 24 h
		t.Fatal(err)
	}
	if _, err := m.Commit(t.Context(), decideOf(h)); reason(err) != notifyv1.Reason_REASON_UNKNOWN_HALF {
		t.Errorf("commit after its decision was forgotten: %v", err)
	}
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestContraryDecisionsAtTheSameTimeLeaveOne(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	s.subscribe(s.client(one), "orders", "g")
	m1, m2 := raw(one), raw(two)
	const n = 40
	committed := atomic.Int64{}
	var all sync.WaitGroup
	for i := range n {
		h := s.prepare(m1, prepareOf("orders", fmt.Sprint(i))).Handle
		var won atomic.Int64
		var both sync.WaitGroup
		all.Add(1)
		both.Go(func() {
			if _, err := m1.Commit(t.Context(), decideOf(h)); err == nil {
				won.Add(1)
				committed.Add(1)
			} else if reason(err) != notifyv1.Reason_REASON_DECIDED_OTHERWISE {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := m2.Rollback(t.Context(), decideOf(h)); err == nil {
				won.Add(1)
			} else if reason(err) != notifyv1.Reason_REASON_DECIDED_OTHERWISE {
				t.Error(err)
			}
		})
		go func() {
			defer all.Done()
			both.Wait()
			if won.Load() != 1 {
				t.Errorf("half %d: %d decisions won", i, won.Load())
			}
		}()
	}
	all.Wait()
	if got := s.rows("message"); got != int(committed.Load()) || s.rows("half") != 0 {
		t.Errorf("%d messages and %d halves after %d commits", got, s.rows("half"), committed.Load())
	}
}

func TestAPrepareSentAgainIsOneHalf(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	s.subscribe(s.client(one), "orders", "g")
	s.until("both own shards", func() bool {
		return s.count("SELECT COUNT(DISTINCT owner) FROM lease WHERE expires_at > 0") == 2
	})
	m1, m2 := raw(one), raw(two)
	req := prepareOf("orders", "x")
	req.Message.Id = uuid.NewString()
	var handles [][]byte
	for range 4 { // unkeyed: they land in several shards
		handles = append(handles, s.prepare(m1, req).Handle, s.prepare(m2, req).Handle)
	}
	for _, h := range handles {
		if _, err := m1.Commit(t.Context(), decideOf(h)); err != nil {
			t.Fatal(err)
		}
	}
	if s.rows("message") != 1 || s.rows("half") != 0 {
		t.Errorf("%d messages, %d halves; want 1, 0", s.rows("message"), s.rows("half"))
	}
}

// answering attaches an instance of a producer group that answers checks by their body.
func (s *stage) answering(addr string, answer func(*notifyv1.Check) notifyv1.Decision) {
	s.t.Helper()
	stream := raw(addr).CheckBack(s.t.Context())
	if err := stream.Send(&notifyv1.CheckBackRequest{Attach: &notifyv1.AttachProducer{ProducerGroup: "shop", Instance: "i"}}); err != nil {
		s.t.Fatal(err)
	}
	if res, err := stream.Receive(); err != nil || !res.Attached {
		s.t.Fatal(res, err)
	}
	go func() {
		for {
			res, err := stream.Receive()
			if err != nil {
				return
			}
			for _, c := range res.Checks {
				if err := stream.Send(&notifyv1.CheckBackRequest{Answers: []*notifyv1.CheckAnswer{{Handle: c.Handle, Decision: answer(c)}}}); err != nil {
					return
				}
			}
		}
	}()
}

func quickChecks(c *notifyd.Config) {
	c.CheckAfter = notifyd.Duration(200 * time.Millisecond)
	c.CheckMax = notifyd.Duration(400 * time.Millisecond)
	c.CheckBudget = 3
}

func TestAnyInstanceOfTheProducerGroupIsAskedAndItsAnswerDecides(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(quickChecks)
	s.subscribe(s.client(addr), "orders", "g")
	m := raw(addr)
	for _, body := range []string{"commit", "rollback", "commit"} {
		s.prepare(m, prepareOf("orders", body))
	}
	s.answering(addr, func(c *notifyv1.Check) notifyv1.Decision { // attached after the fact
		if string(c.Message.Body) == "commit" {
			return notifyv1.Decision_DECISION_COMMIT
		}
		return notifyv1.Decision_DECISION_ROLLBACK
	})
	s.until("all are decided", func() bool { return s.rows("half") == 0 })
	if n := s.rows("message"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestOnlyChecksReallyAskedSpendTheBudgetThenTheHalfIsParkedAndResolvable(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(quickChecks)
	s.subscribe(s.client(addr), "orders", "g")
	m := raw(addr)
	id := s.prepare(m, prepareOf("orders", "x")).Id
	// Nobody of the group is here: some check periods pass.
	s.until("its time has come several times over", func() bool {
		for i := range 8 {
			if s.count(fmt.Sprintf("SELECT COUNT(*) FROM half_%02d WHERE prepared_at + 2000000 < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", i)) == 1 {
				return true
			}
		}
		return false
	})
	sum := func(column string) (n int) {
		for i := range 8 {
			n += s.count(fmt.Sprintf("SELECT COALESCE(SUM(%s), 0) FROM half_%02d", column, i))
		}
		return n
	}
	if n := sum("checks"); n != 0 {
		t.Fatalf("%d checks counted while nobody was there", n)
	}
	var asked atomic.Int64
	s.answering(addr, func(c *notifyv1.Check) notifyv1.Decision {
		asked.Add(1)
		return notifyv1.Decision_DECISION_UNKNOWN
	})
	s.until("parked", func() bool { return sum("parked") == 1 })
	if asked.Load() != 3 || sum("checks") != 3 {
		t.Errorf("asked %d times, counted %d, want the budget of 3", asked.Load(), sum("checks"))
	}
	_, answer := s.post(addr, "Admin/ListHalves", `{"parkedOnly":true}`)
	if list, _ := answer["halves"].([]any); len(list) != 1 {
		t.Errorf("parked halves listed: %v", answer)
	}
	code, answer := s.post(addr, "Admin/DecideHalf", fmt.Sprintf(`{"id":%q,"decision":"DECISION_COMMIT"}`, id))
	if code != http.StatusOK || s.rows("half") != 0 || s.rows("message") != 1 {
		t.Errorf("commit by hand: %d %v, %d halves, %d messages", code, answer, s.rows("half"), s.rows("message"))
	}
}

func TestACallbackDecidesAndABadOneDecidesNothing(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		quickChecks(c)
		c.EgressNetworks = []string{"127.0.0.0/8"}
	})
	s.subscribe(s.client(addr), "orders", "g")
	var calls sync.Map
	mux := http.NewServeMux()
	hang := make(chan struct{})
	for path, reply := range map[string]func(http.ResponseWriter, *http.Request){
		"/good":    func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"decision":"commit"}`) },
		"/garbage": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `<html>commit</html>`) },
		"/other":   func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"decision":"maybe"}`) },
		"/redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/good", http.StatusTemporaryRedirect)
		},
		"/error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			fmt.Fprint(w, `{"decision":"commit"}`)
		},
		"/hang": func(w http.ResponseWriter, r *http.Request) { <-hang },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var q map[string]any
			text, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(text, &q); err != nil || q["producer_group"] != "shop" {
				t.Errorf("%s was asked %s", path, text)
			}
			n, _ := calls.LoadOrStore(path, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			reply(w, r)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(func() { close(hang); server.Close() })
	m := raw(addr)
	ids := map[string]string{}
	for _, path := range []string{"/good", "/garbage", "/other", "/redirect", "/error", "/hang"} {
		req := prepareOf("orders", path)
		req.CheckUrl = server.URL + path
		ids[path] = s.prepare(m, req).Id
	}
	s.until("the good one is decided, the others are parked", func() bool {
		parked := 0
		for i := range 8 {
			parked += s.count(fmt.Sprintf("SELECT COUNT(*) FROM half_%02d WHERE parked = 1", i))
		}
		return s.rows("message") == 1 && parked == 5
	})
	for path := range ids {
		n, _ := calls.Load(path)
		if want := int64(3); path != "/good" && (n == nil || n.(*atomic.Int64).Load() != want) {
			t.Errorf("%s was not asked %d times", path, want)
		}
	}
}

func TestACallbackIntoAPrivateNetworkIsNeverAsked(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(quickChecks)
	s.subscribe(s.client(addr), "orders", "g")
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(server.Close)
	req := prepareOf("orders", "x")
	req.CheckUrl = server.URL
	s.prepare(raw(addr), req)
	s.until("it was tried", func() bool {
		for i := range 8 {
			if s.count(fmt.Sprintf("SELECT COUNT(*) FROM half_%02d WHERE next_check_at > prepared_at + 350000", i)) == 1 {
				return true
			}
		}
		return false
	})
	if calls.Load() != 0 {
		t.Error("a loopback address was called")
	}
}

func TestAPersonsDecisionTakesEveryCopyOfAHalf(t *testing.T) {
	s := newStage(t)
	first, _ := s.broker(nil)
	second, _ := s.broker(nil)
	c := s.client(first)
	s.subscribe(c, "orders", "g")
	id := uuid.NewString()
	s.until("a copy through each broker", func() bool {
		for _, addr := range []string{first, second} {
			s.prepare(raw(addr), &notifyv1.PrepareRequest{ProducerGroup: "shop", Message: &notifyv1.Message{Id: id, Topic: "orders"}})
		}
		return s.rows("half") >= 2
	})
	for i, repeated := range []bool{false, true} {
		err := c.Admin(t.Context(), func(a notifyv1connect.AdminClient) error {
			r, err := a.DecideHalf(t.Context(), connect.NewRequest(&notifyv1.DecideHalfRequest{Id: id, Decision: notifyv1.Decision_DECISION_COMMIT}))
			if err == nil && r.Msg.GetRepeated() != repeated {
				t.Errorf("decision %d: repeated is %t", i+1, !repeated)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if h, m := s.rows("half"), s.rows("message"); h != 0 || m != 1 {
			t.Errorf("%d halves and %d messages after decision %d", h, m, i+1)
		}
	}
}
