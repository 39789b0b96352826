package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
	"notifymirror/stream"
)

func TestCommittedRecordsAreReadInOrderAndAbortedOnesNever(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a", "b")
	m.abort(0, "lost1", "lost2")
	m.commit(0, "c")
	m.abort(0, "lost3")
	expect(t, stream.Config{Topics: []string{name}}, "a b c")
}

func TestTheEndIsFoundBehindMarkersAndAbortedRecords(t *testing.T) {
	name := topic(t, 4)
	m := newMirror(t, name)
	cfg := stream.Config{Topics: []string{name}}
	expect(t, cfg, "") // nothing at all
	m.abort(1, "lost")
	expect(t, cfg, "") // nothing to see
	m.commit(2, "a")
	m.abort(2, "lost")
	m.abort(2, "lost")
	expect(t, cfg, "a")
	m.begin()
	m.send(2, "open")
	expect(t, cfg, "a") // an open transaction is not waited for
	m.end(kgo.TryCommit)
	expect(t, cfg, "a open")
}

func TestReadingBeginsAndEndsWhereItIsTold(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "m1", "m2", "m3") // offsets 0 to 2, a marker, times 1 to 3
	m.commit(0, "m4", "m5")       // offsets 4 and 5, a marker, times 4 and 5
	cases := []struct {
		start, end stream.Position
		want       string
	}{
		{stream.Oldest(), stream.Newest(), "m1 m2 m3 m4 m5"},
		{stream.Position{}, stream.Newest(), "m1 m2 m3 m4 m5"},
		{stream.Newest(), stream.Newest(), ""},
		{stream.AtOffset(2), stream.Newest(), "m3 m4 m5"},
		{stream.AtOffset(3), stream.Newest(), "m4 m5"},
		{stream.AtOffset(1), stream.AtOffset(5), "m2 m3 m4"},
		{stream.AtOffset(3), stream.AtOffset(4), ""},
		{stream.AtOffset(7), stream.Newest(), ""},
		{stream.AtOffset(70), stream.Newest(), ""},
		{stream.Oldest(), stream.AtOffset(70), "m1 m2 m3 m4 m5"},
		{stream.AtTime(at(3)), stream.Newest(), "m3 m4 m5"},
		{stream.AtTime(at(3).Add(time.Millisecond)), stream.Newest(), "m4 m5"},
		{stream.AtTime(at(5).Add(time.Millisecond)), stream.Newest(), ""},
		{stream.AtTime(time.Now().Add(time.Hour)), stream.Newest(), ""},
		{stream.AtTime(at(2)), stream.AtTime(at(5)), "m2 m3 m4"},
		{stream.AtTime(time.Unix(0, 0)), stream.AtTime(at(1)), ""},
	}
	for _, c := range cases {
		got, err := read(t, stream.Config{Topics: []string{name}, Start: c.start, End: c.end})
		if err != nil || got != c.want {
			t.Errorf("%v to %v: read %q, error %v, want %q", c.start, c.end, got, err, c.want)
		}
	}
}

func TestAnOffsetBeyondTheEndIsWaitedFor(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a")
	s := newSeen()
	r := run(t, stream.Config{Topics: []string{name}, Start: stream.AtOffset(4), Handler: s.handle})
	m.commit(0, "b", "c", "d") // offsets 2, 3 and 4
	m.commit(0, "e")
	if got := strings.Join(s.count(t, 2), " "); got != "d e" {
		t.Errorf("read %q", got)
	}
	r.stop(t)
}

func TestWhatRetentionTookIsAnErrorAndOldestGoesOn(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a", "b", "c")
	admin := kadm.NewClient(client(t))
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: record.TopicName("", name), Partition: 0, At: 2})
	if _, err := admin.DeleteRecords(deadline(t), upTo); err != nil {
		t.Fatal(err)
	}
	_, err := read(t, stream.Config{Topics: []string{name}, Start: stream.AtOffset(1), End: stream.Newest()})
	if !errors.Is(err, stream.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), "the oldest is 2") {
		t.Errorf("error %v", err)
	}
	expect(t, stream.Config{Topics: []string{name}}, "c")
}

func TestUncommittedRecordsAreReadEarlyAndRepeatsDropped(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a")
	m.abort(0, "b", "c")
	m.commit(0, "b", "c", "d") // the mirror sends again what was aborted
	m.begin()
	m.send(0, "open")
	reg := prometheus.NewRegistry()
	expect(t, stream.Config{Topics: []string{name}, ReadUncommitted: true, Registerer: reg}, "a b c d open")
	m.end(kgo.TryCommit)
	want := "# HELP notify_stream_duplicates_total Repeats dropped by source and seq; only a reader of uncommitted records has them.\n" +
		"# TYPE notify_stream_duplicates_total counter\nnotify_stream_duplicates_total{group=\"\"} 2\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "notify_stream_duplicates_total"); err != nil {
		t.Error(err)
	}
}

