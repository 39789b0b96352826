package mirror

import (
	"context"
	"errors"
	"strings"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// evidence is how many records at either end of a partition are looked at for records of
// a store that has no checkpoint, and whose transactional id Kafka does not know: all are looked
// at where it does.
const evidence = 200

// lostRepair is for a checkpoint that Kafka has no more.
const lostRepair = "do not delete its topics; restore the checkpoint topic from a copy of its records, or begin again in another generation: `" +
	resetCommand + "` copies what the binlog still has, `" + backfillCommand + "` what the tables hold, both also what the mirror has already (notify-id tells)"

// checkFirst refuses to take a lost checkpoint for a first start.
func (c *Copier) checkFirst(ctx context.Context, s *start, virgin bool) error {
	if !virgin {
		return haltf(ReasonCheckpoint, ErrCheckpointLost, lostRepair, "%s was written, and holds no checkpoint", s.topic)
	}
	defer c.looked.Store(0)
	return c.eachPartition(s.kafka, func(topic string, partition int32) error {
		found, err := c.holdsStore(ctx, s.kafka, topic, partition, s.info.id, s.producer.Known())
		if err == nil && found {
			err = haltf(ReasonCheckpoint, ErrCheckpointLost, lostRepair, "topic %s partition %d holds records of store %s, and %s no checkpoint",
				topic, partition, s.info.id, s.topic)
		}
		return err
	})
}

// eachPartition calls look for each partition of the mirror's topics.
func (c *Copier) eachPartition(k *kafka, look func(topic string, partition int32) error) error {
	all, err := k.describe()
	if err != nil {
		return err
	}
	for name, info := range all {
		if !strings.HasPrefix(name, c.config.TopicPrefix) {
			continue
		}
		for p := range info.partitions {
			if err := look(name, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// errHolds ends a search.
var errHolds = errors.New("found")

// holdsStore tells whether records of a partition are of the store: any, or one of the first and
// last. Records of a quiet store may all lie behind those of a busy one.
func (c *Copier) holdsStore(ctx context.Context, k *kafka, topic string, partition int32, storeID string, any bool) (bool, error) {
	first, end, err := k.partitionEnds(topic, partition)
	if err != nil {
		return false, err
	}
	from, most := []int64{first, max(first, end-evidence)}, int64(evidence)
	if any {
		from, most = from[:1], end-first
	}
	for _, at := range from {
		_, err := k.readCommitted(ctx, topic, partition, at, min(end, at+most), c.counting(ofStore(storeID, func(record.Message) error { return errHolds })))
		if errors.Is(err, errHolds) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// ofStore calls use with those records that are messages of a store.
func ofStore(storeID string, use func(record.Message) error) func(*sarama.Record) error {
	return func(r *sarama.Record) error {
		m, err := record.Decode(record.Record{Key: r.Key, Value: r.Value, Headers: headersOf(r)})
		if err != nil || m.Source.Store != storeID {
			return nil
		}
		return use(m)
	}
}

// counting calls use, and counts for those who wait.
func (c *Copier) counting(use func(*sarama.Record) error) func(*sarama.Record) error {
	return func(r *sarama.Record) error {
		c.looked.Add(1)
		return use(r)
	}
}

// beginAgain lets an operator's change take the place of a lost checkpoint, behind every
// generation that the mirror's topics hold. Without one it returns the halt.
func (c *Copier) beginAgain(ctx context.Context, s *start, halt error) error {
	s.at.lost = true
	err := c.eachPartition(s.kafka, func(topic string, partition int32) error {
		first, end, err := s.kafka.partitionEnds(topic, partition)
		if err != nil {
			return err
		}
		_, err = s.kafka.readCommitted(ctx, topic, partition, first, end, c.counting(ofStore(s.info.id, func(m record.Message) error {
			s.at.Generation = max(s.at.Generation, m.Source.Generation)
			return nil
		})))
		return err
	})
	c.looked.Store(0)
	if err != nil {
		return err
	}
	c.board.found(s.at)
	c.change(ctx, s)
	if s.change == nil || s.change.What == Grow {
		return halt
	}
	return nil
}
