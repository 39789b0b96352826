package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// The headers that a record in the reject topic has beside its own. Key, value, timestamp
// and the other headers are the record's: a Consumer of the reject topic reads the message.
const (
	// RejectReasonHeader is why the record was rejected: at most 1 KiB.
	RejectReasonHeader = "notify-reject-reason"
	// RejectGroupHeader is the group that rejected it; empty for assigned partitions.
	RejectGroupHeader = "notify-reject-group"
	// RejectTopicHeader, RejectPartitionHeader and RejectOffsetHeader are its place: the
	// topic's name in Kafka, and decimal numbers.
	RejectTopicHeader     = "notify-reject-topic"
	RejectPartitionHeader = "notify-reject-partition"
	RejectOffsetHeader    = "notify-reject-offset"
)

// maxReason is how much of a reason the header takes, in bytes.
const maxReason = 1 << 10

// rejecter writes to the reject topic. Its methods may be called from several goroutines.
type rejecter struct {
	topic, group string
	client       sarama.Client
	producer     sarama.SyncProducer
}

// openRejecter connects; it is nil when no reject topic is configured.
func openRejecter(cfg *Config, log *kafkaLog) (*rejecter, error) {
	if cfg.RejectTopic == "" {
		return nil, nil
	}
	if _, err := log.partitions(cfg.RejectTopic); err != nil {
		return nil, fmt.Errorf("RejectTopic: %w", err)
	}
	client, err := sarama.NewClient(cfg.Brokers, cfg.producer())
	if err != nil {
		return nil, reachable(err)
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &rejecter{cfg.RejectTopic, cfg.Group, client, producer}, nil
}

func (r *rejecter) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.producer.Close(), r.client.Close())
}

// message is a record as the reject topic has it.
func (r *rejecter) message(m *sarama.ConsumerMessage, reason string) *sarama.ProducerMessage {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	out := &sarama.ProducerMessage{Topic: r.topic, Timestamp: m.Timestamp, Value: sarama.ByteEncoder(m.Value)}
	if m.Key != nil {
		out.Key = sarama.ByteEncoder(m.Key)
	}
	ours := []sarama.RecordHeader{
		{Key: []byte(RejectReasonHeader), Value: []byte(reason)},
		{Key: []byte(RejectGroupHeader), Value: []byte(r.group)},
		{Key: []byte(RejectTopicHeader), Value: []byte(m.Topic)},
		{Key: []byte(RejectPartitionHeader), Value: []byte(strconv.Itoa(int(m.Partition)))},
		{Key: []byte(RejectOffsetHeader), Value: []byte(strconv.FormatInt(m.Offset, 10))},
	}
	for _, h := range m.Headers { // a record may come from a reject topic itself
		if !slices.ContainsFunc(ours, func(o sarama.RecordHeader) bool { return string(o.Key) == string(h.Key) }) {
			out.Headers = append(out.Headers, *h)
		}
	}
	out.Headers = append(out.Headers, ours...)
	return out
}

// send writes a record to the reject topic. While Kafka is away it tries on; errNotTaken
// means that ctx ended first.
func (r *rejecter) send(ctx context.Context, m *sarama.ConsumerMessage, reason string, trouble func(error)) error {
	for {
		_, _, err := r.producer.SendMessage(r.message(m, reason))
		switch {
		case err == nil:
			return nil
		case neverTaken(err):
			return fmt.Errorf("reject topic %s: %w", r.topic, err)
		}
		trouble(err)
		if !pause(ctx, time.Second) {
			return errNotTaken
		}
	}
}

// neverTaken tells whether trying again cannot help.
func neverTaken(err error) bool {
	for _, f := range []error{
		sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidMessage, sarama.ErrInvalidRecord, sarama.ErrUnsupportedForMessageFormat,
		sarama.ErrUnknownTopicOrPartition, sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrPolicyViolation, sarama.ErrInvalidTimestamp, sarama.ErrClosedClient,
	} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// pause waits, and tells whether ctx let it wait to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
