package stream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

var errStop = errors.New("stop here")

// A reading with an end and a group goes on where it was ended, to the end of its first run.
func TestAReadingWithAnEndIsGoneOnWithAndForgottenAtItsEnd(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a0", "b0", "c0")
	m.commit(1, "a1")
	group := "reading-" + name
	one := func(start, end stream.Position, stopAt string) (bodies string, resumed bool, err error) {
		t.Helper()
		var got []string
		cfg := stream.Config{Topics: []string{name}, Group: group, Start: start, End: end, CommitInterval: time.Hour}
		turn := make(chan struct{}, 1)
		cfg.Handler = func(_ context.Context, r stream.Record) error {
			turn <- struct{}{}
			defer func() { <-turn }()
			if string(r.Body) == stopAt {
				return errStop
			}
			got = append(got, string(r.Body))
			return nil
		}
		c := newConsumer(t, cfg)
		err = c.Run(deadline(t))
		return strings.Join(got, " "), c.Resumed(), err
	}

	got, resumed, err := one(stream.Oldest(), stream.Newest(), "b0")
	if !errors.Is(err, errStop) || resumed || !strings.Contains(got, "a0") {
		t.Fatalf("first run: %q, resumed %t, error %v", got, resumed, err)
	}
	if next := committed(t, group, name, 0); next != 1 {
		t.Errorf("the group remembers offset %d, want 1", next)
	}
	m.commit(0, "later0")
	m.commit(1, "later1")
	if _, err := kadm.NewClient(client(t)).CreatePartitions(deadline(t), 1, record.TopicName("", name)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "third partition", func() bool {
		td, err := kadm.NewClient(client(t)).ListTopics(deadline(t), record.TopicName("", name))
		return err == nil && len(td[record.TopicName("", name)].Partitions) == 3
	})
	grown := newMirror(t, name)
	grown.seq = m.seq
	grown.commit(2, "of a partition that is new")
	withA1 := strings.Contains(got, "a1")

	got, resumed, err = one(stream.Newest(), stream.Oldest(), "") // what was begun counts
	want := "b0 c0"
	if !withA1 {
		got, want = sorted(got), "a1 b0 c0"
	}
	if err != nil || !resumed || got != want {
		t.Errorf("second run: %q, resumed %t, error %v, want %q", got, resumed, err, want)
	}
	if next := committed(t, group, name, 0); next != -1 {
		t.Errorf("the group still remembers offset %d", next)
	}
	got, resumed, err = one(stream.Oldest(), stream.AtTime(at(3)), "")
	if got = sorted(got); err != nil || resumed || got != "a0 b0" {
		t.Errorf("a new one: %q, resumed %t, error %v", got, resumed, err)
	}
}

func sorted(words string) string {
	all := strings.Fields(words)
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestAnEndByTimeHoldsInTheNextRunToo(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a", "b", "c", "d")
	calls := 0
	cfg := stream.Config{Topics: []string{name}, Group: "until-" + name, End: stream.AtTime(at(4))}
	cfg.Handler = func(_ context.Context, r stream.Record) error {
		if calls++; calls == 2 {
			return errStop
		}
		return nil
	}
	if err := newConsumer(t, cfg).Run(deadline(t)); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	s := newSeen()
	cfg.End, cfg.Handler = stream.Newest(), s.handle
	if err := newConsumer(t, cfg).Run(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.now(), " "); got != "b c" {
		t.Errorf("read %q, want b and c", got)
	}
}

func TestOffsetsOfAnotherKindOfGroupAreNotTakenForAReading(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a")
	group := "members-" + name
	s := newSeen()
	r := run(t, stream.Config{Topics: []string{name}, Group: group, Handler: s.handle})
	s.count(t, 1)
	r.stop(t)
	err := newConsumer(t, stream.Config{Topics: []string{name}, Group: group, End: stream.Newest(), Handler: s.handle}).Run(deadline(t))
	if err == nil || !strings.Contains(err.Error(), "take another name") {
		t.Errorf("error %v", err)
	}
}
