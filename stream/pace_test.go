package stream_test

import (
	"context"
	"testing"
	"time"

	"notifymirror/stream"
)

func TestReplayKeepsTheOriginalPaceTimesSpeed(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name) // a second between messages
	m.abort(0, "never")
	m.commit(0, "a")
	m.commit(1, "b")
	m.commit(0, "c", "d")
	const speed = 10
	begin := time.Now()
	var last time.Time
	c := newConsumer(t, stream.Config{Topics: []string{name}, End: stream.Newest(), Speed: speed})
	for r, err := range c.Records(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		// No record is early, however slow this machine is.
		if due := r.CommitTime.Sub(at(1)) / speed; time.Since(begin) < due {
			t.Errorf("%s came after %s, due after %s", r.Body, time.Since(begin), due)
		}
		if r.CommitTime.Before(last) {
			t.Logf("%s after a later one of the other partition", r.Body)
		}
		last = r.CommitTime
	}
	if done, all := c.Progress(); done != all || all < 4 {
		t.Errorf("progress %d of %d", done, all)
	}
}

func TestAStopDoesNotWaitForAPace(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "b")
	s := newSeen()
	c := newConsumer(t, stream.Config{Topics: []string{name}, Speed: 1e-9, End: stream.Newest(), Handler: s.handle, StopTimeout: time.Hour})
	ctx, cancel := context.WithCancel(deadline(t))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.count(t, 1)
	if done, all := c.Progress(); all != 2 || done > 1 {
		t.Errorf("progress %d of %d", done, all)
	}
	cancel()
	if err := <-done; err != nil || len(s.now()) != 1 {
		t.Errorf("handled %q, error %v", s.now(), err)
	}
}

func TestASpeedIsOfAReplayOnly(t *testing.T) {
	for _, cfg := range []stream.Config{{Speed: -1}, {Speed: 1, Group: "g"}} {
		cfg.Brokers, cfg.Topics = brokers(), []string{"t"}
		if _, err := stream.New(cfg); err == nil {
			t.Errorf("speed %v in group %q is accepted", cfg.Speed, cfg.Group)
		}
	}
}
