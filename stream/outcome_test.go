package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

func TestARecordToBeTriedAgainHoldsUpItsPartitionOnly(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a", "b")
	m.commit(1, "x", "y")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: func(ctx context.Context, r stream.Record) error {
		_ = s.handle(ctx, r) // always nil
		others := slices.Contains(s.now(), "y")
		if string(r.Body) == "a" && !others {
			return fmt.Errorf("not yet: %w", stream.RetryAfter(time.Millisecond))
		}
		return nil
	}}
	r := run(t, cfg)
	got := s.until(t, "b", func(b []string) bool { return slices.Contains(b, "b") })
	r.stop(t)
	if a := slices.Index(got, "a"); a < 0 || a > slices.Index(got, "b") || slices.Index(got, "y") > slices.Index(got, "b") {
		t.Errorf("handled %q", got)
	}
	if got := committed(t, name, name, 0); got != 2 {
		t.Errorf("committed %d, want 2", got)
	}
}

func TestAStopDoesNotWaitForARetry(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "b")
	s := newSeen()
	r := run(t, stream.Config{Topics: []string{name}, Group: name, StopTimeout: time.Hour, Handler: func(ctx context.Context, r stream.Record) error {
		_ = s.handle(ctx, r) // always nil
		if string(r.Body) == "b" {
			return stream.RetryAfter(24 * time.Hour)
		}
		return nil
	}})
	s.count(t, 2)
	r.stop(t)
	if got := committed(t, name, name, 0); got != 1 {
		t.Errorf("committed %d, want 1: b is not handled", got)
	}
}

// rawTopic makes a topic whose name is nobody's but Kafka's, and returns it.
func rawTopic(t testing.TB) string {
	t.Helper()
	return record.TopicName("", topic(t, 1))
}

// headersOf are the headers of a topic's records as a franz-go client reads them.
func headersOf(t *testing.T, kafka string, n int) (all []map[string]string) {
	t.Helper()
	c := client(t, kgo.ConsumeTopics(kafka), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(all) < n {
		fetches := c.PollFetches(deadline(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			h := map[string]string{"body": string(r.Value), "key": string(r.Key)}
			for _, e := range r.Headers {
				h[e.Key] = string(e.Value)
			}
			all = append(all, h)
		})
	}
	return all
}

func TestARejectedRecordGoesToTheRejectTopicAndTheRestGoesOn(t *testing.T) {
	name, rejects := topic(t, 1), rawTopic(t)
	m := newMirror(t, name)
	m.commit(0, "a", "bad", "c")
	foreign(t, name, 0)
	m.commit(0, "d")
	s := newSeen()
	reg := prometheus.NewRegistry()
	r := run(t, stream.Config{Topics: []string{name}, Group: name, RejectTopic: rejects, Registerer: reg, Handler: func(ctx context.Context, r stream.Record) error {
		if string(r.Body) == "bad" {
			return fmt.Errorf("amount: %w", stream.Reject("not a number"))
		}
		return s.handle(ctx, r)
	}})
	if got := strings.Join(s.count(t, 3), " "); got != "a c d" {
		t.Errorf("handled %q", got)
	}
	r.stop(t)
	if got := committed(t, name, name, 0); got != 6 {
		t.Errorf("committed %d, want 6", got)
	}
	got := headersOf(t, rejects, 2)
	for key, want := range map[string]string{
		"body": "bad", "key": "k", stream.RejectReasonHeader: "amount: not a number", stream.RejectGroupHeader: name,
		stream.RejectTopicHeader: record.TopicName("", name), stream.RejectPartitionHeader: "0", stream.RejectOffsetHeader: "1",
		"notify-seq": "2",
	} {
		if got[0][key] != want {
			t.Errorf("%s: %q, want %q", key, got[0][key], want)
		}
	}
	if got[1]["body"] != "by hand" || !strings.Contains(got[1][stream.RejectReasonHeader], "not a mirrored record") || got[1][stream.RejectOffsetHeader] != "4" {
		t.Errorf("the record that the mirror did not write: %q", got[1])
	}
	want := "# HELP notify_stream_rejected_total Records that went to the reject topic.\n# TYPE notify_stream_rejected_total counter\n" +
		fmt.Sprintf("notify_stream_rejected_total{group=%q,topic=%q} 2\n", name, name)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "notify_stream_rejected_total"); err != nil {
		t.Error(err)
	}
	// What is rejected is still the message.
	expect(t, stream.Config{Topics: []string{strings.TrimPrefix(rejects, record.DefaultPrefix)}, SkipForeign: true}, "bad")
}

