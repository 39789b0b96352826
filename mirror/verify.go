package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Range is what Verify compares: whole minutes of commit time, up to the mirror's checkpoint.
type Range struct {
	// Since is rounded down to the minute.
	Since time.Time
	// Until is rounded up to the minute; zero: up to the checkpoint.
	Until time.Time
}

const (
	// mostNamed bounds the differences that are named.
	mostNamed = 1000
	// mostLooked bounds the ids that are compared one by one at a time; a minute counts whole.
	mostLooked = 1 << 20
	// startMargin is how much before Range.Since the binlog is read: commit times are nearly
	// in its order.
	startMargin = time.Minute
)

// Verify reads a store's binlog once more, over a replication connection of its own, and
// compares it with the mirror: messages and records by the minute, and in minutes that differ
// id by id; and the order of seq in each partition. It writes nothing but temporary files in
// Config.SpoolDir, 52 bytes for each message and each record, and changes nothing.
//
// What is not in the checkpoint yet does not count, nor do messages whose topic is not mirrored.
// An error means that they could not be compared, or that there was nothing to compare: the mirror's
// last message is older than the range, or what was to be compared is gone. It says what to do.
func Verify(ctx context.Context, config Config, store string, deps Deps, over Range) (Verdict, error) {
	config.ServerID = 0 // canald has that one
	c, err := New(config, store, deps)
	if err != nil {
		return Verdict{}, err
	}
	v, err := c.verify(ctx, over)
	if h, ok := errors.AsType[*Halt](err); ok {
		err = fmt.Errorf("%w; %s", h.Err, h.Repair) // no mirror has stopped for it
	}
	return v, err
}

func (c *Copier) verify(ctx context.Context, over Range) (out Verdict, err error) {
	info, err := c.askStore(ctx) // the Tailer must know the shards
	if err != nil {
		return out, err
	}
	k, err := dial(c.config, "", c.dialer)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	v := &verification{copier: c, kafka: k, info: info, minutes: tallies{}, numbers: map[topicPartition]int32{}}
	if err := v.open(ctx, over); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, v.committed.close(), v.mirrored.close()) }()
	if err := v.readBinlog(ctx); err != nil {
		return out, err
	}
	if err := v.readMirror(ctx); err != nil {
		return out, err
	}
	return v.conclude()
}

// A verification is one on its way.
type verification struct {
	copier *Copier
	kafka  *kafka
	info   storeInfo
	at     checkpoint
	topics map[string]topicRecord // the mirror topics, by their names in Kafka

	since, until int64 // minutes; until is not in it, 0: there is none
	minutes      tallies
	committed    *sightingFile
	mirrored     *sightingFile
	places       []topicPartition // what sighting.place counts
	numbers      map[topicPartition]int32
	notes        []string
	wrong        []Difference // what is out of order or unreadable
	more         bool         // not all of that is named
}

// open reads what the mirror's checkpoint says.
func (v *verification) open(ctx context.Context, over Range) error {
	c := v.copier
	if err := c.checkCluster(v.kafka); err != nil {
		return err
	}
	saved, err := v.kafka.savedOf(ctx, v.info.id)
	if err != nil {
		return err
	}
	v.at, v.topics = *saved.checkpoint, saved.topics
	all, err := v.kafka.describeSaved(v.topics)
	if err != nil {
		return err
	}
	if v.info, err = c.askStore(ctx); err != nil { // what it has now, behind the checkpoint
		return err
	}
	err = verifyStore(v.at, v.info)
	if err == nil {
		err = verifyTopics(v.topics, all)
	}
	if err == nil {
		err = sourceError(v.info.covers(v.at.position()))
	}
	if err != nil {
		return err
	}
	v.since = minuteOf(over.Since)
	if !over.Until.IsZero() {
		v.until = minuteOf(over.Until.Add(time.Minute - 1))
	}
	if v.committed, err = newSightingFile(c.config.SpoolDir); err != nil {
		return err
	}
	if v.mirrored, err = newSightingFile(c.config.SpoolDir); err != nil {
		return errors.Join(err, v.committed.close())
	}
	return nil
}
