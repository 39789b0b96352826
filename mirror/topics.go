package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"notifymirror/mirror/record"
)

// topic is a mirror topic that records may go to.
type topic struct {
	topicRecord
	// notify is the topic's name in the store.
	notify string
	// limit is the topic's max.message.bytes.
	limit int
	// counts of the topic's metrics
	metrics topicMetrics
}

// topics are the mirror topics of a store, by the name in the store. Partition counts are
// those of the checkpoint, whatever Kafka says later: a key stays in its partition until a
// command records another count.
type topics struct {
	kafka  *kafka
	config Config
	byName map[string]*topic
	saved  map[string]topicRecord
	metric func(notify string) topicMetrics
}

// find returns a topic. An unknown one is looked up in Kafka, and made there when it does
// not exist; then fresh is true, and its record must go into the Kafka transaction of the
// topic's first record.
func (t *topics) find(ctx context.Context, name []byte, generation, seq uint64) (found *topic, fresh bool, err error) {
	if found := t.byName[string(name)]; found != nil {
		return found, false, nil
	}
	notify := string(name)
	kafkaName := record.TopicName(t.config.TopicPrefix, notify)
	if len(kafkaName) > 249 {
		return nil, false, haltf(ReasonTopic, ErrTopicName, "choose a shorter topic_prefix in canald's configuration",
			"%s has %d bytes, Kafka takes 249", kafkaName, len(kafkaName))
	}
	rec, known := t.saved[kafkaName]
	if !known {
		if rec, err = t.enter(ctx, kafkaName); err != nil {
			return nil, false, err
		}
		rec.Generation, rec.Seq = generation, seq
	}
	limit, err := t.kafka.messageLimit(kafkaName)
	if err != nil {
		return nil, false, err
	}
	found = &topic{topicRecord: rec, notify: notify, limit: limit, metrics: t.metric(notify)}
	t.byName[notify] = found
	return found, !known, nil
}

// enter finds out about a topic that has no record yet. One that exists keeps the
// partitions that it has.
func (t *topics) enter(ctx context.Context, name string) (topicRecord, error) {
	all, err := t.kafka.describe()
	if err != nil {
		return topicRecord{}, err
	}
	info, exists := all[name]
	if !exists {
		for other := range all {
			if record.Collide(name, other) {
				return topicRecord{}, haltf(ReasonTopic, ErrTopicName,
					"drop one of the two topics: Kafka takes '.' and '_' for the same in its metrics", "%s beside %s", name, other)
			}
		}
		if err := t.kafka.create(ctx, name, t.config.Partitions, t.config.ReplicationFactor, map[string]string{
			"max.message.bytes": strconv.FormatInt(int64(t.config.MaxBodyBytes)+TopicOverhead, 10),
		}); err != nil {
			return topicRecord{}, err
		}
		created, err := t.kafka.describe(name)
		if err != nil {
			return topicRecord{}, err
		}
		if info, exists = created[name]; !exists {
			return topicRecord{}, fmt.Errorf("kafka topic %s: not there after its creation", name)
		}
	}
	return topicRecord{Topic: name, ID: info.id, Partitions: info.partitions}, nil
}

// checkTopics compares the topics recorded in the checkpoint with Kafka's, and says where
// Kafka has more partitions than are written to.
func (c *Copier) checkTopics(saved map[string]topicRecord, k *kafka) error {
	if len(saved) == 0 {
		return nil
	}
	all, err := k.describeSaved(saved)
	if err != nil {
		return err
	}
	if err := verifyTopics(saved, all); err != nil {
		return err
	}
	if notes := grown(c.config.TopicPrefix, c.name, saved, all); c.board.notes(notes) {
		c.log.Warn("partitions were added to a mirror topic", "notes", notes)
	}
	return nil
}