func TestARejectWithoutARejectTopicStopsTheConsumer(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "bad")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: func(ctx context.Context, r stream.Record) error {
		if string(r.Body) == "bad" {
			return stream.Reject("not a number")
		}
		return s.handle(ctx, r)
	}}
	err := run(t, cfg).wait(t)
	he, ok := errors.AsType[*stream.HandlerError](err)
	if !ok || he.Offset != 1 || !errors.Is(err, stream.ErrNoRejectTopic) || !strings.Contains(err.Error(), "not a number") {
		t.Errorf("error %v", err)
	}
	if got := committed(t, name, name, 0); got != 1 {
		t.Errorf("committed %d, want 1", got)
	}
	cfg.RejectTopic = "no-such-topic"
	if err := run(t, cfg).wait(t); !errors.Is(err, stream.ErrUnknownTopic) || !strings.Contains(err.Error(), "RejectTopic") {
		t.Errorf("a reject topic that is not there: error %v", err)
	}
}

func TestBodiesAreDecodedOrRejected(t *testing.T) {
	name, rejects := topic(t, 1), rawTopic(t)
	m := newMirror(t, name)
	pb, err := proto.Marshal(wrapperspb.String("proto"))
	if err != nil {
		t.Fatal(err)
	}
	m.commit(0, `{"amount":7}`, `{"amount":"x"}`, string(pb))
	var got []string
	type order struct{ Amount int64 }
	asJSON := stream.JSON(func(_ context.Context, _ stream.Record, o order) error {
		got = append(got, fmt.Sprint(o.Amount))
		return nil
	})
	asProto := stream.Proto(func(_ context.Context, _ stream.Record, s *wrapperspb.StringValue) error {
		got = append(got, s.Value)
		return nil
	})
	cfg := stream.Config{Topics: []string{name}, End: stream.Newest(), RejectTopic: rejects, Handler: asJSON}
	if err := newConsumer(t, cfg).Run(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cfg.Handler = asProto
	if err := newConsumer(t, cfg).Run(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, " ") != "7 proto" {
		t.Errorf("decoded %q", got)
	}
	var reasons []string
	for _, h := range headersOf(t, rejects, 4) {
		reasons = append(reasons, h[stream.RejectReasonHeader])
	}
	for i, want := range []string{"JSON of a stream_test.order", "JSON of a stream_test.order", "protobuf of a google.protobuf.StringValue", "protobuf of a google.protobuf.StringValue"} {
		if !strings.Contains(reasons[i], want) {
			t.Errorf("reason %q, want %q", reasons[i], want)
		}
	}
	cfg.RejectTopic = ""
	if err := newConsumer(t, cfg).Run(deadline(t)); !errors.Is(err, stream.ErrNoRejectTopic) {
		t.Errorf("without a reject topic: error %v", err)
	}
}

func TestBatchesAreOfOnePartitionInOrderAndNoLargerThanAsked(t *testing.T) {
	const partitions, each = 2, 250
	name := topic(t, partitions)
	m := newMirror(t, name)
	var want []string
	for p := range int32(partitions) {
		var bodies []string
		for i := range each {
			bodies = append(bodies, fmt.Sprintf("%d-%03d", p, i))
		}
		m.commit(p, bodies...)
		m.abort(p, "gone")
		want = append(want, bodies...)
	}
	s := newSeen()
	var largest, calls int
	var mu sync.Mutex
	c := newConsumer(t, stream.Config{Topics: []string{name}, End: stream.Newest(), BatchRecords: 100, BatchWait: time.Minute,
		BatchHandler: func(ctx context.Context, batch []stream.Record) error {
			mu.Lock()
			largest, calls = max(largest, len(batch)), calls+1
			mu.Unlock()
			for _, r := range batch {
				if r.Partition != batch[0].Partition {
					t.Errorf("partitions %d and %d in a batch", r.Partition, batch[0].Partition)
				}
				_ = s.handle(ctx, r) // always nil
			}
			return nil
		}})
	if err := c.Run(deadline(t)); err != nil {
		t.Fatal(err)
	}
	got := s.now()
	slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	if !slices.Equal(got, want) || largest != 100 || calls != 6 {
		t.Errorf("%d records in %d calls, the largest %d; first %q", len(got), calls, largest, got[0])
	}
}

func TestPartOfABatchIsHandledAndTheRestComesAgain(t *testing.T) {
	name, rejects := topic(t, 1), rawTopic(t)
	newMirror(t, name).commit(0, "a", "late", "c", "bad", "e", "boom", "g")
	var calls []string
	boom := errors.New("boom")
	tried := false
	err := run(t, stream.Config{Topics: []string{name}, Group: name, RejectTopic: rejects, BatchWait: time.Second, BatchRecords: 7,
		BatchHandler: func(_ context.Context, batch []stream.Record) error {
			var bodies []string
			for _, r := range batch {
				bodies = append(bodies, string(r.Body))
			}
			calls = append(calls, strings.Join(bodies, " "))
			for _, r := range batch {
				switch string(r.Body) {
				case "late":
					if !tried {
						tried = true
						return stream.At(r, stream.RetryAfter(time.Millisecond))
					}
				case "bad":
					return stream.At(r, stream.Reject("bad"))
				case "boom":
					return stream.At(r, boom)
				}
			}
			return nil
		}}).wait(t)
	he, ok := errors.AsType[*stream.HandlerError](err)
	if !ok || he.Offset != 5 || !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	want := []string{"a late c bad e boom g", "late c bad e boom g", "e boom g"}
	if !slices.Equal(calls, want) {
		t.Errorf("called with %q, want %q", calls, want)
	}
	if got := headersOf(t, rejects, 1); len(got) != 1 || got[0]["body"] != "bad" {
		t.Errorf("rejected %q", got)
	}
	if got := committed(t, name, name, 0); got != 5 {
		t.Errorf("committed %d, want 5", got)
	}
}

// logged collects log lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestWhatIsGoneIsPassedOverOnlyIfAskedForAndSaid(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "b", "c")
	admin := kadm.NewClient(client(t))
	kafka := record.TopicName("", name)
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: kafka, Partition: 0, At: 2})
	if _, err := admin.DeleteRecords(deadline(t), upTo); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		at   int64
		note string
		text string
	}{
		{0, "", "0 to 1 are gone, the oldest is 2"},
		{100, "", "4 to 99 are gone, the log ends at 4"},
		{3, "1 some-other-id", "the topic was deleted and made again"},
	} {
		commit := func(group string) stream.Config {
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: kafka, Partition: 0, At: c.at, LeaderEpoch: -1, Metadata: c.note})
			if err := admin.CommitAllOffsets(deadline(t), group, offsets); err != nil {
				t.Fatal(err)
			}
			return stream.Config{Topics: []string{name}, Group: group}
		}
		s := newSeen()
		cfg := commit(fmt.Sprintf("%s-%d-stop", name, i))
		cfg.Handler = s.handle
		err := run(t, cfg).wait(t)
		if !errors.Is(err, stream.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), c.text) || len(s.now()) > 0 {
			t.Errorf("committed %d: error %v, want %q; handled %q", c.at, err, c.text, s.now())
		}
		var log logged
		cfg = commit(fmt.Sprintf("%s-%d-go-on", name, i))
		cfg.Handler, cfg.Gone, cfg.Logger = s.handle, stream.OldestWhenGone, slog.New(slog.NewTextHandler(&log, nil))
		r := run(t, cfg)
		got := s.count(t, 1)
		r.stop(t)
		if strings.Join(got, " ") != "c" || !strings.Contains(log.String(), c.text) {
			t.Errorf("committed %d: handled %q, logged %s", c.at, got, log.String())
		}
		if got := committed(t, cfg.Group, name, 0); got != 3 {
			t.Errorf("committed %d, then %d, want 3", c.at, got)
		}
	}
	expect(t, stream.Config{Topics: []string{name}, Start: stream.AtOffset(1), Gone: stream.OldestWhenGone}, "c")
}

func TestLagIsToldPerPartition(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a", "b", "c")
	m.commit(1, "x")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: func(ctx context.Context, r stream.Record) error {
		_ = s.handle(ctx, r) // always nil
		if string(r.Body) == "b" {
			return stream.RetryAfter(time.Hour)
		}
		return nil
	}}
	c := newConsumer(t, cfg)
	if lags, err := c.Lag(); err != nil || lags != nil {
		t.Errorf("before Run: %v, error %v", lags, err)
	}
	ctx, cancel := context.WithCancel(deadline(t))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.count(t, 3)
	waitFor(t, "a lag of 2 and 0", func() bool {
		lags, err := c.Lag()
		if err != nil {
			t.Error(err)
		}
		return len(lags) == 2 && lags[0].Topic == name && lags[0].Partition == 0 && lags[0].Next == 1 && lags[0].Records == 2 &&
			lags[0].Behind > time.Hour && lags[1].Partition == 1 && lags[1].Records == 0 && lags[1].Behind < time.Hour
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
