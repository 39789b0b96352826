package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// A dialer opens connections to Kafka; tests put faults into it.
type dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// A producer writes Kafka transactions, one at a time. It is made by initialising the
// transactional id, which aborts a predecessor's open transaction and fences it.
//
// After any error it is of no use: what became of the transaction is not known. Whoever
// owns it closes it, makes another, and reads the checkpoint again.
type producer struct {
	async sarama.AsyncProducer
	// timeout is the transaction timeout. A transaction that lasts longer is aborted by Kafka.
	timeout time.Duration

	sent    int64 // in this transaction; the sender's
	acked   atomic.Int64
	wanted  atomic.Int64 // acked at which the sender is woken; -1: never
	arrived chan struct{}
	failed  chan struct{} // closed at the first error
	err     error         // set before failed is closed
	drains  sync.WaitGroup
	commits sync.WaitGroup
}

// produceError is a record that Kafka did not take.
type produceError struct {
	topic     string
	partition int32
	err       error
}

func (e *produceError) Error() string {
	return fmt.Sprintf("kafka topic %s partition %d: produce: %v", e.topic, e.partition, e.err)
}

func (e *produceError) Unwrap() error { return e.err }

// newProducer initialises the transactional id of k's configuration.
func newProducer(k *kafka, timeout time.Duration) (*producer, error) {
	async, err := sarama.NewAsyncProducerFromClient(k.client)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: initialise: %w", err)
	}
	p := &producer{
		async: async, timeout: timeout,
		arrived: make(chan struct{}, 1), failed: make(chan struct{}),
	}
	p.wanted.Store(-1)
	p.drains.Go(p.drainSuccesses)
	p.drains.Go(p.drainErrors)
	return p, nil
}

func (p *producer) drainSuccesses() {
	for range p.async.Successes() {
		if p.acked.Add(1) == p.wanted.Load() {
			select {
			case p.arrived <- struct{}{}:
			default:
			}
		}
	}
}

func (p *producer) drainErrors() {
	for e := range p.async.Errors() {
		if p.err == nil {
			p.err = &produceError{e.Msg.Topic, e.Msg.Partition, e.Err}
			close(p.failed)
		}
	}
}

// begin opens a transaction.
func (p *producer) begin() error {
	p.sent = 0
	p.acked.Store(0)
	if err := p.async.BeginTxn(); err != nil {
		return fmt.Errorf("kafka transaction: begin: %w", err)
	}
	return nil
}

// send adds a record to the transaction. The message and what it points to belong to the
// producer until the commit.
func (p *producer) send(ctx context.Context, m *sarama.ProducerMessage) error {
	select {
	case p.async.Input() <- m:
		p.sent++
		return nil
	case <-p.failed:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit ends the transaction. Nil means that Kafka acknowledged every record and then
// the commit. Any error leaves the result unknown.
func (p *producer) commit(ctx context.Context) error {
	if err := p.awaitAcks(ctx); err != nil {
		return err
	}
	result := make(chan error, 1)
	p.commits.Go(func() { result <- p.async.CommitTxn() })
	limit := time.NewTimer(2 * p.timeout)
	defer limit.Stop()
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("kafka transaction: commit: %w", err)
		}
		return nil
	case <-p.failed:
		return p.err
	case <-limit.C:
		return fmt.Errorf("kafka transaction: commit: no answer for %s", 2*p.timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitAcks waits until every record sent is acknowledged.
func (p *producer) awaitAcks(ctx context.Context) error {
	p.wanted.Store(p.sent)
	defer p.wanted.Store(-1)
	limit := time.NewTimer(2 * p.timeout)
	defer limit.Stop()
	for p.acked.Load() != p.sent {
		select {
		case <-p.arrived:
		case <-p.failed:
			return p.err
		case <-limit.C:
			return fmt.Errorf("kafka transaction: %d of %d records acknowledged after %s", p.acked.Load(), p.sent, 2*p.timeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// abort gives up the open transaction after a planned stop, so that readers need not wait
// for Kafka to time it out. It is a courtesy: nothing depends on its success.
func (p *producer) abort(ctx context.Context) {
	done := make(chan struct{})
	p.commits.Go(func() {
		defer close(done)
		_ = p.async.AbortTxn()
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// close ends the producer; an open transaction is left for Kafka, or the next producer of
// the transactional id, to abort. It closes k first, so that sarama need not wait for
// answers; sarama must not be closed while it ends a transaction.
func (p *producer) close(k *kafka) error {
	err := k.close()
	p.commits.Wait()
	p.async.AsyncClose()
	p.drains.Wait()
	return err
}

// fenced tells whether an error means that the transactional id was initialised again, by
// another producer or, after the transaction timeout, by Kafka itself.
func fenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}
