package stream_test

import (
	"context"
	"testing"
	"time"

	"notifymirror/stream"
)

// What was read up to some offsets is read on behind them, partition by partition, without
// a gap and without a repeat; the same offsets are an end.
func TestReadingBeginsAndEndsAtOffsetsOfEachPartition(t *testing.T) {
	name := topic(t, 3)
	m := newMirror(t, name)
	m.commit(0, "a0", "a1", "a2")
	m.commit(1, "b0", "b1")
	m.commit(2, "c0")
	at := func(rest stream.Position, offsets map[int32]int64) stream.Position {
		return stream.AtOffsets(offsets, rest)
	}
	one := func(partition int32, start, end stream.Position) string {
		t.Helper()
		got, err := read(t, stream.Config{Topics: []string{name}, Partitions: []int32{partition}, Start: start, End: end})
		if err != nil {
			t.Errorf("partition %d: %v", partition, err)
		}
		return got
	}
	for _, c := range []struct {
		partition  int32
		start, end stream.Position
		want       string
	}{
		{0, at(stream.Oldest(), map[int32]int64{0: 1, 1: 2}), stream.Newest(), "a1 a2"},
		{1, at(stream.Oldest(), map[int32]int64{0: 1, 1: 2}), stream.Newest(), ""},
		{2, at(stream.Oldest(), map[int32]int64{0: 1, 1: 2}), stream.Newest(), "c0"},
		{2, at(stream.Newest(), map[int32]int64{0: 1}), stream.Newest(), ""},
		{0, stream.Oldest(), at(stream.Oldest(), map[int32]int64{0: 2, 1: 1}), "a0 a1"},
		{1, stream.Oldest(), at(stream.Oldest(), map[int32]int64{0: 2, 1: 1}), "b0"},
		{2, stream.Oldest(), at(stream.Oldest(), map[int32]int64{0: 2, 1: 1}), ""},
		{1, at(stream.Oldest(), map[int32]int64{1: 1}), at(stream.Oldest(), map[int32]int64{1: 2}), "b1"},
	} {
		if got := one(c.partition, c.start, c.end); got != c.want {
			t.Errorf("partition %d: read %q, want %q", c.partition, got, c.want)
		}
	}
}

// What is known to be handled moves on while there is nothing to handle, and stands while
// there is.
func TestAConsumerKnowsUpToWhenAllIsHandled(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a")
	begun := time.Now()
	taken, goOn := make(chan struct{}), make(chan struct{})
	c := newConsumer(t, stream.Config{Topics: []string{name}, LagInterval: 20 * time.Millisecond, Handler: func(context.Context, stream.Record) error {
		taken <- struct{}{}
		<-goOn
		return nil
	}})
	if at := c.CaughtUp(); !at.IsZero() {
		t.Errorf("before the start: %s", at)
	}
	ctx, stop := context.WithCancel(deadline(t))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-taken
	if at := c.CaughtUp(); at.After(begun) {
		t.Errorf("with a record in hand: %s", at)
	}
	goOn <- struct{}{}
	waitFor(t, "instant of now", func() bool { return c.CaughtUp().After(begun) })
	m.commit(1, "b")
	<-taken
	// The look at Kafka that was under way may still come to its end.
	stands := c.CaughtUp()
	waitFor(t, "standstill", func() bool { before := stands; stands = c.CaughtUp(); return before.Equal(stands) })
	goOn <- struct{}{}
	waitFor(t, "later instant", func() bool { return c.CaughtUp().After(stands) })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
