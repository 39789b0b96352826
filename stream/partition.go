package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// forever is the last offset of a partition that is read without an end.
const forever = math.MaxInt64

// partition hands the records of one partition to the handler, one after another.
type partition struct {
	topic  string // notify's name
	kafka  string // Kafka's name
	number int32
	cfg    *Config
	handle func(context.Context, Record) error
	// mark takes the offset to commit.
	mark func(next int64)
	// last is the offset of the last record to hand over, and until the commit time that
	// ends the partition at the first record with it or a later one, if not zero.
	last  int64
	until time.Time
	// from passes over records with an earlier commit time, until the first other one.
	from     time.Time
	progress progress
	repeats  repeats
	headers  []record.KafkaHeader // reused from record to record
	metrics  topicMetrics

	// What others may look at meanwhile: the next offset, and the latest instant, in
	// nanoseconds since 1970, for which all committed before it is known to be handled.
	next     atomic.Int64
	caughtUp atomic.Int64
}

// run handles what comes in until the last record is handled, an error comes up, or
// stop ends. It takes no new record after stop; a record in hand has StopTimeout
// before its context ends, and run waits for it in any case.
func (p *partition) run(stop context.Context, in <-chan *sarama.ConsumerMessage) error {
	work, release := withGrace(stop, p.cfg.StopTimeout)
	defer release()
	for p.progress.next <= p.last {
		select {
		case <-stop.Done():
			return nil
		case m, open := <-in:
			if stop.Err() != nil {
				return nil
			}
			if !open {
				return fmt.Errorf("%s partition %d: offset %d: %w", p.kafka, p.number, p.progress.next, ErrOffsetOutOfRange)
			}
			if !p.until.IsZero() && !m.Timestamp.Before(p.until) {
				return nil
			}
			if err := p.one(work, m); errors.Is(err, errNotTaken) {
				return nil // the record is handled the next time
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// withGrace is a context that ends a while after stop ends. Release it before stop or
// after; it waits for what it started.
func withGrace(stop context.Context, grace time.Duration) (work context.Context, release func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-work.Done():
			return
		case <-stop.Done():
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-work.Done():
		case <-timer.C:
			cancel()
		}
	})
	return work, func() { cancel(); wg.Wait() }
}

// one handles one record, if it is one to handle. errNotTaken means that it was not
// handled for the sake of a stop.
func (p *partition) one(ctx context.Context, m *sarama.ConsumerMessage) error {
	if !p.progress.take(m.Offset) {
		return nil
	}
	r, err := p.decode(m)
	switch {
	case m.Timestamp.Before(p.from): // passed over
	case errors.Is(err, record.ErrNotMirrored) && p.cfg.SkipForeign:
		p.metrics.foreign.Inc()
	case err != nil:
		return fmt.Errorf("%s partition %d offset %d: %w", m.Topic, m.Partition, m.Offset, err)
	case p.cfg.ReadUncommitted && p.repeats.seen(r.Source, r.Seq):
		p.metrics.duplicates.Inc()
	default:
		p.from = time.Time{}
		if err := p.call(ctx, r); err != nil {
			return err
		}
	}
	p.next.Store(p.progress.done(m.Offset))
	p.caughtUpTo(m.Timestamp)
	p.mark(p.progress.next)
	return nil
}

// call has the handler handle a record.
func (p *partition) call(ctx context.Context, r Record) error {
	begin := time.Now()
	err := p.handle(ctx, r)
	switch {
	case err == nil:
		p.metrics.records.Inc()
		p.metrics.duration.Observe(time.Since(begin).Seconds())
		return nil
	case errors.Is(err, errNotTaken):
		return err
	case ctx.Err() != nil:
		return errNotTaken // the grace after a stop is over
	}
	p.metrics.errors.Inc()
	return &HandlerError{Topic: p.topic, Partition: r.Partition, Offset: r.Offset, Err: err}
}

// caughtUpTo says that all that was committed before an instant is handled.
func (p *partition) caughtUpTo(t time.Time) {
	for ns := t.UnixNano(); ; {
		old := p.caughtUp.Load()
		if ns <= old || p.caughtUp.CompareAndSwap(old, ns) {
			return
		}
	}
}

func (p *partition) decode(m *sarama.ConsumerMessage) (Record, error) {
	p.headers = p.headers[:0]
	for _, h := range m.Headers {
		p.headers = append(p.headers, record.KafkaHeader{Key: h.Key, Value: h.Value})
	}
	msg, err := record.Decode(record.Record{Key: m.Key, Value: m.Value, Headers: p.headers, Timestamp: m.Timestamp})
	return Record{Message: msg, KafkaTopic: m.Topic, Partition: m.Partition, Offset: m.Offset}, err
}
