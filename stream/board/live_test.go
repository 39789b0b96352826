package board_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"notifymirror/stream/board"
)

// seen is what tests look at of a frame.
type seen struct {
	State    string   `json:"state"`
	Note     string   `json:"note"`
	Count    int64    `json:"count"`
	Amount   string   `json:"amount"`
	NoAmount int64    `json:"no_amount"`
	NoAnswer int64    `json:"no_answer"`
	Now      int64    `json:"now"`
	AsOf     int64    `json:"as_of"`
	Silent   []string `json:"silent"`
	Mirror   []struct {
		State string `json:"state"`
	} `json:"mirror"`
	Groups []struct {
		Group   string `json:"group"`
		Waiting uint64 `json:"waiting"`
	} `json:"groups"`
}

// events reads a board's frames until one is enough, connecting again as a browser does.
func events(t testing.TB, url, name string, enough func(seen) bool) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last seen
	for ctx.Err() == nil {
		if done := eventsOnce(ctx, url, name, func(s seen) bool { last = s; return enough(s) }); done {
			return last
		}
	}
	t.Fatalf("not seen; the last frame was %+v", last)
	return last
}

func eventsOnce(ctx context.Context, url, name string, enough func(seen) bool) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/boards/"+name+"/events", nil)
	if err != nil {
		panic(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		var s seen
		if is && json.Unmarshal([]byte(data), &s) == nil && enough(s) {
			return true
		}
	}
	return false
}

// check asks a board to read the log again.
func check(t testing.TB, url, name string) board.Truth {
	t.Helper()
	resp, err := http.Post(url+"/boards/"+name+"/truth", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var truth board.Truth
	if err := json.NewDecoder(resp.Body).Decode(&truth); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return truth
}

// The server is stopped and started while messages come: nobody ever sees a number smaller
// than one before, and in the end it is exact.
func TestARestartShowsNoDip(t *testing.T) {
	l := newLog(t, newName(), 4)
	cfg := board.Config{Boards: map[string]board.Board{"b": {Topic: l.topic, Since: since(t, "day")}}}
	const first, each, bursts = 3000, 25, 40
	var batch []msg
	for range first {
		batch = append(batch, msg{body: "x"})
	}
	l.write(batch...)
	s := serve(t, "", cfg)
	url, address := s.url, strings.TrimPrefix(s.url, "http://")
	var highest, dips atomic.Int64
	watching, stopWatching := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			eventsOnce(watching, url, "b", func(f seen) bool {
				if f.State == "live" && f.Count < highest.Load() {
					dips.Add(1)
				}
				if f.State == "live" {
					highest.Store(f.Count)
				}
				return false
			})
		}
	}()
	events(t, s.url, "b", func(f seen) bool { return f.State == "live" && f.Count == first })
	for n := range bursts {
		l.write(batch[:each]...)
		if n%15 == 14 {
			waitFor(t, "frame", func() bool { return highest.Load() > first })
			s.stop()
			s = serve(t, address, cfg)
		}
	}
	want := int64(first + each*bursts)
	events(t, s.url, "b", func(f seen) bool { return f.State == "live" && f.Count == want })
	waitFor(t, "last number", func() bool { return highest.Load() == want })
	stopWatching()
	<-watched
	if dips.Load() > 0 {
		t.Errorf("%d times a number was smaller than before", dips.Load())
	}
}

func since(t testing.TB, text string) board.Since {
	t.Helper()
	s, err := board.ParseSince(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the board says and what the log holds are equal to the cent, whatever the messages are.
func TestTheBoardAndTheLogAgreeToTheCent(t *testing.T) {
	l := newLog(t, newName(), 3)
	filter, err := board.ParseFilter(`headers.kind == "sale" && key != "test"`)
	if err != nil {
		t.Fatal(err)
	}
	sale := map[string]string{"kind": "sale"}
	now := time.Now()
	var ms []msg
	for range 500 {
		ms = append(ms, msg{key: "a", headers: sale, body: `{"amount": 0.10}`}, msg{key: "b", headers: sale, body: `{"amount": "19.99"}`})
	}
	ms = append(ms,
		msg{key: "a", headers: sale, body: `{"amount": 90071992547409.93}`}, // beyond a float's cents
		msg{key: "a", headers: sale, body: `{"amount": -5}`},
		msg{key: "a", headers: sale, body: `{"amount": 0.001}`}, // no whole cents
		msg{key: "a", headers: sale, body: `{"amount": 1e2}`},
		msg{key: "a", headers: sale, body: "no json"},
		msg{key: "test", headers: sale, body: `{"amount": 1000}`},
		msg{key: "a", headers: map[string]string{"kind": "return"}, body: `{"amount": 1000}`},
		msg{key: "a", body: `{"amount": 1000}`},
		msg{key: "a", headers: sale, body: `{"amount": 1000}`, at: now.Add(-48 * time.Hour)}, // before the period
	)
	l.write(ms...)
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"b": {
		Topic: l.topic, Filter: filter, Amount: field(t, "json.amount"), Decimals: 2,
		Since: since(t, now.Add(-time.Hour).Format(time.RFC3339)), Top: fields(t, "key"),
	}}})
	const count, amount = 1005, "9007199255744993" // 500 * 20.09 + 90071992547409.93 - 5
	f := events(t, s.url, "b", func(f seen) bool { return f.State == "live" && f.Count == count })
	if f.Amount != amount || f.NoAmount != 3 || f.NoAnswer != 1 {
		t.Errorf("%+v, want %s, 3 without an amount and 1 without an answer", f, amount)
	}
	truth := check(t, s.url, "b")
	want := board.TruthTotal{Count: count, Amount: amount, NoAmount: 3}
	if !truth.Equal || truth.Board != want || truth.Log != want || len(truth.Offsets) != 3 {
		t.Errorf("%+v, want %+v", truth, want)
	}
	// What came after the board's offsets is not in the comparison.
	l.write(ms[0])
	events(t, s.url, "b", func(f seen) bool { return f.Count == count+1 })
	if truth := check(t, s.url, "b"); !truth.Equal || truth.Log.Count != count+1 {
		t.Errorf("%+v", truth)
	}
	// A cent too much is found.
	board.Falsify(s.server, "b", 1)
	if truth := check(t, s.url, "b"); truth.Equal || truth.Board.Amount == truth.Log.Amount {
		t.Errorf("a cent too much: %+v", truth)
	}
}

