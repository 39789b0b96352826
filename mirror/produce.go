package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A dialer opens connections to Kafka; tests put faults into it.
type dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// A producer writes Kafka transactions, one at a time. It is made by initialising the
// transactional id, which aborts a predecessor's open transaction and fences it. Of a
// transaction it collects the records, and the commit sends them:
//
//	AddPartitionsToTxn  to the transaction's coordinator
//	Produce             to the leader of each partition, one batch for each partition
//	EndTxn              to the coordinator, once every batch is acknowledged
//
// sarama carries the requests and knows who is leader and coordinator. Its own producer is
// not used: it takes each record over five channels and makes an object of it at each, which
// costs more than all the rest of the mirror does.
//
// Batches are numbered by the producer's id and epoch, so that one that is sent again is
// taken once. After any error the producer is of no use: what became of the transaction is
// not known. Whoever owns it closes it, makes another, and reads the checkpoint again.
type producer struct {
	client sarama.Client
	id     string // transactional
	// timeout is the transaction timeout. A transaction that lasts longer is aborted by Kafka.
	timeout time.Duration

	number  int64 // the producer's, by which Kafka knows it
	epoch   int16
	next    map[partition]int32               // sequence number of the next record
	batches map[partition]*sarama.RecordBatch // of the open transaction

	asking chan struct{} // holds one while Kafka is asked for something
	begun  bool          // Kafka may know of the open transaction; of whoever asks
	calls  sync.WaitGroup
}

// A partition is one of a topic.
type partition struct {
	topic string
	no    int32
}

// produceError is a record that Kafka did not take.
type produceError struct {
	partition
	err error
}

func (e *produceError) Error() string {
	return fmt.Sprintf("kafka topic %s partition %d: produce: %v", e.topic, e.no, e.err)
}

func (e *produceError) Unwrap() error { return e.err }

// newProducer initialises the transactional id of k.
func newProducer(ctx context.Context, k *kafka, timeout time.Duration) (*producer, error) {
	p := &producer{
		client: k.client, id: k.transactionalID, timeout: timeout, asking: make(chan struct{}, 1),
		next: make(map[partition]int32), batches: make(map[partition]*sarama.RecordBatch),
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

// send adds a record, of whole milliseconds, to the transaction. It and what it points to
// belong to the producer until the commit.
func (p *producer) send(to partition, at time.Time, r *sarama.Record) {
	b := p.batches[to]
	if b == nil {
		b = &sarama.RecordBatch{
			Version: 2, IsTransactional: true, ProducerID: p.number, ProducerEpoch: p.epoch,
			FirstSequence: p.next[to], FirstTimestamp: at, MaxTimestamp: at,
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

// commit writes the transaction. Nil means that Kafka acknowledged every record and then
// the commit. Any error leaves the result unknown.
func (p *producer) commit(ctx context.Context) error {
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
func (p *producer) forget() {
	for at, b := range p.batches {
		p.next[at] = following(b.FirstSequence, len(b.Records))
	}
	clear(p.batches)
}

// following is the sequence number n records later; behind the largest comes 0.
func following(sequence int32, n int) int32 { return int32((int64(sequence) + int64(n)) & 0x7fffffff) }

// write sends the transaction and ends it.
func (p *producer) write(ctx context.Context) error {
	p.begun = true
	if err := p.join(ctx); err != nil {
		return fmt.Errorf("kafka transaction: begin: %w", err)
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

// join makes the partitions of the transaction known to its coordinator.
func (p *producer) join(ctx context.Context) error {
	parts := make(map[string][]int32)
	for at := range p.batches {
		parts[at.topic] = append(parts[at.topic], at.no)
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
					return &produceError{partition{topic, a.Partition}, a.Err}
				}
			}
		}
		return nil
	})
}

// end commits or aborts what the coordinator knows of.
func (p *producer) end(ctx context.Context, commit bool) error {
	return p.ask(ctx, func(coordinator *sarama.Broker) error {
		r, err := coordinator.EndTxn(&sarama.EndTxnRequest{
			Version: 3, TransactionalID: p.id, ProducerID: p.number, ProducerEpoch: p.epoch, TransactionResult: commit,
		})
		if err != nil {
			return err
		}
		return errorOf(r.Err)
	})
}

// errorOf is the error of an answer, if it is one.
func errorOf(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}

// askAttempts at one question.
const askAttempts = 20

// ask puts a question to the transaction's coordinator, again while the answer is that it
// cannot tell yet.
func (p *producer) ask(ctx context.Context, question func(*sarama.Broker) error) error {
	for attempt := 1; ; attempt++ {
		coordinator, err := p.client.TransactionCoordinator(p.id)
		if err == nil {
			err = question(coordinator)
		}
		if err == nil || !passing(err) || attempt == askAttempts {
			return err
		}
		if coordinator != nil && elsewhere(err) {
			_ = coordinator.Close() // it is opened anew, when it is still the one
			_ = p.client.RefreshTransactionCoordinator(p.id)
		}
		if !pause(ctx, transactionBackoff(attempt-1)) {
			return ctx.Err()
		}
	}
}

// elsewhere tells whether an error may mean that another broker is the coordinator now.
func elsewhere(err error) bool {
	kafka, ok := errors.AsType[sarama.KError](err)
	return !ok || kafka == sarama.ErrNotCoordinatorForConsumer || kafka == sarama.ErrConsumerCoordinatorNotAvailable
}

// passing tells whether an error may go away by itself, within a second or so.
func passing(err error) bool {
	kafka, ok := errors.AsType[sarama.KError](err)
	if !ok { // of the connection
		return !errors.Is(err, sarama.ErrClosedClient) && !errors.Is(err, errCut)
	}
	switch kafka {
	case sarama.ErrInvalidMessage, sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
		sarama.ErrRequestTimedOut, sarama.ErrNetworkException, sarama.ErrOffsetsLoadInProgress,
		sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer, sarama.ErrConcurrentTransactions,
		sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrKafkaStorageError:
		return true
	}
	return false
}

// abort gives up the open transaction after a planned stop, so that readers need not wait
// for Kafka to time it out. It is a courtesy: nothing depends on its success.
func (p *producer) abort(ctx context.Context) {
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

// close ends the producer; an open transaction is left for Kafka, or the next producer of
// the transactional id, to abort. It closes k first, which ends what waits for an answer.
func (p *producer) close(k *kafka) error {
	err := k.close()
	p.calls.Wait()
	return err
}

// retryPause is how long a batch that was not taken waits.
const retryPause = 250 * time.Millisecond

// transactionBackoff is short at first: a broker answers CONCURRENT_TRANSACTIONS while it
// writes the markers of the transaction before, which takes a millisecond or two.
func transactionBackoff(retries int) time.Duration {
	return min(2*time.Millisecond<<min(retries, 10), 250*time.Millisecond)
}

// pause is false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fenced tells whether an error means that the transactional id was initialised again, by
// another producer or, after the transaction timeout, by Kafka itself.
func fenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}