func TestPartitionsAreReadSideBySideEachInOrder(t *testing.T) {
	const partitions, each = 4, 200
	name := topic(t, partitions)
	m := newMirror(t, name)
	for p := range int32(partitions) {
		var bodies []string
		for i := range each {
			bodies = append(bodies, fmt.Sprintf("%d-%03d", p, i))
		}
		m.commit(p, bodies...)
	}
	last := map[int32]string{}
	n := 0
	for r, err := range newConsumer(t, stream.Config{Topics: []string{name}, End: stream.Newest()}).Records(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if body := string(r.Body); body <= last[r.Partition] || !strings.HasPrefix(body, fmt.Sprint(r.Partition)) {
			t.Fatalf("partition %d: %s after %s", r.Partition, body, last[r.Partition])
		}
		last[r.Partition] = string(r.Body)
		n++
	}
	if n != partitions*each {
		t.Errorf("%d records", n)
	}

	// Side by side: no handler returns before one of each partition is in hand.
	together := make(chan struct{}, partitions)
	all := make(chan struct{})
	r := run(t, stream.Config{Topics: []string{name}, Handler: func(ctx context.Context, _ stream.Record) error {
		select {
		case together <- struct{}{}:
			if len(together) == partitions {
				close(all)
			}
		default:
		}
		select {
		case <-all:
		case <-ctx.Done():
		}
		return nil
	}})
	select {
	case <-all:
	case <-deadline(t).Done():
		t.Fatal("handlers of the partitions did not run at once")
	}
	r.stop(t)
}

func TestOnlyTheAssignedPartitionsAreRead(t *testing.T) {
	name := topic(t, 3)
	m := newMirror(t, name)
	m.commit(0, "p0")
	m.commit(1, "p1")
	m.commit(2, "p2")
	expect(t, stream.Config{Topics: []string{name}, Partitions: []int32{1}}, "p1")
}

func TestARecordIsTheMessageWithItsPlace(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(1, "a", "b")
	for r, err := range newConsumer(t, stream.Config{Topics: []string{name}, Start: stream.AtOffset(1)}).Records(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Topic != name || r.KafkaTopic != "notify."+name || r.Partition != 1 || r.Offset != 1 ||
			string(r.Body) != "b" || r.Source != m.source || r.Seq != 2 || !r.CommitTime.Equal(at(2)) {
			t.Errorf("record %+v", r)
		}
		break // without an end, the loop decides
	}
}

func TestForeignRecordsStopTheConsumerUnlessSkipped(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a")
	foreign(t, name, 0)
	m.commit(0, "b")
	got, err := read(t, stream.Config{Topics: []string{name}, End: stream.Newest()})
	if got != "a" || !errors.Is(err, record.ErrNotMirrored) || !strings.Contains(err.Error(), "offset 2") {
		t.Errorf("read %q, error %v", got, err)
	}
	expect(t, stream.Config{Topics: []string{name}, SkipForeign: true}, "a b")
}

func TestReadingDoesNotMakeTopics(t *testing.T) {
	k, err := embedded.Start(embedded.Config{Dir: t.TempDir(), AutoCreateTopics: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() }) // nothing is kept
	t.Setenv(kafkaEnv, k.Addrs()[0])
	if _, err := read(t, stream.Config{Topics: []string{"no-such-topic"}}); !errors.Is(err, stream.ErrUnknownTopic) {
		t.Errorf("error %v", err)
	}
	topics, err := kadm.NewClient(client(t)).ListTopics(deadline(t))
	if err != nil || topics.Has("notify.no-such-topic") {
		t.Errorf("reading made the topic; error %v", err)
	}
}

func TestWhatCannotBeReadIsSaidAtTheStart(t *testing.T) {
	_, err := read(t, stream.Config{Topics: []string{"no-such-topic"}})
	if !errors.Is(err, stream.ErrUnknownTopic) || !strings.Contains(err.Error(), "notify.no-such-topic") {
		t.Errorf("unknown topic: error %v", err)
	}
	_, err = read(t, stream.Config{Topics: []string{"x"}, Brokers: []string{"127.0.0.1:1"}})
	if !errors.Is(err, stream.ErrUnreachable) {
		t.Errorf("unreachable: error %v", err)
	}
	_, err = stream.New(stream.Config{Group: "g", Partitions: []int32{1}, Speed: 1})
	for _, field := range []string{"Brokers", "Topics", "Partitions", "Speed"} {
		if err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("bad configuration: %s is not named in %v", field, err)
		}
	}
}
