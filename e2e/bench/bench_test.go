package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(childMain(role))
	}
	os.Exit(m.Run())
}

func TestQuickModeMeasuresEveryNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.md")
	o, err := parse([]string{"-quick", "-report", path, "-dir", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"pipelined streams", "unary publishers", "single publish", "naive pipeline", "without exactly-once", "raw event streaming", "commit to readable in the mirror at 2000 msg/s",
		"with the mirror / without", "ten stream consumers", "replication connections, durable", "replication connections, sync_binlog=0", "publish to push", "changed in a browser", "frames a second", "bare client library", "window aggregation",
		"with 10 filters", "publish rate beside", "p99 of a publish", "checks beside", "size of their tables", "outbox row",
		"push to 1 group", "push to 3 groups", "credit 1000", "rolling restarts", "messages lost", "one of five groups down", "all five groups down", "of a drain", "beside a drain",
		"messages pending", "memory of notifyd"} {
		if !strings.Contains(out.String(), line) || !strings.Contains(string(text), line) {
			t.Errorf("no line about %q in\n%s\n%s", line, out.String(), text)
		}
	}
}

// A later round finds what an earlier one left behind: topics, groups and their offsets.
func TestASecondPairEndsAsTheFirst(t *testing.T) {
	o, err := parse([]string{"-quick", "-only", "readers", "-dir", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.pairs = 2
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, o, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if want := "ten stream consumers"; !strings.Contains(out.String(), want) {
		t.Errorf("no line about %q in\n%s", want, out.String())
	}
}

func TestRatioIsTheMedianOfPairsAndMissesWhatIsRequired(t *testing.T) {
	pairs := []pair{{50, 100}, {10, 100}, {90, 100}}
	if n := compared("x", "msg/s", pairs, atLeast(0.5)); n.missed || n.verdict() != "met" || !strings.HasPrefix(n.value, "0.50 ") {
		t.Errorf("%+v", n)
	}
	if n := compared("x", "msg/s", pairs, atLeast(0.6)); n.verdict() != "MISSED" {
		t.Errorf("%+v", n)
	}
	if n := compared("x", "ms", []pair{{21, 10}}, atMost(2)); n.verdict() != "MISSED" {
		t.Errorf("%+v", n)
	}
}

func TestDelayIsJudgedByTheMedianOfTheRunsP99(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	runs := []delay{{ms(1), ms(500), ms(600)}, {ms(2), ms(90), ms(99)}, {ms(3), ms(80), ms(99)}}
	if n := distributed("x", runs, ms(100), ""); n.verdict() != "met" || n.value != "p50 2.0 ms, p99 90.0 ms" {
		t.Errorf("%+v", n)
	}
	if n := distributed("x", runs, ms(89), ""); n.verdict() != "MISSED" {
		t.Errorf("%+v", n)
	}
	if n := distributed("x", runs, 0, ""); n.verdict() != "" {
		t.Errorf("%+v", n)
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	var samples []time.Duration
	for i := 100; i > 0; i-- {
		samples = append(samples, time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100, 0.001: 1} {
		if got := percentile(samples, p); got != want {
			t.Errorf("percentile %g: %d, want %d", p, got, want)
		}
	}
	if percentile(nil, 0.5) != 0 || !math.IsNaN(median(nil)) || median([]float64{4, 1, 3, 2}) != 2.5 || median([]float64{3, 1, 2}) != 2 {
		t.Error("the edges are wrong")
	}
}

func TestMessagesOfOneSeedAreTheSameAndHaveTheSize(t *testing.T) {
	a, b := newMessages(7), newMessages(7)
	for range 100 {
		x, y := a.message(), b.message()
		if len(x.Body) != bodyBytes || x.Key != y.Key || !slices.Equal(x.Body, y.Body) {
			t.Fatalf("%q %q", x.Body, y.Body)
		}
	}
	if bytes.Equal(newMessages(8).body(), newMessages(7).body()) {
		t.Error("two seeds give one message")
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-only", "publish,x"}, {"-pairs", "0"}, {"more"}, {"-nonsense"}, {"-calls", "soap"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
