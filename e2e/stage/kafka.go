package stage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads a topic of the mirror by franz-go, which is none of our clients: committed
// records only, every partition from its oldest.
type Reader struct {
	t      testing.TB
	client *kgo.Client
	topic  string
	next   map[int32]int64 // behind what was read
	// Records so far, each partition's in order.
	Records []*kgo.Record
}

// Mirror opens a reader of a notify topic's mirror. The topic need not exist yet.
func (s *Stage) Mirror(topic string) *Reader {
	s.t.Helper()
	name := s.Prefix + topic
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.Kafka),
		kgo.ConsumeTopics(name),
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
	return &Reader{t: s.t, client: client, topic: name, next: map[int32]int64{}}
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

// Rest reads what is committed now to its end.
func (r *Reader) Rest() {
	r.t.Helper()
	admin := kadm.NewClient(r.client)
	ends, err := admin.ListCommittedOffsets(r.t.Context(), r.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		r.t.Fatalf("ends of %s: %v", r.topic, err)
	}
	r.until(time.Minute, func() error {
		for _, end := range ends.Offsets().Sorted() {
			if end.At > r.next[end.Partition] {
				return fmt.Errorf("partition %d read to %d of %d", end.Partition, r.next[end.Partition], end.At)
			}
		}
		return nil
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
			r.t.Fatalf("mirror topic %s: not within %s: %v", r.topic, limit, err)
		}
		poll, stop := context.WithTimeout(deadline, time.Second)
		fetches := r.client.PollFetches(poll)
		stop()
		fetches.EachRecord(func(rec *kgo.Record) {
			r.next[rec.Partition] = rec.Offset + 1
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
