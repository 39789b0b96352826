package window

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/axiomhq/hyperloglog"
)

const (
	// maxOverlap is in how many windows an event may be.
	maxOverlap = 1000
	// longest bounds Size and Lateness, so that every end of a window is an int64 of nanoseconds.
	longest = 20 * 365 * 24 * time.Hour
)

// Config says what windows there are. Size must be given; the zero value of every other
// field is its default.
type Config struct {
	// Size is a window's length, at most 20 years.
	Size time.Duration
	// Slide is from the start of one window to that of the next: less than Size, and they
	// overlap. Default Size: each time is in one window. At least a thousandth of Size.
	Slide time.Duration
	// Lateness is how long a window waits for stragglers, in event time, at most 20
	// years. Default 0.
	Lateness time.Duration
	// Inputs is how many inputs (partitions) must be heard of before a window closes.
	// Default 1.
	Inputs int
	// MaxCells bounds the state: keys of all open windows together. Default 10,000.
	MaxCells int
	// Distinct says that items are counted.
	Distinct bool
}

func (c Config) withDefaults() (Config, error) {
	if c.Slide == 0 {
		c.Slide = c.Size
	}
	if c.Inputs == 0 {
		c.Inputs = 1
	}
	if c.MaxCells == 0 {
		c.MaxCells = 10_000
	}
	var errs []error
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New("window: "+text))
		}
	}
	wrong(c.Size <= 0 || c.Size > longest, "Size: must be above 0 and at most 20 years")
	wrong(c.Lateness > longest, "Lateness: must be at most 20 years")
	wrong(c.Slide < 0 || c.Slide > c.Size, "Slide: must be above 0 and not above Size")
	wrong(c.Slide > 0 && c.Size/c.Slide > maxOverlap, "Slide: must be at least a thousandth of Size")
	wrong(c.Lateness < 0 || c.Inputs < 0 || c.MaxCells < 0, "a negative Lateness, Inputs or MaxCells")
	return c, errors.Join(errs...)
}

// An Event is what is counted.
type Event struct {
	// Input is where it came from: the partition.
	Input int32
	// Time is the event time, which decides on the window.
	Time time.Time
	// Key is what aggregates are kept by: one value of a dimension, or empty.
	Key string
	// Amount is summed, in minor units such as cents.
	Amount int64
	// Item is what Distinct counts. The bytes are not kept.
	Item []byte
}

// Windows are open windows and what is in them. It is for one goroutine at a time.
type Windows struct {
	cfg   Config
	open  map[int64]map[string]Aggregate // by start
	cells int
	// inputs are the latest event time of each input.
	inputs map[int32]int64
	// mark is the watermark, once there is one. It never goes back.
	mark   int64
	marked bool
	late   int64
	// merged and dropped are events that came too late for a part of their windows, or for
	// all, and that no Metrics were told of.
	merged, dropped int64

	spans []int64 // reused
}

// New makes windows with nothing in them. All that is wrong with the configuration is
// reported at once.
func New(cfg Config) (*Windows, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Windows{cfg: cfg, open: map[int64]map[string]Aggregate{}, inputs: map[int32]int64{}}, nil
}

// Add counts an event in each of its windows that is open, and then moves the watermark.
// It returns the windows that it came too late for, whose results are out: route the event
// together with them. An error wraps ErrTooManyKeys, ErrOverflow or ErrTime, and leaves
// everything as it was.
func (w *Windows) Add(e Event) (late []Span, err error) {
	at, err := nanos(e.Time)
	if err != nil {
		return nil, err
	}
	w.spans = starts(w.spans[:0], at, int64(w.cfg.Size), int64(w.cfg.Slide))
	fresh := 0
	for _, start := range w.spans {
		if w.closed(start) {
			late = append(late, w.span(start))
			continue
		}
		cell, ok := w.open[start][e.Key]
		if !ok {
			fresh++
		}
		if _, err := cell.with(e.Amount); err != nil {
			return nil, fmt.Errorf("window %v key %q: %w", w.span(start), e.Key, err)
		}
	}
	if w.cells+fresh > w.cfg.MaxCells {
		return nil, fmt.Errorf("%w: the limit is %d, and key %q would be one more", ErrTooManyKeys, w.cfg.MaxCells, e.Key)
	}
	for _, start := range w.spans[len(late):] { // the closed ones are the first
		w.count(start, e)
	}
	w.countLate(len(late), len(w.spans))
	w.cells += fresh
	w.advance(e.Input, at)
	return late, nil
}

// countLate counts an event that came too late for some of its windows.
func (w *Windows) countLate(late, all int) {
	switch late {
	case 0:
		return
	case all:
		w.dropped++
	default:
		w.merged++
	}
	w.late++
}

// count puts an event into an open window; the sum was checked.
func (w *Windows) count(start int64, e Event) {
	keys := w.open[start]
	if keys == nil {
		keys = map[string]Aggregate{}
		w.open[start] = keys
	}
	cell, _ := keys[e.Key].with(e.Amount)
	if w.cfg.Distinct {
		if cell.items == nil {
			cell.items, _ = hyperloglog.NewSketch(precision, true) // the precision is in its range
		}
		cell.items.Insert(e.Item)
	}
	keys[e.Key] = cell
}

// Advance says that an input has nothing more before a time. It is for inputs that are
// idle, or have ended. The error wraps ErrTime.
func (w *Windows) Advance(input int32, to time.Time) error {
	at, err := nanos(to)
	if err == nil {
		w.advance(input, at)
	}
	return err
}

func (w *Windows) advance(input int32, at int64) {
	latest, known := w.inputs[input]
	if known && at <= latest {
		return
	}
	w.inputs[input] = at
	if len(w.inputs) < w.cfg.Inputs {
		return
	}
	slowest := at
	for _, t := range w.inputs {
		slowest = min(slowest, t)
	}
	if mark := slowest - int64(w.cfg.Lateness); !w.marked || mark > w.mark {
		w.mark, w.marked = mark, true
	}
}

// Watermark is the event time up to which all windows are closed; the zero time while
// there is none.
func (w *Windows) Watermark() time.Time {
	if !w.marked {
		return time.Time{}
	}
	return time.Unix(0, w.mark)
}

// Late is how many events came too late for one of their windows or more.
func (w *Windows) Late() int64 { return w.late }

// Cells is how many keys all open windows have together.
func (w *Windows) Cells() int { return w.cells }

// Due takes out the windows that are closed, the earliest first.
func (w *Windows) Due() []Result {
	var due []Result
	for _, start := range w.starts() {
		if !w.closed(start) {
			break
		}
		due = append(due, Result{w.span(start), w.open[start]})
		w.cells -= len(w.open[start])
		delete(w.open, start)
	}
	return due
}

// Open are the windows that are not handed out, as they stand, the earliest first. The
// results are the caller's but for their distinct counts, which grow on.
func (w *Windows) Open() []Result {
	open := make([]Result, 0, len(w.open))
	for _, start := range w.starts() {
		open = append(open, Result{w.span(start), maps.Clone(w.open[start])})
	}
	return open
}

func (w *Windows) starts() []int64 { return slices.Sorted(maps.Keys(w.open)) }

func (w *Windows) closed(start int64) bool {
	return w.marked && start+int64(w.cfg.Size) <= w.mark
}

func (w *Windows) span(start int64) Span {
	return Span{time.Unix(0, start), time.Unix(0, start+int64(w.cfg.Size))}
}
