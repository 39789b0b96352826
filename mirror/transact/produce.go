package transact

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A Producer writes Kafka transactions, one at a time, over a client of its own. It is made
// by initialising the transactional id, which aborts a predecessor's open transaction and
// fences it. Of a transaction it collects the records and the offsets; Commit sends them:
//
//	AddPartitionsToTxn, AddOffsetsToTxn  to the transaction's coordinator
//	TxnOffsetCommit                      to the group's coordinator
//	Produce                              to the leader of each partition, one batch for each partition
//	EndTxn                               to the transaction's coordinator, once all is acknowledged
//
// Batches are numbered by the producer's id and epoch, so that one that is sent again is
// taken once. After any error the producer is of no use: what became of the transaction is
// not known. Whoever owns it closes its client, makes another, and reads again what is
// committed. A Producer is for one goroutine.
type Producer struct {
	client  sarama.Client
	id      string // transactional
	timeout time.Duration

	number  int64 // the producer's, by which Kafka knows it
	epoch   int16
	next    map[Partition]int32               // sequence number of the next record
	batches map[Partition]*sarama.RecordBatch // of the open transaction
	offsets *offsets                          // of the open transaction; may be nil

	asking chan struct{} // holds one while Kafka is asked for something
	begun  bool          // Kafka may know of the open transaction; of whoever asks
	calls  sync.WaitGroup
}

// A Partition is one of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// A RecordError is a record, or an offset, that Kafka did not take.
type RecordError struct {
	Partition
	Err error
}

// Error names the partition.
func (e *RecordError) Error() string {
	return fmt.Sprintf("kafka topic %s partition %d: produce: %v", e.Topic, e.Number, e.Err)
}

// Unwrap returns Err.
func (e *RecordError) Unwrap() error { return e.Err }

// New initialises a transactional id. A transaction that lasts longer than timeout is
// aborted by Kafka. Calls of the client are bounded by its timeouts only, since sarama's take no
// context: let it dial through a Cutter.
func New(ctx context.Context, client sarama.Client, id string, timeout time.Duration) (*Producer, error) {
	p := &Producer{
		client: client, id: id, timeout: timeout, asking: make(chan struct{}, 1),
		next: make(map[Partition]int32), batches: make(map[Partition]*sarama.RecordBatch),
	}
	err := p.ask(ctx, func(coordinator *sarama.Broker) error {
		r, err := coordinator.InitProducerID(&sarama.InitProducerIDRequest{
			Version: 4, TransactionalID: &p.id, TransactionTimeout: timeout, ProducerID: -1, ProducerEpoch: -1,
		})
		if err != nil {
			return err
		}
		p.number, p.epoch = r.ProducerID, r.ProducerEpoch
		return errorOf(r.Err)
	})
	if err != nil {
		return nil, fmt.Errorf("kafka producer: initialise: %w", err)
	}
	return p, nil
}

// Known tells whether the transactional id was initialised before, as far as Kafka remembers:
// it forgets one that nobody used for transactional.id.expiration.ms (7 days).
func (p *Producer) Known() bool { return p.epoch > 0 }

// Timeout is how long a transaction may last.
func (p *Producer) Timeout() time.Duration { return p.timeout }

// Send adds a record, with a time of whole milliseconds, to the transaction. It and what it
// points to belong to the producer until the commit.
func (p *Producer) Send(to Partition, at time.Time, r *sarama.Record) {
	b := p.batches[to]
	if b == nil {
		b = &sarama.RecordBatch{
			Version: 2, IsTransactional: true, ProducerID: p.number, ProducerEpoch: p.epoch,
			FirstSequence: p.next[to], FirstTimestamp: at, MaxTimestamp: at,
			Codec: p.client.Config().Producer.Compression, CompressionLevel: p.client.Config().Producer.CompressionLevel,
		}
		p.batches[to] = b
	}
	if at.After(b.MaxTimestamp) {
		b.MaxTimestamp = at
	}
	b.LastOffsetDelta = int32(len(b.Records))
	r.OffsetDelta, r.TimestampDelta = int64(len(b.Records)), at.Sub(b.FirstTimestamp)
	b.Records = append(b.Records, r)
}

