package board

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// connection is a viewer's connection of which a test decides when it takes a write.
type connection struct {
	mu       sync.Mutex
	header   http.Header
	deadline time.Time
	wrote    strings.Builder
	blocked  chan struct{} // nil: takes everything
	status   int
}

func newConnection() *connection { return &connection{header: http.Header{}} }

func (c *connection) Header() http.Header    { return c.header }
func (c *connection) WriteHeader(status int) { c.status = status }
func (c *connection) Flush()                 {}

func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *connection) Write(b []byte) (int, error) {
	c.mu.Lock()
	blocked, deadline := c.blocked, c.deadline
	c.mu.Unlock()
	if blocked != nil {
		late := time.NewTimer(time.Until(deadline))
		defer late.Stop()
		select {
		case <-blocked:
		case <-late.C:
			return 0, os.ErrDeadlineExceeded
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrote.Write(b)
}

func (c *connection) block() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = make(chan struct{})
	return c.blocked
}

func (c *connection) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Split(strings.TrimSuffix(c.wrote.String(), "\n\n"), "\n\n")
}

// viewer is a page that looks at a board of which a test makes the frames.
func viewer(t *testing.T, ctx context.Context, s *Server, l *live) (*connection, chan struct{}) {
	c, gone := newConnection(), make(chan struct{})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/boards/b/events", nil)
	go func() {
		defer close(gone)
		s.events(c, r, l)
	}()
	return c, gone
}

func aServer(t *testing.T) (*Server, *live) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{name: "b", feed: newFeed(), metrics: m}
	return &Server{boards: map[string]*live{"b": l}, metrics: m}, l
}

// A page that takes a frame late misses those between and gets the latest; nobody else
// notices. One that takes longer than writeLimit is cut off.
func TestASlowPageGetsTheLatestFrameAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := aServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		slow, slowGone := viewer(t, ctx, s, l)
		quick, quickGone := viewer(t, ctx, s, l)
		frames := func(from, to int) {
			for n := from; n <= to; n++ {
				l.feed.set(fmt.Appendf(nil, `{"n":%d}`, n))
				synctest.Wait()
			}
		}
		frames(1, 2)
		release := slow.block()
		frames(3, 1000)
		if got := quick.events(); len(got) != 1000 || got[999] != "id: 1000\ndata: {\"n\":1000}" {
			t.Errorf("the quick page has %d frames, the last %q", len(got), got[len(got)-1])
		}
		close(release)
		slow.blocked = nil
		synctest.Wait()
		if got := slow.events(); len(got) != 4 || !strings.HasPrefix(got[2], "id: 3\n") || !strings.HasPrefix(got[3], "id: 1000\n") {
			t.Errorf("the slow page has %q", got)
		}
		slow.block()
		l.feed.set([]byte(`{}`))
		time.Sleep(writeLimit - time.Millisecond)
		synctest.Wait()
		if n := l.viewers.Load(); n != 2 {
			t.Errorf("%d viewers before the limit", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		select {
		case <-slowGone:
		default:
			t.Error("the slow page is still waited for")
		}
		if n := testutil.ToFloat64(s.metrics.cut.WithLabelValues("b")); n != 1 || l.viewers.Load() != 1 {
			t.Errorf("%v cut off, %d viewers left", n, l.viewers.Load())
		}
		cancel()
		<-quickGone
		if n := testutil.ToFloat64(s.metrics.cut.WithLabelValues("b")); n != 1 || l.viewers.Load() != 0 {
			t.Errorf("after the end %v cut off, %d viewers left", n, l.viewers.Load())
		}
	})
}

func TestAPageThatComesLateGetsAWholeFrameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := aServer(t)
		l.feed.set([]byte(`{"n":1}`))
		l.feed.set([]byte(`{"n":2}`))
		ctx, cancel := context.WithCancel(t.Context())
		c, gone := viewer(t, ctx, s, l)
		synctest.Wait()
		if got := c.events(); len(got) != 1 || got[0] != "id: 2\ndata: {\"n\":2}" {
			t.Errorf("%q", got)
		}
		if h := c.header; h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
		cancel()
		<-gone
	})
}

func TestTooManyPagesAreRefused(t *testing.T) {
	s, l := aServer(t)
	l.viewers.Store(mostViewers)
	c, gone := viewer(t, t.Context(), s, l)
	<-gone
	if c.status != http.StatusServiceUnavailable || l.viewers.Load() != mostViewers {
		t.Errorf("status %d, %d viewers", c.status, l.viewers.Load())
	}
}

// Frames come once a second though nothing changes, so that a page can tell silence, and
// ten times a second at most though everything does, and then only while somebody looks.
func TestFramesComeSteadilyAndNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := aServer(t)
		l.sources, l.zone = newSources(Config{}), time.UTC
		l.board = (Board{Topic: "t"}).withDefaults("b")
		l.present(newTally(&l.board, l.now()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.show(ctx) }()
		frames := func(each func()) uint64 {
			before := l.feed.number
			for range 10_000 {
				each()
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			return l.feed.number - before
		}
		record := func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.tally.add(reading{at: time.Now(), counted: true})
		}
		if n := frames(func() {}); n < 9 || n > 11 {
			t.Errorf("%d frames in 10 s while nothing comes", n)
		}
		delay := func() int64 {
			var f frame
			if err := json.Unmarshal(l.feed.latest, &f); err != nil {
				t.Fatal(err)
			}
			return f.Delay
		}
		if n := frames(record); n < 9 || n > 11 || delay() != -1 {
			t.Errorf("%d frames in 10 s while nobody looks, the last with a delay of %d ms", n, delay())
		}
		l.viewers.Store(1)
		late := int64(0)
		if n := frames(func() { record(); late = max(late, delay()) }); n < 90 || n > 101 {
			t.Errorf("%d frames in 10 s at 1,000 records a second", n)
		}
		if late < 1 || late > 150 {
			t.Errorf("the largest delay shown is %d ms", late)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
