package stream

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/IBM/sarama"
)

// kafkaLog answers questions about partitions, over connections of its own: a
// reader's connection is busy waiting for records most of the time.
type kafkaLog struct {
	client    sarama.Client
	isolation sarama.IsolationLevel
}

// openLog connects. The error wraps ErrUnreachable when nobody answered.
func openLog(cfg Config) (*kafkaLog, error) {
	sc := cfg.sarama()
	sc.Net.ReadTimeout = min(sc.Net.ReadTimeout, 5*time.Second) // a stop waits for the answer
	client, err := sarama.NewClient(cfg.Brokers, sc)
	if err != nil {
		return nil, reachable(err)
	}
	return &kafkaLog{client: client, isolation: sc.Consumer.IsolationLevel}, nil
}

func (l *kafkaLog) close() error { return l.client.Close() }

// partitions are the numbers of a topic's partitions, as they are now: what the client knew
// may be minutes old, and a partition that was added meanwhile is not to be taken for one of
// which the group remembers nothing. The error wraps ErrUnknownTopic.
func (l *kafkaLog) partitions(topic string) ([]int32, error) {
	err := l.client.RefreshMetadata(topic)
	var ps []int32
	if err == nil {
		ps, err = l.client.Partitions(topic)
	}
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, fmt.Errorf("%s: %w", topic, ErrUnknownTopic)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", topic, reachable(err))
	}
	return ps, nil
}

// topicID is the id that Kafka gave the topic when it was made; empty where it gives none.
func (l *kafkaLog) topicID(topic string) (string, error) {
	broker := l.client.LeastLoadedBroker()
	if broker == nil {
		return "", reachable(sarama.ErrOutOfBrokers)
	}
	resp, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, []string{topic}))
	if err != nil {
		_ = broker.Close() // a broken connection would be handed out again
		return "", fmt.Errorf("%s: metadata: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if t.Name == topic && t.Uuid != (sarama.Uuid{}) {
			return t.Uuid.String(), nil
		}
	}
	return "", nil
}

// bounds are the ends of a partition.
func (l *kafkaLog) bounds(topic string, partition int32) (b bounds, err error) {
	if b.oldest, err = l.offset(topic, partition, sarama.OffsetOldest, l.isolation); err != nil {
		return b, err
	}
	if b.newest, err = l.offset(topic, partition, sarama.OffsetNewest, l.isolation); err != nil {
		return b, err
	}
	b.end, err = l.offset(topic, partition, sarama.OffsetNewest, sarama.ReadUncommitted)
	return b, err
}

// resolve is the offset of a position, and the ends of the partition. An offset that
// was given is returned as it is, also when the log does not hold it.
func (l *kafkaLog) resolve(topic string, partition int32, p Position) (int64, bounds, error) {
	b, err := l.bounds(topic, partition)
	if err != nil {
		return 0, b, err
	}
	switch p.kind {
	case newest:
		return b.newest, b, nil
	case atOffset:
		return p.offset, b, nil
	case atTime:
		offset, err := l.offset(topic, partition, max(0, p.time.UnixMilli()), l.isolation) // below 0 are Kafka's names for the ends
		if offset < 0 {
			offset = b.newest
		}
		return offset, b, err
	}
	return b.oldest, b, nil
}

// offset is that of the first record at a time in milliseconds, or -1; or of one of
// sarama's names for the ends.
func (l *kafkaLog) offset(topic string, partition int32, time int64, isolation sarama.IsolationLevel) (int64, error) {
	req := sarama.NewOffsetRequest(l.client.Config().Version)
	req.IsolationLevel = isolation
	req.AddBlock(topic, partition, time, 1)
	var offset int64
	err := l.ask(topic, partition, func(b *sarama.Broker) error {
		resp, err := b.GetAvailableOffsets(req)
		if err != nil {
			return err
		}
		block := resp.GetBlock(topic, partition)
		if block == nil || len(block.Offsets) != 1 {
			return sarama.ErrIncompleteResponse
		}
		offset = block.Offsets[0]
		return kafkaError(block.Err)
	})
	return offset, err
}

