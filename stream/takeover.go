package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// take takes a partition over. The order matters: initialising the transactional id ends
// the predecessor's transaction and shuts it out; only then offset and state stand still.
func (p *Processor) take(ctx context.Context, log *kafkaLog, reader sarama.Consumer, at place) (t *task, err error) {
	writer, err := p.openWriter(at)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			writer.close()
		}
	}()
	t = &task{p: p, place: at, writer: writer}
	if err := t.findOffset(ctx, log); err != nil {
		return nil, err
	}
	if err := t.restore(ctx, log, reader); err != nil {
		return nil, fmt.Errorf("state topic %s: %w", p.cfg.State, err)
	}
	return t, nil
}

// findOffset is where to go on. A start is committed before anything is read from it, so
// that it stays the same whoever reads.
func (t *task) findOffset(ctx context.Context, log *kafkaLog) error {
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
	if err := log.stabilize(ctx, &commits, p.cfg.Group, t.place); err != nil {
		return err
	}
	t.note = note{len(all), id}.String()
	if t.origin, err = p.c.beginning(log, kafka, n, commits, id); err != nil || t.committed {
		return err
	}
	return t.writer.transaction(nil, p.cfg.Group, t.place, t.next, t.note)
}

// restore reads the partition's state: the last value of each key.
func (t *task) restore(ctx context.Context, log *kafkaLog, reader sarama.Consumer) (err error) {
	t.state = map[string][]byte{}
	topic, n := t.p.cfg.State, t.place.number
	b, err := log.bounds(topic, n)
	if err != nil {
		return err
	}
	last, err := log.lastVisible(topic, n, b.oldest, b.newest)
	if err != nil || last < b.oldest {
		return err
	}
	pc, err := reader.ConsumePartition(topic, n, b.oldest)
	if err != nil {
		return reachable(err)
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case failed, open := <-pc.Errors():
			if open {
				return failed
			}
		case m, open := <-pc.Messages():
			if !open {
				return fmt.Errorf("offset %d: %w", b.oldest, ErrOffsetOutOfRange)
			}
			change := map[string][]byte{string(m.Key): m.Value}
			t.size = t.sizeWith(change)
			if m.Value == nil {
				delete(t.state, string(m.Key))
			} else {
				t.state[string(m.Key)] = m.Value
			}
			if m.Offset >= last {
				return nil
			}
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
func (l *kafkaLog) stabilize(ctx context.Context, c *commits, group string, at place) error {
	for {
		block, err := l.stable(group, at)
		switch {
		case err == nil:
			c.set(at.number, block)
			return nil
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

// txnWriter writes the transactions of one partition. After any error it is of no use:
// what became of the transaction is not known until another has initialised its id.
type txnWriter struct {
	client   sarama.Client
	producer sarama.SyncProducer
}

func (p *Processor) openWriter(at place) (*txnWriter, error) {
	sc := p.c.cfg.producer()
	sc.Producer.Transaction.ID = p.cfg.Group + "/" + at.kafka + "/" + strconv.Itoa(int(at.number))
	// A dead member's open transaction keeps its offsets unstable, which holds up who
	// takes over: no longer than until Kafka takes the member for dead.
	sc.Producer.Transaction.Timeout = p.c.cfg.SessionTimeout
	sc.Producer.Partitioner = p.partitioner
	client, err := sarama.NewClient(p.cfg.Brokers, sc)
	if err != nil {
		return nil, reachable(err)
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("transactional id %s: %w", sc.Producer.Transaction.ID, err), client.Close())
	}
	return &txnWriter{client, producer}, nil
}

// transaction writes messages and an offset. Nil means that Kafka has committed them.
func (w *txnWriter) transaction(messages []*sarama.ProducerMessage, group string, at place, next int64, note string) error {
	if err := w.producer.BeginTxn(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := w.producer.SendMessages(messages); err != nil {
		if all, ok := errors.AsType[sarama.ProducerErrors](err); ok && len(all) > 0 {
			err = fmt.Errorf("topic %s: %w", all[0].Msg.Topic, all[0].Err)
		}
		return errors.Join(err, w.producer.AbortTxn())
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{
		at.kafka: {{Partition: at.number, Offset: next, LeaderEpoch: -1, Metadata: &note}},
	}
	if err := w.producer.AddOffsetsToTxn(offsets, group); err != nil {
		return errors.Join(fmt.Errorf("offsets: %w", err), w.producer.AbortTxn())
	}
	if err := w.producer.CommitTxn(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// close ends the writer; what it could not end is for the next one of its id to abort.
func (w *txnWriter) close() {
	_ = w.producer.Close()
	_ = w.client.Close()
}

// partitioner sends the state to the partition that it is of, and outputs by their key.
func (p *Processor) partitioner(topic string) sarama.Partitioner {
	if topic == p.cfg.State {
		return sarama.NewManualPartitioner(topic)
	}
	return byKey{}
}

// byKey is the mirror's way to choose a partition.
type byKey struct{}

// Partition implements sarama.Partitioner.
func (byKey) Partition(m *sarama.ProducerMessage, partitions int32) (int32, error) {
	key, err := m.Key.Encode()
	if err != nil {
		return 0, err
	}
	return record.Partition(key, partitions), nil
}

// RequiresConsistency implements sarama.Partitioner.
func (byKey) RequiresConsistency() bool { return true }
