package stream

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

var (
	// ErrUnreachable is returned by Run and Records when no broker answered at the start.
	ErrUnreachable = errors.New("kafka is not reachable")
	// ErrUnknownTopic is returned when a topic is not in Kafka: nothing was mirrored to
	// it yet, or the prefix differs from the mirror's.
	ErrUnknownTopic = errors.New("topic is not in kafka")
	// ErrOffsetOutOfRange is returned when the log does not hold the offset to start or
	// go on from: retention took it, or the topic was deleted and made again. Its text
	// names the offsets that are gone. Nothing is passed over in silence; see Config.Gone.
	ErrOffsetOutOfRange = errors.New("offset is not in the log")
	// ErrNoRejectTopic is returned, in a HandlerError, when a handler rejected a record
	// and Config.RejectTopic is empty.
	ErrNoRejectTopic = errors.New("rejected, and no reject topic is configured")
	// ErrStateTooLarge is returned, in a HandlerError, when a step would make a
	// partition's state larger than ProcessorConfig.MaxState.
	ErrStateTooLarge = errors.New("state is too large")

	// errNotTaken is returned by a handler of ours that did not take the record.
	errNotTaken = errors.New("record not taken")
	// errNotCommitted is returned by a processor's handler whose transaction failed: what
	// became of it is not known.
	errNotCommitted = errors.New("transaction not known to be committed")
	// errNeverEnded is what stands in a processor's way when Kafka says that a transaction
	// of its predecessor has ended, and has not written so everywhere.
	errNeverEnded = errors.New("a transaction has an end in no partition that it wrote to: kafka lost it; " +
		"find it with kafka-transactions.sh find-hanging, and end it with kafka-transactions.sh abort")
	// errNotOfBatch is what comes of an At with another batch's record.
	errNotOfBatch = errors.New("a handler may name only records that it was given")
)

// A HandlerError is returned by Run when a handler returned an error: the consumer
// stopped, and the record is not committed.
type HandlerError struct {
	// Topic is notify's name of the topic.
	Topic     string
	Partition int32
	Offset    int64
	// Err is what the handler returned.
	Err error
}

// Error implements error.
func (e *HandlerError) Error() string {
	return fmt.Sprintf("handler: topic %s partition %d offset %d: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

// Unwrap is the handler's own error.
func (e *HandlerError) Unwrap() error { return e.Err }

// reachable marks the errors that mean that no broker answered.
func reachable(err error) error {
	if errors.Is(err, sarama.ErrOutOfBrokers) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// fatal tells whether joining the group again cannot help.
func fatal(err error) bool {
	for _, f := range []error{
		ErrUnknownTopic, ErrOffsetOutOfRange,
		sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
		sarama.ErrInvalidGroupId, sarama.ErrInconsistentGroupProtocol, sarama.ErrInvalidSessionTimeout,
		sarama.ErrClosedConsumerGroup, sarama.ErrClosedClient,
	} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}
