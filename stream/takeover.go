package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/transact"
)

// take takes a partition over. The order matters: initialising the transactional id ends
// the predecessor's transaction and shuts it out; only then offset and state stand still.
func (p *Processor) take(ctx context.Context, log *kafkaLog, reader sarama.Consumer, of transact.Member, at place) (t *task, err error) {
	writer, err := p.openWriter(ctx, of, at)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			writer.close(ctx)
		}
	}()
	t = &task{p: p, place: at, writer: writer}
	position, err := t.restore(ctx, log, reader)
	if err != nil {
		return nil, fmt.Errorf("state topic %s: %w", p.cfg.State, err)
	}
	if err := t.findOffset(ctx, log, position); err != nil {
		return nil, err
	}
	return t, nil
}

// findOffset is where to go on: at the position that the state is of, unless the group is
// further. A start is committed before anything is read from it, so that it stays the same
// whoever reads.
func (t *task) findOffset(ctx context.Context, log *kafkaLog, position []byte) error {
	p, kafka, n := t.p, t.place.kafka, t.place.number
	all, err := log.partitions(kafka)
	if err != nil {
		return err
	}
	id, err := log.topicID(kafka)
	if err != nil {
		return err
	}
	commits, err := log.commits(p.cfg.Group, kafka, all)
	if err != nil {
		return err
	}
	if err := log.stabilize(ctx, &commits, p.cfg.Group, t.place, t.writer.producer.Timeout()); err != nil {
		return err
	}
	if next, said, ok := parsePosition(position); ok {
		commits.atLeast(n, next, said)
	}
	t.note = note{len(all), id}.String()
	if t.origin, err = p.c.beginning(log, kafka, n, commits, id); err != nil || t.committed {
		return err
	}
	return t.commit(ctx, &Step{}, t.next)
}

// restore reads the partition's state, the last value of each key, and its position.
func (t *task) restore(ctx context.Context, log *kafkaLog, reader sarama.Consumer) (position []byte, err error) {
	t.state = map[string][]byte{}
	topic, n := t.p.cfg.State, t.place.number
	b, err := log.ended(ctx, topic, n, t.writer.producer.Timeout())
	if err != nil {
		return nil, err
	}
	last, err := log.lastVisible(topic, n, b.oldest, b.newest)
	if err != nil || last < b.oldest {
		return nil, err
	}
	pc, err := reader.ConsumePartition(topic, n, b.oldest)
	if err != nil {
		return nil, reachable(err)
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case failed, open := <-pc.Errors():
			if open {
				return nil, failed
			}
		case m, open := <-pc.Messages():
			if !open {
				return nil, fmt.Errorf("offset %d: %w", b.oldest, ErrOffsetOutOfRange)
			}
			if string(m.Key) == positionKey {
				position = m.Value
			} else {
				t.restored(string(m.Key), m.Value)
			}
			if m.Offset >= last {
				return position, nil
			}
		}
	}
}

// restored takes over a value of the state; nil: it was deleted.
func (t *task) restored(key string, value []byte) {
	t.size = t.sizeWith(map[string][]byte{key: value})
	if value == nil {
		delete(t.state, key)
	} else {
		t.state[key] = value
	}
}

// ended is the ends of a partition of which the caller is the only writer, when no
// transaction is open in it: the caller's were ended when its id was initialised. One that
// stays open for limit was not ended by Kafka, and must not be by a marker of the caller's.
func (l *kafkaLog) ended(ctx context.Context, topic string, partition int32, limit time.Duration) (bounds, error) {
	since := time.Now()
	for {
		b, err := l.bounds(topic, partition)
		if err != nil || b.newest == b.end {
			return b, err
		}
		if time.Since(since) > limit {
			return b, fmt.Errorf("partition %d: offset %d: %w", partition, b.newest, errNeverEnded)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return b, ctx.Err()
		}
	}
}

// makeState makes the state topic, or gives it the partitions that it lacks beside the
// input. It must be compacted: a state that is deleted by its age is lost.
func (l *kafkaLog) makeState(topic, input string) error {
	partitions, err := l.partitions(input) // it may have grown
	if err != nil {
		return err
	}
	if err := l.makeCompacted(topic, len(partitions)); err != nil {
		return fmt.Errorf("state topic %s: %w", topic, err)
	}
	return nil
}

func (l *kafkaLog) makeCompacted(topic string, partitions int) error {
	admin, err := sarama.NewClusterAdminFromClient(l.client)
	if err != nil {
		return err
	}
	compact := "compact"
	have, err := l.partitions(topic)
	switch {
	case errors.Is(err, ErrUnknownTopic):
		err = admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: int32(partitions), ReplicationFactor: -1, ConfigEntries: map[string]*string{cleanupPolicy: &compact},
		}, false)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) { // another member was first
			return err
		}
		if err := l.client.RefreshMetadata(topic); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(have) < partitions:
		if err := admin.CreatePartitions(topic, int32(partitions), nil, false); err != nil {
			return err
		}
	}
	results, err := admin.DescribeConfigs([]*sarama.ConfigResource{
		{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{cleanupPolicy}},
	}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return err
	}
	for _, r := range results {
		if err := kafkaError(r.ErrorCode); err != nil {
			return fmt.Errorf("its configuration: %w", err)
		}
		for _, e := range r.Configs {
			if e.Name == cleanupPolicy && e.Value != compact {
				return fmt.Errorf("%s is %s: set it to %s", cleanupPolicy, e.Value, compact)
			}
		}
	}
	return nil
}

const cleanupPolicy = "cleanup.policy"

// stabilize asks for one partition's commit again when no transaction that changes it is
// open: Kafka ends a transaction before its offsets are seen by all.
func (l *kafkaLog) stabilize(ctx context.Context, c *commits, group string, at place, limit time.Duration) error {
	since := time.Now()
	for {
		block, err := l.stable(group, at)
		switch {
		case err == nil:
			c.set(at.number, block)
			return nil
		case errors.Is(err, sarama.ErrUnstableOffsetCommit) && time.Since(since) > limit:
			return fmt.Errorf("committed offset: %w: %w", errNeverEnded, err)
		case !passing(err) || !pause(ctx, 50*time.Millisecond):
			return fmt.Errorf("committed offset: %w", err)
		}
		if err := l.client.RefreshCoordinator(group); err != nil {
			return err
		}
	}
}

func (l *kafkaLog) stable(group string, at place) (*sarama.OffsetFetchResponseBlock, error) {
	coordinator, err := l.client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	req := sarama.NewOffsetFetchRequest(l.client.Config().Version, group, map[string][]int32{at.kafka: {at.number}})
	req.RequireStable = true
	resp, err := coordinator.FetchOffset(req)
	if err != nil {
		_ = coordinator.Close() // the next question opens it anew
		return nil, err
	}
	block := resp.GetBlock(at.kafka, at.number)
	if block == nil {
		return nil, cmp.Or(kafkaError(resp.GroupError()), error(sarama.ErrIncompleteResponse))
	}
	return block, kafkaError(block.Err)
}

// passing tells whether an error of the group's coordinator is over soon.
func passing(err error) bool {
	for _, p := range []error{
		sarama.ErrUnstableOffsetCommit, sarama.ErrOffsetsLoadInProgress,
		sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}
