package window

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newWindows(t testing.TB, cfg Config) *Windows {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func at(second int64) time.Time { return time.Unix(second, 0) }

// naive is the reference: it keeps every event, and looks at all of them each time.
type naive struct {
	cfg     Config
	events  []Event
	latest  map[int32]time.Time
	mark    time.Time // zero: none
	handed  map[time.Time]bool
	dropped map[int][]time.Time // event's number -> starts of windows that it missed
}

func (n *naive) starts(t time.Time) (all []time.Time) {
	slide := n.cfg.Slide
	if slide == 0 {
		slide = n.cfg.Size
	}
	for s := t.Truncate(slide).Add(-2 * n.cfg.Size); !s.After(t); s = s.Add(time.Second) {
		if s.UnixNano()%int64(slide) == 0 && t.Before(s.Add(n.cfg.Size)) {
			all = append(all, s)
		}
	}
	return all
}

func (n *naive) closed(start time.Time) bool {
	return !n.mark.IsZero() && !start.Add(n.cfg.Size).After(n.mark)
}

func (n *naive) advance(input int32, t time.Time) {
	if old, ok := n.latest[input]; !ok || t.After(old) {
		n.latest[input] = t
	}
	if len(n.latest) < n.cfg.Inputs {
		return
	}
	times := slices.SortedFunc(maps.Values(n.latest), time.Time.Compare)
	if mark := times[0].Add(-n.cfg.Lateness); mark.After(n.mark) {
		n.mark = mark
	}
}

func (n *naive) add(e Event) (late []time.Time) {
	for _, s := range n.starts(e.Time) {
		if n.closed(s) {
			late = append(late, s)
		}
	}
	n.dropped[len(n.events)] = late
	n.events = append(n.events, e)
	n.advance(e.Input, e.Time)
	return late
}

// windows are the contents of all windows, or of those that are due, as text.
func (n *naive) windows(due bool) []string {
	cells := map[string][]Event{}
	for i, e := range n.events {
		for _, s := range n.starts(e.Time) {
			if n.handed[s] || slices.Contains(n.dropped[i], s) || due && !n.closed(s) {
				continue
			}
			name := fmt.Sprintf("%010d %s", s.Unix(), e.Key)
			cells[name] = append(cells[name], e)
		}
	}
	var all []string
	for name, events := range cells {
		amounts := make([]int64, len(events))
		items := map[string]bool{}
		var sum int64
		for i, e := range events {
			amounts[i] = e.Amount
			sum += e.Amount
			items[string(e.Item)] = true
		}
		all = append(all, fmt.Sprintf("%s: %d %d %d %d %.3f %d", name, len(events), sum, slices.Min(amounts), slices.Max(amounts), float64(sum)/float64(len(events)), len(items)))
	}
	slices.Sort(all)
	return all
}

func text(results []Result) (all []string) {
	for _, r := range results {
		for key, a := range r.Keys {
			all = append(all, fmt.Sprintf("%010d %s: %d %d %d %d %.3f %d", r.Start.Unix(), key, a.Count, a.Sum, a.Min, a.Max, a.Average(), a.Distinct()))
		}
	}
	slices.Sort(all)
	return all
}

func TestWindowsAreThoseOfANaiveReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slide := rapid.Int64Range(1, 8).Draw(t, "slide")
		cfg := Config{
			Size:     time.Duration(rapid.Int64Range(slide, 20).Draw(t, "size")) * time.Second,
			Slide:    time.Duration(slide) * time.Second,
			Lateness: time.Duration(rapid.Int64Range(0, 10).Draw(t, "lateness")) * time.Second,
			Inputs:   rapid.IntRange(1, 3).Draw(t, "inputs"),
			MaxCells: 1 << 20, Distinct: true,
		}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := &naive{cfg: cfg, latest: map[int32]time.Time{}, handed: map[time.Time]bool{}, dropped: map[int][]time.Time{}}
		late := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			second := rapid.Int64Range(1000, 1100).Draw(t, "second")
			input := rapid.Int32Range(0, int32(cfg.Inputs)-1).Draw(t, "input")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				if err := w.Advance(input, at(second)); err != nil {
					t.Fatal(err)
				}
				n.advance(input, at(second))
			case 1:
				snapshot, err := w.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				if w, err = Restore(cfg, snapshot); err != nil {
					t.Fatal(err)
				}
			case 2, 3:
				want := n.windows(true)
				due := w.Due()
				if got := text(due); !slices.Equal(got, want) {
					t.Fatalf("due %q, want %q", got, want)
				}
				for _, r := range due {
					if n.handed[r.Start] || r.End.Sub(r.Start) != cfg.Size {
						t.Fatalf("window %v is handed out again, or has another length", r.Span)
					}
					n.handed[r.Start] = true
				}
			default:
				e := Event{
					Input: input, Time: at(second), Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"),
					Amount: rapid.Int64Range(-1000, 1000).Draw(t, "amount"), Item: []byte(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "item")),
				}
				missed, err := w.Add(e)
				if err != nil {
					t.Fatal(err)
				}
				want := n.add(e)
				if len(want) > 0 {
					late++
				}
				if len(missed) != len(want) || len(want) > 0 && !missed[0].Start.Equal(want[0]) {
					t.Fatalf("late for %v, want %v", missed, want)
				}
			}
			if got, want := text(w.Open()), n.windows(false); !slices.Equal(got, want) {
				t.Fatalf("open %q, want %q", got, want)
			}
			if !w.Watermark().Equal(n.mark) || w.Late() != late || w.Cells() != len(n.windows(false)) {
				t.Fatalf("watermark %v, late %d, cells %d; want %v, %d, %d", w.Watermark(), w.Late(), w.Cells(), n.mark, late, len(n.windows(false)))
			}
		}
	})
}