// lastVisible is the offset of the last record in [from, end) that the reader gets to
// see, or from-1 when there is none: markers and aborted records are not seen, so a
// reader cannot tell by its own that nothing more comes before end. It goes back from
// end batch by batch; end is not beyond the partition's newest.
func (l *kafkaLog) lastVisible(topic string, partition int32, from, end int64) (int64, error) {
	for at := end - 1; at >= from; {
		batch, aborted, err := l.batchAt(topic, partition, at)
		switch {
		case err != nil:
			return 0, err
		case batch == nil || batch.FirstOffset > at: // a gap, which compaction left
			at--
			continue
		case !batch.Control && !aborted:
			if last := lastIn(batch, at); last >= from {
				return last, nil
			}
		}
		at = batch.FirstOffset - 1
	}
	return from - 1, nil
}

// lastIn is the offset of a batch's last record up to an offset, or -1.
func lastIn(b *sarama.RecordBatch, upTo int64) int64 {
	last := int64(-1)
	for _, r := range b.Records {
		if offset := b.FirstOffset + r.OffsetDelta; offset <= upTo {
			last = max(last, offset)
		}
	}
	return last
}

// batchAt is the batch that holds an offset, or the next one, or nil; and whether its
// transaction was aborted.
func (l *kafkaLog) batchAt(topic string, partition int32, offset int64) (*sarama.RecordBatch, bool, error) {
	// Version 10 knows every compression. One byte of the partition means one whole batch;
	// a bound on the whole answer would make kfake leave out the aborted transactions.
	req := &sarama.FetchRequest{Version: 10, MinBytes: 1, MaxBytes: math.MaxInt32, Isolation: l.isolation, SessionEpoch: -1}
	req.AddBlock(topic, partition, offset, 1, -1)
	var block *sarama.FetchResponseBlock
	err := l.ask(topic, partition, func(b *sarama.Broker) error {
		resp, err := b.Fetch(req)
		if err != nil {
			return err
		}
		if block = resp.GetBlock(topic, partition); block == nil {
			return sarama.ErrIncompleteResponse
		}
		return kafkaError(block.Err)
	})
	if err != nil || len(block.RecordsSet) == 0 || block.RecordsSet[0].RecordBatch == nil {
		return nil, false, err
	}
	batch := block.RecordsSet[0].RecordBatch
	if l.isolation == sarama.ReadUncommitted || !batch.IsTransactional {
		return batch, false, nil
	}
	for _, a := range block.AbortedTransactions {
		// Only transactions that reach to the offset asked for are listed.
		if a.ProducerID == batch.ProducerID && a.FirstOffset <= batch.FirstOffset {
			return batch, true, nil
		}
	}
	return batch, false, nil
}

// ask puts a question to a partition's leader, a few times within 2 s if need be: the leader may
// have moved, or not know yet that it is the leader of a topic just made, or its connection died.
func (l *kafkaLog) ask(topic string, partition int32, question func(*sarama.Broker) error) error {
	const tries = 6
	for try := 1; ; try++ {
		if try > 2 { // once at once: a connection that died is what happens most
			<-time.After(50 * time.Millisecond << (try - 2))
		}
		leader, err := l.client.Leader(topic, partition)
		if err == nil {
			if err = question(leader); err == nil {
				return nil
			}
			if _, answered := errors.AsType[sarama.KError](err); !answered {
				_ = leader.Close() // the next question opens it anew
			}
		}
		if try == tries {
			return fmt.Errorf("%s partition %d: %w", topic, partition, err)
		}
		if err := l.client.RefreshMetadata(topic); err != nil {
			return fmt.Errorf("%s partition %d: %w", topic, partition, err)
		}
	}
}

// kafkaError is nil for Kafka's "no error".
func kafkaError(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}
