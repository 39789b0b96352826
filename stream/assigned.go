package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"
)

// runAssigned reads the partitions of the configuration, each in a goroutine.
func (c *Consumer) runAssigned(ctx context.Context, log *kafkaLog, handle handler) error {
	ps, err := c.assign(log, handle)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer(c.cfg.Brokers, c.cfg.sarama())
	if err != nil {
		return reachable(err)
	}
	pace, err := c.newPace(log, ps)
	if err != nil {
		return errors.Join(err, consumer.Close())
	}
	if c.cfg.End.kind != unset {
		c.reach.Store(&ps)
	}
	marks := c.bookmark(log, ps)
	if err := marks.save(); err != nil {
		return errors.Join(err, consumer.Close())
	}
	for _, p := range ps { // all are known before one is read, so that none is left out of CaughtUp
		p.pace = pace
		c.held.add(p.partition)
	}
	g, reading := errgroup.WithContext(ctx)
	for _, p := range ps {
		g.Go(func() error { return c.read(reading, log, consumer, p) })
	}
	keep := marks.keep(c.cfg.CommitInterval)
	err = g.Wait()
	keep()
	if err == nil && ctx.Err() == nil && c.cfg.End.kind != unset {
		err = marks.forget()
	} else {
		err = errors.Join(err, marks.save())
	}
	return errors.Join(err, consumer.Close())
}

// assignment is a partition and the offset to begin to fetch at.
type assignment struct {
	*partition
	start, fetch int64
}

// assign finds out where each partition begins and ends.
func (c *Consumer) assign(log *kafkaLog, handle handler) ([]assignment, error) {
	var ps []assignment
	for kafka := range c.topics {
		numbers := c.cfg.Partitions
		if len(numbers) == 0 {
			var err error
			if numbers, err = log.partitions(kafka); err != nil {
				return nil, err
			}
		}
		before, err := c.before(log, kafka, numbers)
		if err != nil {
			return nil, err
		}
		for _, n := range numbers {
			if !before.has(n) {
				continue
			}
			p, err := c.assignOne(log, kafka, n, before, handle)
			if err != nil {
				return nil, err
			}
			ps = append(ps, p)
		}
	}
	return ps, nil
}

// assignOne finds out where a partition begins and ends.
func (c *Consumer) assignOne(log *kafkaLog, kafka string, n int32, before earlier, handle handler) (a assignment, err error) {
	position := c.cfg.Start.of(n)
	was, known := before.marks[n]
	if known {
		position = AtOffset(was.next)
	}
	start, b, err := log.resolve(kafka, n, position)
	if err != nil {
		return a, err
	}
	// A log that ends before the offset is waited for; what is gone is an error.
	fetch := min(start, b.newest)
	gone := b.check(fetch)
	if known && was.remade(before.topicID) {
		gone = remadeError(was.next)
	}
	if gone != nil {
		if fetch, err = c.within(kafka, n, fetch, b, gone); err != nil {
			return a, err
		}
		start = fetch
	}
	p := c.partition(kafka, n, start, handle)
	if p.from = position.time; known {
		p.last, p.until = was.last, was.until
	} else if err := c.setEnd(log, p, start); err != nil {
		return a, err
	}
	p.topicID = before.topicID
	return assignment{p, p.progress.next, fetch}, nil
}

// setEnd finds the last record that a partition has to hand over. A time is looked for
// among the records as they are read, since Kafka's own look-up by time finds markers
// too, and these bear the time at which they were written.
func (c *Consumer) setEnd(log *kafkaLog, p *partition, start int64) error {
	if c.cfg.End.kind == unset {
		return nil
	}
	b, err := log.bounds(p.kafka, p.number)
	if err != nil {
		return err
	}
	end, position := b.newest, c.cfg.End.of(p.number)
	switch position.kind {
	case oldest:
		end = b.oldest
	case atOffset:
		end = min(end, position.offset)
	case atTime:
		p.until = position.time
	}
	p.last, err = log.lastVisible(p.kafka, p.number, max(start, b.oldest), end)
	return err
}

// read reads one partition until its end.
func (c *Consumer) read(ctx context.Context, log *kafkaLog, consumer sarama.Consumer, p assignment) error {
	defer c.letGo(p.partition)
	for p.progress.next <= p.last {
		gone := c.readFrom(ctx, consumer, p)
		if !errors.Is(gone, ErrOffsetOutOfRange) {
			return gone
		}
		var err error
		if p.fetch, err = c.lost(log, p.partition, gone); err != nil {
			return err
		}
		p.progress = progress{next: p.fetch}
		p.remade.Store(false)
	}
	return nil
}

// readFrom reads one partition from where it is to be fetched, until its end.
func (c *Consumer) readFrom(ctx context.Context, consumer sarama.Consumer, p assignment) error {
	pc, err := consumer.ConsumePartition(p.kafka, p.number, p.fetch)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return fmt.Errorf("%s partition %d: offset %d: %w", p.kafka, p.number, p.fetch, ErrOffsetOutOfRange)
	}
	if err != nil {
		return fmt.Errorf("%s partition %d: %w", p.kafka, p.number, reachable(err))
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for err := range pc.Errors() {
			c.inTrouble(err)
		}
	}()
	defer func() {
		pc.AsyncClose()
		for range pc.Messages() { // what was read ahead
		}
		<-drained
	}()
	return p.run(ctx, pc.Messages())
}
