package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd/client"
)

// namedFailures is how many failed messages are named on stderr; -o jsonl names all.
const namedFailures = 20

// tally counts the outcomes of many publishes, names those that failed, and moves
// the progress bar.
type tally struct {
	a     *app
	begun time.Time
	bar   *progressbar.ProgressBar
	ahead int // weight not yet shown
	moved time.Time

	mu         sync.Mutex
	ok         int
	duplicates int
	bad        []resultJSON
	badCount   int
	cause      error // the first failure
	outErr     error // stdout is gone
}

func newTally(a *app, src *source) *tally {
	t := &tally{a: a, begun: time.Now()}
	if !a.quiet && terminal(a.err) {
		t.bar = progressbar.NewOptions64(src.size(),
			progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription("publishing"),
			progressbar.OptionShowBytes(src.many != nil),
			progressbar.OptionEnableColorCodes(false), progressbar.OptionClearOnFinish())
	}
	return t
}

func (t *tally) published(it item, r client.Published) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ok++
	if r.Duplicate {
		t.duplicates++
	}
	if t.a.format == "jsonl" {
		t.write(resultJSON{Item: it.name(), ID: r.ID, Duplicate: r.Duplicate, InMemory: r.InMemory})
	}
	t.step(it)
}

func (t *tally) failed(it item, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.badCount++; t.cause == nil {
		t.cause = err
	}
	r := resultJSON{Item: it.name(), Error: err.Error()}
	if t.a.format == "jsonl" {
		t.write(r)
	} else if len(t.bad) < namedFailures {
		t.bad = append(t.bad, r)
		if t.bar != nil {
			_ = t.bar.Clear()
		}
		fmt.Fprintf(t.a.err, "notify: %s: %s\n", r.Item, r.Error)
	}
	t.step(it)
}

func (t *tally) write(r resultJSON) {
	if err := t.a.printLine(r); err != nil && t.outErr == nil {
		t.outErr = err
	}
}

// step moves the bar, ten times a second at most: the bar measures its rate
// between calls.
func (t *tally) step(it item) {
	if t.bar == nil {
		return
	}
	t.ahead += it.weight
	if now := time.Now(); now.Sub(t.moved) >= 100*time.Millisecond {
		_ = t.bar.Add(t.ahead)
		t.ahead, t.moved = 0, now
	}
}

// finish prints the summary.
func (t *tally) finish() {
	if t.bar != nil {
		_ = t.bar.Finish()
	}
	if t.a.format == "json" {
		bad := t.bad
		if bad == nil {
			bad = []resultJSON{}
		}
		t.outErr = errors.Join(t.outErr, t.a.printJSON(map[string]any{
			"published": t.ok, "duplicates": t.duplicates, "failed": t.badCount, "failures": bad, "truncated": t.badCount > len(bad),
		}))
		return
	}
	if more := t.badCount - len(t.bad); more > 0 && t.a.format == "text" {
		fmt.Fprintf(t.a.err, "notify: and %d more; -o jsonl names all\n", more)
	}
	took := time.Since(t.begun)
	known := ""
	if t.duplicates > 0 {
		known = fmt.Sprintf(", %d of them known before", t.duplicates)
	}
	t.a.say("%d published%s, %d failed, %.1f s, %.0f/s", t.ok, known, t.badCount, took.Seconds(), float64(t.ok)/took.Seconds())
}

// verdict is the command's error. What ended the source or the publisher comes
// first; else some or all items failed.
func (t *tally) verdict(sendErr, runErr error) error {
	if err := errors.Join(t.outErr); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	if runErr != nil {
		sendErr = runErr // a send fails because the publisher has ended
	}
	if sendErr != nil && !errors.Is(sendErr, io.EOF) {
		if t.ok == 0 {
			return sendErr
		}
		err := explain(sendErr)
		return daemon.WithExitCode(daemon.ExitPartly, fmt.Errorf("stopped after %d messages: %w", t.ok, err))
	}
	if t.badCount == 0 {
		return nil
	}
	if t.ok == 0 {
		return daemon.WithExitCode(daemon.ExitCode(explain(t.cause)), fmt.Errorf("%d of %d failed", t.badCount, t.badCount))
	}
	return partly(t.badCount, t.ok+t.badCount)
}
