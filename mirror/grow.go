package mirror

import (
	"context"
	"errors"
	"fmt"

	"notifymirror/mirror/record"
)

// A Growth is what Grow does to a topic: up to the outcome's Seq keys are shared out over From
// partitions, and behind it over To. Each key's order ends there, and another one begins.
type Growth struct {
	// Topic is the name in Kafka.
	Topic string `json:"topic"`
	From  int32  `json:"from"`
	To    int32  `json:"to"`
	// Kafka is how many partitions the topic has there, so that To - Kafka are to be made.
	Kafka int32 `json:"kafka"`
}

// grow plans a Growth; saved are the topics of the checkpoint.
func (c *Copier) grow(k *kafka, at checkpoint, saved map[string]topicRecord, what Change) (rec topicRecord, out Outcome, err error) {
	out = Outcome{Store: c.name, What: what.What, From: at.GTIDs, To: at.GTIDs, Generation: at.Generation, Seq: at.Seq}
	name := record.TopicName(c.config.TopicPrefix, what.Topic)
	rec, known := saved[name]
	if !known {
		return rec, out, fmt.Errorf("the mirror of store %s has no topic %s yet: it is made at the topic's first message, with the partitions of canald's configuration", c.name, name)
	}
	all, err := k.describe(name)
	if err == nil {
		err = verifyTopics(map[string]topicRecord{name: rec}, all)
	}
	if err != nil {
		return rec, out, err
	}
	out.Grows = &Growth{Topic: name, From: rec.Partitions, To: what.Partitions, Kafka: all[name].partitions}
	switch {
	case what.Partitions > 1000:
		return rec, out, fmt.Errorf("%d partitions: at most 1000", what.Partitions)
	case what.Partitions <= rec.Partitions:
		return rec, out, fmt.Errorf("the mirror writes to %d partitions of %s already: Kafka takes none away, and a key that went back would come before its own past", rec.Partitions, name)
	}
	rec.Partitions, rec.Generation, rec.Seq = what.Partitions, at.Generation, at.Seq
	return rec, out, nil
}

// changeTopic makes the partitions that a proposed growth needs, and leaves its record for the
// run's first Kafka transaction. Between the two Kafka has partitions that the mirror does not
// write to, which is safe for as long as it lasts.
func (c *Copier) changeTopic(ctx context.Context, s *start, p *change) {
	rec, out, err := c.grow(s.kafka, s.at, s.topics, p.Change)
	if p.out = out; err == nil && out.Grows.Kafka < rec.Partitions {
		if err = s.kafka.addPartitions(ctx, rec.Topic, rec.Partitions); err != nil {
			err = fmt.Errorf("kafka topic %s: partitions: %w", rec.Topic, err)
		}
	}
	if err != nil {
		p.finish(err)
		return // as if nobody had asked
	}
	s.topics = cloneTopics(s.topics)
	s.topics[rec.Topic] = rec
	s.grown, s.change = []topicRecord{rec}, p
}

// addPartitions makes a topic have so many, and waits until all can be written.
func (k *kafka) addPartitions(ctx context.Context, name string, partitions int32) error {
	if err := k.admin.CreatePartitions(name, partitions, nil, false); err != nil {
		return err
	}
	return k.awaitLeaders(ctx, name, partitions)
}

// wouldGrow is the dry run of Grow: it asks Kafka, and changes nothing.
func (c *Copier) wouldGrow(ctx context.Context, what Change) (out Outcome, err error) {
	at, known := c.board.checkpoint()
	if !known {
		return out, errors.New("no checkpoint was read yet: " + c.Status().LastError)
	}
	k, err := dial(c.config, "", c.dialer)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	saved, err := k.savedOf(ctx, at.Store)
	if err != nil {
		return out, err
	}
	_, out, err = c.grow(k, at, saved.topics, what)
	return out, err
}