// Commit writes the transaction. Nil means that Kafka acknowledged all of it and then the
// commit. Any error leaves the result unknown, and the producer of no use; what Kafka
// refused of a partition is a *RecordError in it. At a ctx that has ended the transaction is
// not committed, unless that was asked for already.
func (p *Producer) Commit(ctx context.Context) error {
	result := make(chan error, 1)
	p.calls.Go(func() {
		p.asking <- struct{}{}
		defer func() { <-p.asking }()
		result <- p.write(ctx)
	})
	limit := time.NewTimer(2 * p.timeout)
	defer limit.Stop()
	select {
	case err := <-result:
		if err == nil {
			p.forget()
		}
		return err
	case <-limit.C:
		return fmt.Errorf("kafka transaction: no answer for %s", 2*p.timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget makes room for the next transaction.
func (p *Producer) forget() {
	for at, b := range p.batches {
		p.next[at] = following(b.FirstSequence, len(b.Records))
	}
	clear(p.batches)
	p.offsets = nil
}

// following is the sequence number n records later; behind the largest comes 0.
func following(sequence int32, n int) int32 { return int32((int64(sequence) + int64(n)) & 0x7fffffff) }

// write sends the transaction and ends it.
func (p *Producer) write(ctx context.Context) error {
	p.begun = true
	if err := p.join(ctx); err != nil {
		return fmt.Errorf("kafka transaction: begin: %w", err)
	}
	if err := p.commitOffsets(ctx); err != nil {
		return fmt.Errorf("kafka transaction: %w", err)
	}
	if err := p.produce(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // a planned stop aborts
	}
	if err := p.end(ctx, true); err != nil {
		return fmt.Errorf("kafka transaction: commit: %w", err)
	}
	p.begun = false
	return nil
}

// join makes known to the transaction's coordinator what is in it.
func (p *Producer) join(ctx context.Context) error {
	if len(p.batches) > 0 {
		if err := p.joinPartitions(ctx); err != nil {
			return err
		}
	}
	if p.offsets == nil {
		return nil
	}
	return p.joinGroup(ctx)
}

func (p *Producer) joinPartitions(ctx context.Context) error {
	parts := make(map[string][]int32)
	for at := range p.batches {
		parts[at.Topic] = append(parts[at.Topic], at.Number)
	}
	return p.ask(ctx, func(coordinator *sarama.Broker) error {
		r, err := coordinator.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
			Version: 3, TransactionalID: p.id, ProducerID: p.number, ProducerEpoch: p.epoch, TopicPartitions: parts,
		})
		if err != nil {
			return err
		}
		for topic, answers := range r.Errors {
			for _, a := range answers {
				if a.Err != sarama.ErrNoError && a.Err != sarama.ErrOperationNotAttempted { // that is for want of another
					return &RecordError{Partition{topic, a.Partition}, a.Err}
				}
			}
		}
		return nil
	})
}

// end commits or aborts what the coordinator knows of. A coordinator that comes back to a
// partition without a leader has been seen to end the transaction without it, so the
// question is put again only when all are led.
func (p *Producer) end(ctx context.Context, commit bool) error {
	again := false
	return p.ask(ctx, func(coordinator *sarama.Broker) error {
		if again && len(p.batches) > 0 {
			if err := p.client.RefreshMetadata(topicsOf(slices.Collect(maps.Keys(p.batches)))...); err != nil {
				return err
			}
		}
		again = true
		r, err := coordinator.EndTxn(&sarama.EndTxnRequest{
			Version: 3, TransactionalID: p.id, ProducerID: p.number, ProducerEpoch: p.epoch, TransactionResult: commit,
		})
		if err != nil {
			return err
		}
		return errorOf(r.Err)
	})
}

// Abort gives up the open transaction after a planned stop, so that readers need not wait
// for Kafka to time it out. It is a courtesy: nothing depends on its success.
func (p *Producer) Abort(ctx context.Context) {
	done := make(chan struct{})
	p.calls.Go(func() {
		defer close(done)
		p.asking <- struct{}{} // after a commit that was left behind
		defer func() { <-p.asking }()
		if p.begun {
			_ = p.end(ctx, false)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Wait returns when no call of the producer waits for Kafka any more: close its client
// first, which ends them. An open transaction is left for Kafka, or the next producer of the
// transactional id, to abort.
func (p *Producer) Wait() { p.calls.Wait() }
