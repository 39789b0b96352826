package transact

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// errorOf is the error of an answer, if it is one.
func errorOf(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}

// askAttempts at one question.
const askAttempts = 20

// ask puts a question to the transaction's coordinator.
func (p *Producer) ask(ctx context.Context, question func(*sarama.Broker) error) error {
	return askOf(ctx, p.id, p.client.TransactionCoordinator, p.client.RefreshTransactionCoordinator, question)
}

// askOf puts a question to the coordinator of an id, again while the answer is that it
// cannot tell yet.
func askOf(ctx context.Context, id string, find func(string) (*sarama.Broker, error), refresh func(string) error, question func(*sarama.Broker) error) error {
	for attempt := 1; ; attempt++ {
		coordinator, err := find(id)
		if err == nil {
			err = question(coordinator)
		}
		if err == nil || !passing(err) || attempt == askAttempts {
			return err
		}
		if coordinator != nil && elsewhere(err) {
			_ = coordinator.Close() // it is opened anew, when it is still the one
			_ = refresh(id)
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

// Fenced tells whether an error means that the transactional id was initialised again, by
// another producer or, after the transaction timeout, by Kafka itself.
func Fenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}
