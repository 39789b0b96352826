package board

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// partitionInterval is how often the number of partitions is looked at. Until then a new
// partition's records are missing.
const partitionInterval = 3 * time.Second

// watchPartitions calls changed when the topic has got another number of partitions than the
// one that is read, and returns then or when ctx ends. Kafka being away changes nothing.
func (l *live) watchPartitions(ctx context.Context, read int, changed func()) {
	tick := time.NewTicker(partitionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now, err := l.partitions(); err == nil && len(now) != read {
			l.logger.InfoContext(ctx, "partitions changed", "board", l.name, "topic", l.board.Topic, "partitions", len(now))
			changed()
			return
		}
	}
}

// partitions are those of the board's topic. The error wraps stream.ErrUnknownTopic or
// stream.ErrUnreachable.
func (l *live) partitions() ([]int32, error) {
	topic := record.TopicName(l.cfg.TopicPrefix, l.board.Topic)
	cfg := sarama.NewConfig()
	cfg.ClientID = "notify-board"
	cfg.Metadata.Full = false
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Metadata.Retry.Max = 0
	letIn, err := l.cfg.Kafka.Access.Load()
	if err != nil {
		return nil, err
	}
	letIn(cfg)
	client, err := sarama.NewClient(l.cfg.Kafka.Brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", stream.ErrUnreachable, err)
	}
	defer client.Close()
	all, err := client.Partitions(topic)
	switch {
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return nil, fmt.Errorf("%s: %w", topic, stream.ErrUnknownTopic)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", topic, stream.ErrUnreachable, err)
	}
	return all, nil
}
