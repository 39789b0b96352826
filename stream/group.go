package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// rejoinAfter is the pause before a group is joined again after an error.
const rejoinAfter = time.Second

// runGroup is a member of the group until ctx ends or an error comes up.
func (c *Consumer) runGroup(ctx context.Context, log *kafkaLog, handle handler) error {
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, c.cfg.sarama())
	if err != nil {
		return reachable(err)
	}
	var drain sync.WaitGroup
	drain.Go(func() {
		for err := range group.Errors() {
			c.inTrouble(err)
		}
	})
	err = c.member(ctx, group, log, handle)
	closed := group.Close()
	drain.Wait()
	if err == nil && closed != nil {
		c.cfg.Logger.Warn("consumer group not left in order", "group", c.cfg.Group, "err", closed)
	}
	return err
}

// member takes part in one generation of the group after another.
func (c *Consumer) member(ctx context.Context, group sarama.ConsumerGroup, log *kafkaLog, handle handler) error {
	names := make([]string, 0, len(c.topics))
	for kafka := range c.topics {
		names = append(names, kafka)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g := &generation{c: c, log: log, handle: handle, stop: stop}
	for {
		err := group.Consume(ctx, names, g)
		if failed := g.failure(); failed != nil {
			return failed
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			continue // the partitions are shared out anew
		}
		if fatal(err) {
			return fmt.Errorf("group %s: %w", c.cfg.Group, err)
		}
		c.inTrouble(err)
		pause := time.NewTimer(rejoinAfter)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// generation implements sarama.ConsumerGroupHandler for one generation of the group
// after another.
//
//	Setup ─> ConsumeClaim, one per partition at once ─> Cleanup ─> offsets committed
//
// A partition goes to another member only after its ConsumeClaim has returned.
type generation struct {
	c      *Consumer
	log    *kafkaLog
	handle handler
	stop   func()

	mu    sync.Mutex
	first error
	notes map[string]string // what a commit says of each topic; see note
	fresh map[place]bool    // where no offset was committed and Start holds
}

// place is a partition of a topic by Kafka's name.
type place struct {
	kafka  string
	number int32
}

// fail keeps the first error and ends the membership.
func (g *generation) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil {
		g.first = err
	}
	g.stop()
}

func (g *generation) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}

// Setup gives each partition without a committed offset its start, and checks the others.
func (g *generation) Setup(s sarama.ConsumerGroupSession) error {
	g.notes, g.fresh = map[string]string{}, map[place]bool{}
	for kafka, claimed := range s.Claims() {
		all, err := g.log.partitions(kafka)
		if err != nil {
			return err
		}
		id, err := g.log.topicID(kafka)
		if err != nil {
			return err
		}
		g.notes[kafka] = note{len(all), id}.String()
		commits, err := g.log.commits(g.c.cfg.Group, kafka, all)
		if err != nil {
			return err
		}
		for _, n := range claimed {
			if err := g.begin(s, kafka, n, commits, id); err != nil {
				return err
			}
		}
	}
	g.c.cfg.Logger.Info("partitions taken", "group", g.c.cfg.Group, "generation", s.GenerationID(), "partitions", s.Claims())
	g.c.wellAgain()
	return nil
}

func (g *generation) begin(s sarama.ConsumerGroupSession, kafka string, n int32, commits commits, topicID string) error {
	start := g.c.cfg.Start.of(n)
	committed, known := commits.offsets[n]
	switch {
	case known:
		start = AtOffset(committed)
	case commits.knewLess(n):
		start = Oldest()
	default:
		g.fresh[place{kafka, n}] = true
	}
	offset, b, err := g.log.resolve(kafka, n, start)
	if err != nil {
		return err
	}
	gone := b.check(offset)
	if known && commits.remade(n, topicID) {
		gone = fmt.Errorf("offset %d: %w: the topic was deleted and made again; up to %d is of the old one", offset, ErrOffsetOutOfRange, offset)
	}
	offset, err = g.c.within(kafka, n, offset, b, gone)
	if err != nil {
		return err
	}
	if !known || gone != nil { // each goes in one direction only
		s.MarkOffset(kafka, n, offset, g.notes[kafka])
		s.ResetOffset(kafka, n, offset, g.notes[kafka])
	}
	return nil
}

// ConsumeClaim reads one partition until it is given up.
func (g *generation) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	kafka, n := claim.Topic(), claim.Partition()
	p := g.c.partition(kafka, n, claim.InitialOffset(), g.handle)
	if g.fresh[place{kafka, n}] {
		p.from = g.c.cfg.Start.of(n).time
	}
	p.mark = func(next int64) { s.MarkOffset(kafka, n, next, g.notes[kafka]) }
	g.c.held.add(p)
	defer g.c.letGo(p)
	err := p.run(s.Context(), claim.Messages())
	if errors.Is(err, ErrOffsetOutOfRange) {
		// Where to go on is for the next generation's Setup, which the return makes come.
		_, err = g.c.lost(g.log, p, err)
	}
	if err != nil {
		g.fail(err)
	}
	return nil
}

// Cleanup is called when no handler of the generation runs any more.
func (g *generation) Cleanup(s sarama.ConsumerGroupSession) error {
	g.c.cfg.Logger.Info("partitions given up", "group", g.c.cfg.Group, "generation", s.GenerationID())
	return nil
}

// commits are what a group remembers of a topic.
type commits struct {
	offsets map[int32]int64
	topics  map[int32]string // the topic's id at the commit, where it is known
	// partitions is the least number of partitions that the topic had at a commit; 0
	// when none is known.
	partitions int
}

// knewLess tells whether the topic got a partition after the group began with it.
func (c commits) knewLess(partition int32) bool {
	return c.partitions > 0 && int(partition) >= c.partitions
}

// remade tells whether a commit is of an earlier topic of the same name.
func (c commits) remade(partition int32, topicID string) bool {
	then := c.topics[partition]
	return then != "" && topicID != "" && then != topicID
}

// A note is what each commit says of its topic, as its metadata: "<partitions> <id>".
type note struct {
	partitions int
	topicID    string // empty when it is not known
}

// String is the note as a commit carries it.
func (n note) String() string { return strings.TrimSpace(strconv.Itoa(n.partitions) + " " + n.topicID) }

// parseNote reads a note; other tools' metadata says nothing.
func parseNote(text string) (n note) {
	count, id, _ := strings.Cut(text, " ")
	var err error
	if n.partitions, err = strconv.Atoi(count); err != nil || n.partitions <= 0 {
		return note{}
	}
	n.topicID = id
	return n
}

// commits asks for what a group has committed.
func (l *kafkaLog) commits(group, topic string, partitions []int32) (commits, error) {
	admin, err := sarama.NewClusterAdminFromClient(l.client)
	if err != nil {
		return commits{}, err
	}
	resp, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if err != nil {
		return commits{}, err
	}
	c := commits{offsets: map[int32]int64{}, topics: map[int32]string{}}
	var errs []error
	for n, block := range resp.Blocks[topic] {
		if err := kafkaError(block.Err); err != nil {
			errs = append(errs, fmt.Errorf("%s partition %d: committed offset: %w", topic, n, err))
		}
		if block.Offset < 0 {
			continue
		}
		c.offsets[n] = block.Offset
		said := parseNote(block.Metadata)
		c.topics[n] = said.topicID
		if said.partitions > 0 && (c.partitions == 0 || said.partitions < c.partitions) {
			c.partitions = said.partitions
		}
	}
	return c, errors.Join(errs...)
}