func TestABoardWaitsForItsTopicAndTakesNewPartitions(t *testing.T) {
	name := newName()
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"b": {Topic: name}}})
	events(t, s.url, "b", func(f seen) bool {
		return f.State == "reading" && strings.Contains(f.Note, "topic "+name+" is not in the mirror yet")
	})
	l := newLog(t, name, 1)
	l.write(msg{body: "x"}, msg{body: "x"})
	events(t, s.url, "b", func(f seen) bool { return f.State == "live" && f.Count == 2 && f.Note == "" })
	resp, err := kadm.NewClient(l.client).UpdatePartitions(deadline(t), 3, l.kafka())
	if err := errors.Join(err, resp.Error()); err != nil {
		t.Fatal(err)
	}
	l.client, l.parts = newWriter(t), 3 // the other one still knows a single partition
	for range 7 {
		l.write(msg{body: "x"})
	}
	events(t, s.url, "b", func(f seen) bool { return f.State == "live" && f.Count == 9 })
	if truth := check(t, s.url, "b"); !truth.Equal || len(truth.Offsets) != 3 {
		t.Errorf("%+v", truth)
	}
}

// With a canald that copies, a quiet topic is known to be up to date; when the mirror stands,
// what the board knows grows old though Kafka is there. Brokers tell the backlog of the
// topic's groups.
func TestSourcesTellAQuietTopicFromAMirrorThatStands(t *testing.T) {
	l := newLog(t, newName(), 2)
	l.write(msg{body: "x", at: time.Now().Add(-time.Hour)})
	var stands atomic.Bool
	canald := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stands.Load() {
			fmt.Fprint(w, `{"stores":[{"store":"main","state":"halted","connected":false,"lag_seconds":0}]}`)
			return
		}
		fmt.Fprint(w, `{"stores":[{"store":"main","state":"copying","connected":true,"lag_seconds":0.2}]}`)
	}))
	defer canald.Close()
	notifyd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/notify.v1.Admin/ListGroups" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"groups":[{"name":"stock","topics":[%q],"pending":"7","inFlight":"2"},{"name":"other","topics":["x"],"pending":"1"}]}`, l.topic)
	}))
	defer notifyd.Close()
	s := serve(t, "", board.Config{
		Canald: []string{strings.TrimPrefix(canald.URL, "http://")}, Notifyd: []string{strings.TrimPrefix(notifyd.URL, "http://")},
		Boards: map[string]board.Board{"b": {Topic: l.topic}},
	})
	f := events(t, s.url, "b", func(f seen) bool {
		return f.State == "live" && f.Now-f.AsOf < 3000 && len(f.Mirror) == 1 && len(f.Groups) > 0
	})
	if len(f.Groups) != 1 || f.Groups[0].Group != "stock" || f.Groups[0].Waiting != 7 || f.Count != 1 {
		t.Errorf("%+v", f)
	}
	if len(f.Silent) > 0 {
		t.Errorf("%q", f.Silent)
	}
	notifyd.Close()
	events(t, s.url, "b", func(f seen) bool {
		return len(f.Silent) == 1 && f.Silent[0] == "notifyd "+notifyd.Listener.Addr().String()+" does not answer"
	})
	stands.Store(true)
	f = events(t, s.url, "b", func(f seen) bool { return f.Now-f.AsOf > 3000 })
	if f.Mirror[0].State != "halted" || f.Count != 1 {
		t.Errorf("%+v", f)
	}
}

// Pages are whole, and nothing is loaded from elsewhere.
func TestPagesAreServed(t *testing.T) {
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"one": {Topic: newName(), Title: "<One>"}, "two": {Topic: newName()}}})
	for path, want := range map[string]string{
		"/": "&lt;One&gt;", "/boards/one": "/page/board.js", "/page/board.js": "EventSource", "/page/board.css": "prefers-color-scheme",
		"/page/uPlot.iife.min.js": "v1.6.32", "/page/uPlot.LICENSE": "The MIT License",
	} {
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		_, err = bufio.NewReader(resp.Body).WriteTo(&body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body.String(), want) {
			t.Errorf("%s: %s, %v, %d bytes without %q", path, resp.Status, err, body.Len(), want)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", path, csp)
		}
	}
	resp, err := http.Get(s.url + "/boards/three")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a board that is not there: %s", resp.Status)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/boards/one/truth", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "http://elsewhere.example")
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a check that another site's page asks for: %s", resp.Status)
	}
}