func TestAnErrorCountsTheEventNowhere(t *testing.T) {
	w := newWindows(t, Config{Size: 10 * time.Second, Slide: 5 * time.Second, MaxCells: 10_000})
	add := func(e Event) error { _, err := w.Add(e); return err }
	if err := add(Event{Time: at(7), Key: "0", Amount: math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 5000; i++ {
		if err := add(Event{Time: at(7), Key: fmt.Sprint(i), Amount: math.MinInt64}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := w.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		event Event
		want  error
	}{
		{Event{Time: at(7), Key: "one more"}, ErrTooManyKeys},
		{Event{Time: at(12), Key: "0", Amount: 1}, ErrOverflow}, // one of its windows is new, the other full
		{Event{Time: at(7), Key: "1", Amount: -1}, ErrOverflow},
		{Event{Time: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrTime},
		{Event{}, ErrTime},
	} {
		if err := add(c.event); !errors.Is(err, c.want) {
			t.Errorf("%v: error %v, want %v", c.event, err, c.want)
		}
		if after, err := w.Snapshot(); err != nil || string(after) != string(before) {
			t.Errorf("%v: the state is another; error %v", c.event, err)
		}
	}
	if err := w.Advance(0, time.Time{}); !errors.Is(err, ErrTime) {
		t.Errorf("advance to the zero time: error %v", err)
	}
	if _, err := w.Open()[0].Total(); !errors.Is(err, ErrOverflow) {
		t.Errorf("total: error %v", err)
	}
}

func TestTopAndTotalAreOfAllKeys(t *testing.T) {
	w := newWindows(t, Config{Size: time.Minute, Distinct: true})
	for i, e := range []Event{{Key: "a", Amount: 3}, {Key: "b", Amount: -5}, {Key: "c", Amount: 3}, {Key: "d", Amount: 7}, {Key: "a", Amount: 0}} {
		e.Time, e.Item = at(30), []byte{byte(i % 3)}
		if _, err := w.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	r := w.Open()[0]
	total, err := r.Total()
	if err != nil || total.Count != 5 || total.Sum != 8 || total.Min != -5 || total.Max != 7 || total.Average() != 1.6 || total.Distinct() != 3 {
		t.Errorf("total %+v, %d distinct, error %v", total, total.Distinct(), err)
	}
	var top []string
	for _, k := range r.Top(3, func(a Aggregate) int64 { return a.Sum }) {
		top = append(top, fmt.Sprint(k.Key, k.Sum))
	}
	if strings.Join(top, " ") != "d7 a3 c3" || len(r.Top(9, func(a Aggregate) int64 { return a.Count })) != 4 || len(r.Top(-1, func(a Aggregate) int64 { return a.Sum })) != 0 {
		t.Errorf("top %q", top)
	}
	if r.String() != "1970-01-01T00:00:00Z/1970-01-01T00:01:00Z" {
		t.Errorf("span %s", r)
	}
}

func TestADistinctCountIsNearTheTruth(t *testing.T) {
	w := newWindows(t, Config{Size: time.Hour, Distinct: true})
	const n = 100_000
	for i := range n {
		if _, err := w.Add(Event{Time: at(1), Item: fmt.Appendf(nil, "user %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := w.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot) > 5000 {
		t.Errorf("a sketch takes %d bytes", len(snapshot))
	}
	got := float64(w.Open()[0].Keys[""].Distinct())
	if math.Abs(got-n) > 0.064*n { // four standard errors
		t.Errorf("about %.0f of %d", got, n)
	}
}

func TestSnapshotsOfOtherWindowsAreRefused(t *testing.T) {
	cfg := Config{Size: time.Minute, Distinct: true}
	w := newWindows(t, cfg)
	if _, err := w.Add(Event{Time: at(1), Key: "k", Amount: 5, Item: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := w.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range snapshot {
		damaged := slices.Clone(snapshot)
		damaged[i] ^= 0x10
		if _, err := Restore(cfg, damaged); !errors.Is(err, ErrSnapshot) {
			t.Errorf("byte %d damaged: error %v", i, err)
		}
		if _, err := Restore(cfg, snapshot[:i]); i > 0 && !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut at %d: error %v", i, err)
		}
	}
	for _, other := range []Config{{Size: time.Hour, Distinct: true}, {Size: time.Minute, Slide: time.Second, Distinct: true}, {Size: time.Minute}} {
		if _, err := Restore(other, snapshot); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%+v: error %v", other, err)
		}
	}
	if w, err := Restore(cfg, nil); err != nil || w.Cells() != 0 {
		t.Errorf("no snapshot: error %v", err)
	}
}

func TestAllThatIsWrongWithAConfigurationIsSaid(t *testing.T) {
	_, err := New(Config{Slide: -1, Lateness: -1})
	for _, field := range []string{"Size:", "Slide:", "Lateness"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	for _, cfg := range []Config{{Size: time.Second, Slide: time.Minute}, {Size: time.Hour, Slide: time.Millisecond}, {Size: 1, Inputs: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// FuzzRestore: whatever the bytes, with a right checksum too, nothing panics.
func FuzzRestore(f *testing.F) {
	cfg := Config{Size: time.Minute, Distinct: true}
	w := newWindows(f, cfg)
	for i := range 3 {
		if _, err := w.Add(Event{Time: at(int64(i) * 50), Key: fmt.Sprint(i), Item: []byte("x")}); err != nil {
			f.Fatal(err)
		}
	}
	snapshot, err := w.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(snapshot[:len(snapshot)-4])
	f.Add([]byte{snapshotVersion})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := newWindows(t, cfg)
		r := reader{rest: body}
		if w.restore(&r) == nil {
			if _, err := w.Snapshot(); err != nil {
				t.Error(err)
			}
		}
	})
}

// BenchmarkAdd counts events of 100 keys in sliding windows, five for each event.
func BenchmarkAdd(b *testing.B) {
	w := newWindows(b, Config{Size: 5 * time.Second, Slide: time.Second})
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := w.Add(Event{Time: time.UnixMilli(int64(i)), Key: keys[i%len(keys)], Amount: 1}); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			w.Due()
		}
	}
}

// Windows at the ends of the years that are known do not wrap around.
func TestTheLongestWindowsHoldTheFirstAndTheLastTime(t *testing.T) {
	for _, cfg := range []Config{{Size: longest}, {Size: time.Second, Lateness: longest}, {Size: longest, Slide: longest / 1000, Lateness: longest}} {
		w := newWindows(t, cfg)
		for _, at := range []time.Time{time.Date(1700, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2200, 12, 30, 0, 0, 0, 0, time.UTC)} {
			late, err := w.Add(Event{Time: at})
			if err != nil || len(late) > 0 {
				t.Errorf("%+v at %s: late for %v, error %v", cfg, at, late, err)
			}
			open := w.Open()
			if last := open[len(open)-1]; last.Start.After(at) || !last.End.After(at) {
				t.Errorf("%+v at %s: the last window is %v", cfg, at, last.Span)
			}
		}
	}
	for _, cfg := range []Config{{Size: longest + 1}, {Size: 1, Lateness: longest + 1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
