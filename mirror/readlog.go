package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// readTimeout bounds how long a read waits for a partition's next bytes.
const readTimeout = 30 * time.Second

// partitionEnds returns the first offset of a partition, and its high watermark.
func (k *kafka) partitionEnds(topic string, partition int32) (first, end int64, err error) {
	first, err = k.client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err == nil {
		end, err = k.client.GetOffset(topic, partition, sarama.OffsetNewest)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("kafka topic %s partition %d: offsets: %w", topic, partition, err)
	}
	return first, end, nil
}

// readCommitted calls use with every committed record of a partition from the offset from
// up to, not including, the offset to. It tells whether it saw every offset between, be it
// of a record, an aborted record or a marker: false means that some are gone.
//
// The read ends by offsets, not by silence: markers and aborted records count, which is
// why it does not go through sarama's consumer. It fails when nothing comes for readTimeout.
func (k *kafka) readCommitted(ctx context.Context, topic string, partition int32, from, to int64, use func(*sarama.Record) error) (whole bool, err error) {
	return k.readBatches(ctx, topic, partition, from, to, func(_ *sarama.RecordBatch, r *sarama.Record) error { return use(r) })
}

// readBatches is readCommitted that gives each record with its batch, for offset and time.
func (k *kafka) readBatches(ctx context.Context, topic string, partition int32, from, to int64, use func(*sarama.RecordBatch, *sarama.Record) error) (whole bool, err error) {
	whole = true
	var filter abortFilter
	deadline := time.Now().Add(readTimeout)
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		block, err := k.fetch(topic, partition, at)
		if err != nil {
			return false, err
		}
		next, gap, err := filter.apply(block, at, use)
		if err != nil {
			return false, err
		}
		whole = whole && !gap
		if next == at {
			if time.Now().After(deadline) {
				return false, fmt.Errorf("kafka topic %s partition %d: nothing committed to read at offset %d below the high watermark %d for %s: if Kafka has forgotten a transaction there, kafka-transactions.sh find-hanging shows it", topic, partition, at, to, readTimeout)
			}
			continue
		}
		at, deadline = next, time.Now().Add(readTimeout)
	}
	return whole, nil
}

// fetch reads a piece of a partition from its leader.
func (k *kafka) fetch(topic string, partition int32, offset int64) (*sarama.FetchResponseBlock, error) {
	leader, err := k.client.Leader(topic, partition)
	if err != nil {
		return nil, fmt.Errorf("kafka topic %s partition %d: %w", topic, partition, err)
	}
	const version, mostBytes = 11, 8 << 20
	req := &sarama.FetchRequest{
		Version: version, MaxWaitTime: 250, MinBytes: 1, MaxBytes: mostBytes,
		Isolation: sarama.ReadCommitted, SessionEpoch: -1,
	}
	req.AddBlock(topic, partition, offset, mostBytes, -1)
	res, err := leader.Fetch(req)
	if err != nil {
		_ = leader.Close() // a broken connection would be handed out again
		return nil, fmt.Errorf("kafka topic %s partition %d: fetch: %w", topic, partition, err)
	}
	block := res.GetBlock(topic, partition)
	if block == nil {
		return nil, fmt.Errorf("kafka topic %s partition %d: fetch: empty answer", topic, partition)
	}
	if !errors.Is(block.Err, sarama.ErrNoError) {
		return nil, fmt.Errorf("kafka topic %s partition %d: fetch: %w", topic, partition, block.Err)
	}
	return block, nil
}

// abortFilter drops aborted records, as a read_committed consumer does: an aborted
// transaction of a producer begins at the offset that the broker names, and ends with the
// producer's next abort marker.
type abortFilter struct {
	aborting map[int64]bool
}

// apply hands the committed records of a piece at or behind the offset at to use, and
// returns the offset behind the piece, and whether offsets are missing in it.
func (f *abortFilter) apply(block *sarama.FetchResponseBlock, at int64, use func(*sarama.RecordBatch, *sarama.Record) error) (next int64, gap bool, err error) {
	if f.aborting == nil {
		f.aborting = make(map[int64]bool)
	}
	aborted := slices.SortedFunc(slices.Values(block.AbortedTransactions), func(a, b *sarama.AbortedTransaction) int {
		return int(min(1, max(-1, a.FirstOffset-b.FirstOffset)))
	})
	next = at
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return next, gap, errors.New("kafka: records in a format older than version 2")
		}
		if b.PartialTrailingRecord || b.LastOffset() < at {
			continue
		}
		gap = gap || b.FirstOffset > next || int64(len(b.Records)) != int64(b.LastOffsetDelta)+1
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			f.aborting[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		next = b.LastOffset() + 1
		if b.Control {
			if isAbort(b) {
				delete(f.aborting, b.ProducerID)
			}
			continue
		}
		if b.IsTransactional && f.aborting[b.ProducerID] {
			continue
		}
		for _, r := range b.Records {
			if b.FirstOffset+r.OffsetDelta < at {
				continue
			}
			if err := use(b, r); err != nil {
				return next, gap, err
			}
		}
	}
	return next, gap, nil
}

// isAbort tells an abort marker from a commit marker: the key is version and type, two
// bytes each, and type 0 is abort.
func isAbort(b *sarama.RecordBatch) bool {
	return len(b.Records) == 1 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}