// describeSaved returns all topics that there are. A list of all leaves out those that we have no
// right to see, and what is left out is not gone: asked for by its name, Kafka says which it is.
func (k *kafka) describeSaved(saved map[string]topicRecord) (map[string]topicInfo, error) {
	all, err := k.describe()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		if _, listed := all[name]; !listed {
			one, err := k.describe(name)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, one)
		}
	}
	return all, nil
}

// grown is a line for each topic that has more partitions in Kafka than in the checkpoint.
func grown(prefix, store string, saved map[string]topicRecord, all map[string]topicInfo) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		if t, has := saved[name], all[name].partitions; has > t.Partitions {
			notes = append(notes, fmt.Sprintf("topic %s has %d partitions in Kafka and the mirror writes to %d of them, so that each key stays where it is; to use them: notify mirror grow %s --partitions %d --store %s",
				name, has, t.Partitions, strings.TrimPrefix(name, prefix), has, store))
		}
	}
	return notes
}

// verifyTopics refuses topics that are not those of the checkpoint.
func verifyTopics(saved map[string]topicRecord, all map[string]topicInfo) error {
	for name, t := range saved {
		const repair = "its records are lost to readers: stop their use of the old offsets, then start a new generation"
		info, exists := all[name]
		switch {
		case !exists:
			return haltf(ReasonTopic, ErrTopicChanged, repair, "%s (id %s) is gone", name, t.ID)
		case info.id != t.ID:
			return haltf(ReasonTopic, ErrTopicChanged, repair, "%s has the id %s, the checkpoint knows %s", name, info.id, t.ID)
		case info.partitions < t.Partitions:
			return haltf(ReasonTopic, ErrTopicChanged, repair, "%s has %d partitions, the checkpoint knows %d", name, info.partitions, t.Partitions)
		}
	}
	return nil
}

// tooLarge is for a record that its topic would refuse: an obstacle while the limit can be raised.
func tooLarge(m message, t *topic, size int, brokers []string) error {
	const what = "message %s of topic %s takes %d bytes, %s takes %d"
	if size+TopicOverhead > maxTopicBytes {
		return haltf(ReasonTooLarge, ErrTooLarge, fmt.Sprintf("the mirror takes records up to %d bytes", maxTopicBytes), what, m.id, t.notify, size, t.Topic, t.limit)
	}
	return &Obstacle{
		Reason: ReasonTooLarge, Err: fmt.Errorf("%w: "+what, ErrTooLarge, m.id, t.notify, size, t.Topic, t.limit),
		Repair: "raise it with: " + setTopic(strings.Join(brokers, ","), t.Topic, "max.message.bytes", strconv.Itoa(size+TopicOverhead)),
	}
}

// checkpointTopic is the name of a store's checkpoint topic.
func checkpointTopic(storeID string) string { return "_notify-checkpoint." + storeID }

// openCheckpointTopic makes the checkpoint topic when it does not exist, and checks it.
// Segments are small so that compaction, which leaves the newest segment alone, keeps the
// topic quick to read.
func openCheckpointTopic(ctx context.Context, k *kafka, name string, replication int16) error {
	infos, err := k.describe(name)
	if err != nil {
		return err
	}
	info, exists := infos[name]
	if !exists {
		return k.create(ctx, name, 1, replication, map[string]string{
			"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1",
		})
	}
	if info.partitions != 1 {
		return haltf(ReasonCheckpoint, ErrCheckpointTopic, "it must have one: make it anew from a copy of its records",
			"%s has %d partitions", name, info.partitions)
	}
	settings, err := k.config(name)
	if err != nil {
		return err
	}
	if policy := settings["cleanup.policy"]; !compacted(policy) {
		return haltf(ReasonCheckpoint, ErrCheckpointTopic,
			fmt.Sprintf("mend it with: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact", name),
			"%s has cleanup.policy=%s and would lose the checkpoint", name, policy)
	}
	return nil
}

func cloneTopics(all map[string]topicRecord) map[string]topicRecord {
	out := make(map[string]topicRecord, len(all))
	maps.Copy(out, all)
	return out
}
