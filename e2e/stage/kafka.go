package stage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads topics of the mirror by franz-go, which is none of our clients: committed
// records only, every partition from its oldest.
type Reader struct {
	t      testing.TB
	kafka  string
	client *kgo.Client
	topics []string
	next   map[place]int64 // behind what was read
	// Records so far, each partition's in order.
	Records []*kgo.Record
}

// A place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// Mirror opens a reader of the mirror of notify topics. They need not exist yet.
func (s *Stage) Mirror(topics ...string) *Reader {
	s.t.Helper()
	names := make([]string, len(topics))
	for i, topic := range topics {
		names[i] = s.Prefix + topic
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.Kafka),
		kgo.ConsumeTopics(names...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // so that the end of the log is seen
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.UnknownTopicRetries(-1),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return &Reader{t: s.t, kafka: s.Kafka, client: client, topics: names, next: map[place]int64{}}
}

// Await reads until there are at least n records.
func (r *Reader) Await(n int, limit time.Duration) {
	r.t.Helper()
	r.until(limit, func() error {
		if len(r.Records) < n {
			return fmt.Errorf("%d records of %d", len(r.Records), n)
		}
		return nil
	})
}

// AwaitID reads until there is a record of a message.
func (r *Reader) AwaitID(id string, limit time.Duration) {
	r.t.Helper()
	looked := 0
	r.until(limit, func() error {
		for ; looked < len(r.Records); looked++ {
			if Header(r.Records[looked], "notify-id") == id {
				return nil
			}
		}
		return fmt.Errorf("message %s is not among %d records", id, looked)
	})
}

// Rest reads what is committed now to its end. A topic that does not exist has nothing.
//
// The ends are asked for by a client of their own: the reader's takes what it has heard of
// topics for true for a while, and so that one does not exist which has been made since.
func (r *Reader) Rest() {
	r.t.Helper()
	fresh, err := kgo.NewClient(kgo.SeedBrokers(r.kafka))
	if err != nil {
		r.t.Fatal(err)
	}
	defer fresh.Close()
	ends, err := kadm.NewClient(fresh).ListCommittedOffsets(r.t.Context(), r.topics...)
	if err != nil {
		r.t.Fatalf("ends of %q: %v", r.topics, err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Err != nil && !errors.Is(end.Err, kerr.UnknownTopicOrPartition) {
			r.t.Fatalf("end of %s: %v", end.Topic, end.Err)
		}
	})
	r.until(time.Minute, func() error {
		for _, end := range ends.Offsets().Sorted() {
			if at := r.next[place{end.Topic, end.Partition}]; end.At > at {
				return fmt.Errorf("%s/%d read to %d of %d", end.Topic, end.Partition, at, end.At)
			}
		}
		return nil
	})
}

// AwaitSettled waits until no transaction is open in a Kafka, and each has its markers.
func AwaitSettled(t testing.TB, kafka string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	Eventually(t, time.Minute, "no open transaction", func() error {
		ends, err := admin.ListEndOffsets(t.Context())
		if err != nil {
			return err
		}
		stable, err := admin.ListCommittedOffsets(t.Context())
		if err != nil {
			return err
		}
		ends.Each(func(end kadm.ListedOffset) {
			if at, found := stable.Lookup(end.Topic, end.Partition); err == nil && (!found || at.Offset != end.Offset) {
				err = fmt.Errorf("%s/%d ends at %d, and is stable to %d", end.Topic, end.Partition, end.Offset, at.Offset)
			}
		})
		return err
	})
}

func (r *Reader) until(limit time.Duration, enough func() error) {
	r.t.Helper()
	deadline, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	for {
		err := enough()
		if err == nil {
			return
		}
		if deadline.Err() != nil {
			r.t.Fatalf("mirror topics %q: not within %s: %v", r.topics, limit, err)
		}
		poll, stop := context.WithTimeout(deadline, time.Second)
		fetches := r.client.PollFetches(poll)
		stop()
		fetches.EachRecord(func(rec *kgo.Record) {
			r.next[place{rec.Topic, rec.Partition}] = rec.Offset + 1
			if !rec.Attrs.IsControl() {
				r.Records = append(r.Records, rec)
			}
		})
	}
}

// Header is the value of a record's header, or "".
func Header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
