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

// partition hands the records of one partition to the handler, one batch after another;
// a batch of a Handler has one record.
//
//	gather ─> pending ─> settle: handle ─> nil         ─> handled, offset marked
//	             │          ^     │ RetryAfter: wait
//	             │          └─────┤
//	             │                │ Reject: reject topic ─> handled, offset marked
//	             └────────────────┘ the rest of the batch
type partition struct {
	topic  string // notify's name
	kafka  string // Kafka's name
	number int32
	cfg    *Config
	handle handler
	// rejects may be nil, and trouble is told what it gets over by itself.
	rejects *rejecter
	trouble func(error)
	// mark takes the offset to commit.
	mark func(next int64)
	// last is the offset of the last record to hand over, and until the commit time that
	// ends the partition at the first record with it or a later one, if not zero.
	last  int64
	until time.Time
	// topicID is Kafka's of the topic, where a reading with an End is remembered.
	topicID string
	// from passes over records with an earlier commit time, until the first other one.
	from     time.Time
	progress progress
	repeats  repeats
	headers  []record.KafkaHeader // reused from record to record
	decoder  record.Decoder
	metrics  topicMetrics
	pending  batch
	pace     *pace // may be nil

	// madeAs is Kafka's id of the topic, as watchLag sees it, and remade that it has become another.
	madeAs string
	remade atomic.Bool

	// What others may look at meanwhile: the next offset, and the latest instant, in
	// nanoseconds since 1970, for which all committed before it is known to be handled.
	next     atomic.Int64
	caughtUp atomic.Int64
}

// batch is what was taken from a partition and is not handled yet.
type batch struct {
	records []Record
	raw     []*sarama.ConsumerMessage // of each record
	bytes   int                       // of the bodies
	// tail is the last message taken, which may have been passed over.
	tail *sarama.ConsumerMessage
}

func (b *batch) reset() { *b = batch{records: b.records[:0], raw: b.raw[:0]} }

// drop forgets the first records.
func (b *batch) drop(n int) { b.records, b.raw = b.records[n:], b.raw[n:] }

// run handles what comes in until the last record is handled, an error comes up, or
// stop ends. It takes no new record after stop; records in hand have StopTimeout
// before their context ends, and run waits for them in any case.
func (p *partition) run(stop context.Context, in <-chan *sarama.ConsumerMessage) error {
	work, release := withGrace(stop, p.cfg.StopTimeout)
	defer release()
	for p.progress.next <= p.last {
		ended, err := p.gather(stop, work, in)
		if failed := p.settle(stop, work); failed != nil {
			ended, err = true, failed
		}
		if errors.Is(err, errNotTaken) {
			return nil // what is pending is handled the next time
		}
		if ended {
			return err
		}
	}
	return nil
}

// gather collects a batch. When the partition has ended, what is pending is still to be
// handled.
func (p *partition) gather(stop, work context.Context, in <-chan *sarama.ConsumerMessage) (ended bool, err error) {
	p.pending.reset()
	var late <-chan time.Time
	for {
		m, open, waited := next(stop, in, late)
		if stop.Err() != nil {
			p.pending.reset()
			return true, nil
		}
		switch {
		case waited:
			return false, nil
		case p.remade.Load():
			return true, fmt.Errorf("%s partition %d: %w", p.kafka, p.number, remadeError(p.progress.next))
		case !open:
			return true, fmt.Errorf("%s partition %d: offset %d: %w", p.kafka, p.number, p.progress.next, ErrOffsetOutOfRange)
		case !p.until.IsZero() && !m.Timestamp.Before(p.until):
			return true, nil
		}
		if err := p.take(work, m); err != nil {
			return true, err
		}
		if p.full(m.Offset) {
			return false, nil
		}
		if late == nil && len(p.pending.records) > 0 {
			timer := time.NewTimer(p.cfg.BatchWait)
			defer timer.Stop()
			late = timer.C
		}
	}
}

// next is the next message; or waited, when late comes first. After stop it is neither. What is there
// already is taken without the price of waiting for three things.
func next(stop context.Context, in <-chan *sarama.ConsumerMessage, late <-chan time.Time) (m *sarama.ConsumerMessage, open, waited bool) {
	select {
	case m, open = <-in:
		return m, open, false
	default:
	}
	select {
	case <-stop.Done():
	case <-late:
		waited = true
	case m, open = <-in:
	}
	return m, open, waited
}

