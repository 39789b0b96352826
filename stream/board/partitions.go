package board

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// partitionInterval is how often the number of partitions is looked at. Until then a new
// partition's records are missing.
const partitionInterval = 3 * time.Second

// watchPartitions calls changed when the topic has got another number of partitions, and
// returns then or when ctx ends. Kafka being away changes nothing.
func (l *live) watchPartitions(ctx context.Context, changed func()) {
	topic := record.TopicName(l.cfg.TopicPrefix, l.board.Topic)
	tick := time.NewTicker(partitionInterval)
	defer tick.Stop()
	first := 0
	for {
		n := l.partitions(topic)
		switch {
		case first == 0:
			first = n
		case n != 0 && n != first:
			l.logger.InfoContext(ctx, "partitions changed", "board", l.name, "topic", topic, "partitions", n)
			changed()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// partitions is a topic's number of partitions; 0 when it cannot be found out.
func (l *live) partitions(topic string) int {
	cfg := sarama.NewConfig()
	cfg.ClientID = "notify-board"
	cfg.Metadata.Full = false
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(l.cfg.Kafka.Brokers, cfg)
	if err != nil {
		return 0
	}
	defer client.Close()
	ps, err := client.Partitions(topic)
	if err != nil {
		return 0
	}
	return len(ps)
}