// full tells whether the batch is to be handled now that a record was taken.
func (p *partition) full(taken int64) bool {
	return len(p.pending.records) >= p.handle.most || p.pending.bytes >= int(p.cfg.FetchBytes) || taken >= p.last
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

// take adds a record to the batch, if it is one to handle.
func (p *partition) take(ctx context.Context, m *sarama.ConsumerMessage) error {
	b := &p.pending
	if !p.progress.take(m.Offset) || b.tail != nil && m.Offset <= b.tail.Offset {
		return nil
	}
	r, err := p.decode(m)
	switch {
	case m.Timestamp.Before(p.from): // passed over
	case errors.Is(err, record.ErrNotMirrored) && p.cfg.SkipForeign:
		p.metrics.foreign.Inc()
	case errors.Is(err, record.ErrNotMirrored) && p.rejects != nil:
		if err := p.reject(ctx, m, err.Error()); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("%s partition %d offset %d: %w", m.Topic, m.Partition, m.Offset, err)
	case p.cfg.ReadUncommitted && p.repeats.seen(r.Source, r.Seq):
		p.metrics.duplicates.Inc()
	default:
		p.from = time.Time{}
		b.records, b.raw = append(b.records, r), append(b.raw, m)
		b.bytes += len(r.Body)
	}
	if b.tail = m; len(b.records) == 0 {
		p.done(m)
	}
	return nil
}

// done says that a message and all before it are handled.
func (p *partition) done(m *sarama.ConsumerMessage) { p.doneAt(time.Now(), m) }

func (p *partition) doneAt(now time.Time, m *sarama.ConsumerMessage) {
	p.next.Store(p.progress.done(m.Offset))
	at := m.Timestamp
	if at.After(now) { // the store's clock is ahead: later it is as it was now
		at = now
	}
	p.caughtUpTo(at)
	p.mark(p.progress.next)
}

// settle has the batch handled, whatever that takes. errNotTaken means that it was not,
// for the sake of a stop.
func (p *partition) settle(stop, work context.Context) error {
	rest := p.pending // whose slices are used again
	for len(rest.records) > 0 {
		if !p.pace.wait(stop, rest.records[0].CommitTime) {
			return errNotTaken
		}
		begin := time.Now()
		o := outcomeOf(rest.records, p.handle.call(work, rest.records))
		if o.handled > 0 {
			end := time.Now()
			p.metrics.records.Add(float64(o.handled))
			p.metrics.duration.Observe(end.Sub(begin).Seconds())
			p.doneAt(end, rest.raw[o.handled-1])
			rest.drop(o.handled)
		}
		if o.cause != nil {
			if err := p.deal(stop, work, &rest, o); err != nil {
				return err
			}
		}
	}
	if rest.tail != nil && rest.tail.Offset >= p.progress.next { // passed over behind the last one
		p.done(rest.tail)
	}
	return nil
}

// deal does what an outcome asks for with the first records of what is left of a batch.
func (p *partition) deal(stop, work context.Context, b *batch, o outcome) error {
	if retry, ok := errors.AsType[*retryError](o.cause); ok {
		p.metrics.retries.Inc()
		if !pause(stop, retry.after) {
			return errNotTaken
		}
		return nil
	}
	switch _, rejected := errors.AsType[*rejectError](o.cause); {
	case errors.Is(o.cause, errNotTaken), errors.Is(o.cause, errNotCommitted):
		return o.cause
	case rejected && p.rejects == nil:
		o.cause = fmt.Errorf("%w: %w", ErrNoRejectTopic, o.cause)
	case rejected:
		for range o.with {
			if err := p.reject(work, b.raw[0], o.cause.Error()); err != nil {
				return err
			}
			p.done(b.raw[0])
			b.drop(1)
		}
		return nil
	case work.Err() != nil:
		return errNotTaken // the grace after a stop is over
	}
	p.metrics.errors.Inc()
	return &HandlerError{Topic: p.topic, Partition: p.number, Offset: b.records[0].Offset, Err: o.cause}
}

// reject sends a message to the reject topic.
func (p *partition) reject(ctx context.Context, m *sarama.ConsumerMessage, reason string) error {
	if err := p.rejects.send(ctx, m, reason, p.trouble); err != nil {
		return fmt.Errorf("%s partition %d offset %d: %w", m.Topic, m.Partition, m.Offset, err)
	}
	p.metrics.rejected.Inc()
	return nil
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
	msg, err := p.decoder.Decode(record.Record{Key: m.Key, Value: m.Value, Headers: p.headers, Timestamp: m.Timestamp})
	return Record{Message: msg, KafkaTopic: m.Topic, Partition: m.Partition, Offset: m.Offset}, err
}
