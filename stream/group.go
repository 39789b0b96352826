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

// membership is what a member does with its partitions, and the error that ends it.
type membership interface {
	sarama.ConsumerGroupHandler
	failure() error
}

// runGroup is a member of the group until ctx ends or an error comes up.
func (c *Consumer) runGroup(ctx context.Context, sc *sarama.Config, as func(stop func()) membership) error {
	group, err := sarama.NewConsumerGroup(c.cfg.Brokers, c.cfg.Group, sc)
	if err != nil {
		return reachable(err)
	}
	var drain sync.WaitGroup
	drain.Go(func() {
		for err := range group.Errors() {
			c.inTrouble(err)
		}
	})
	err = c.member(ctx, group, as)
	closed := group.Close()
	drain.Wait()
	if err == nil && closed != nil {
		c.cfg.Logger.Warn("consumer group not left in order", "group", c.cfg.Group, "err", closed)
	}
	return err
}

// member takes part in one generation of the group after another.
func (c *Consumer) member(ctx context.Context, group sarama.ConsumerGroup, as func(stop func()) membership) error {
	names := make([]string, 0, len(c.topics))
	for kafka := range c.topics {
		names = append(names, kafka)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g := as(stop)
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
		pause(ctx, rejoinAfter)
	}
}

// generation implements sarama.ConsumerGroupHandler for one generation of the group
// after another.
//
//	Setup ─> ConsumeClaim, one per partition at once ─> Cleanup ─> offsets committed
//
// A partition goes to another member only after its ConsumeClaim has returned.
type generation struct {
	failures
	c      *Consumer
	log    *kafkaLog
	handle handler

	notes map[string]string // what a commit says of each topic; see note
	fresh map[place]bool    // where no offset was committed and Start holds
}

// place is a partition of a topic by Kafka's name.
type place struct {
	kafka  string
	number int32
}

// failures keep the first error, which ends the membership.
type failures struct {
	stop  func()
	mu    sync.Mutex
	first error
}

func (f *failures) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = err
	}
	f.stop()
}

func (f *failures) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
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
	o, err := g.c.beginning(g.log, kafka, n, commits, topicID)
	if err != nil {
		return err
	}
	g.fresh[place{kafka, n}] = o.fresh
	if !o.committed { // each goes in one direction only
		s.MarkOffset(kafka, n, o.next, g.notes[kafka])
		s.ResetOffset(kafka, n, o.next, g.notes[kafka])
	}
	return nil
}

// origin is where a group begins to read a partition.
type origin struct {
	next      int64
	committed bool // by the group; otherwise it is to be
	fresh     bool // the group knew nothing, and Start holds
}

// beginning finds where a group begins to read a partition.
func (c *Consumer) beginning(log *kafkaLog, kafka string, n int32, commits commits, topicID string) (o origin, err error) {
	start := c.cfg.Start.of(n)
	committed, known := commits.offsets[n]
	switch {
	case known:
		start = AtOffset(committed)
	case commits.knewLess(n):
		start = Oldest()
	default:
		o.fresh = true
	}
	offset, b, err := log.resolve(kafka, n, start)
	if err != nil {
		return o, err
	}
	gone := b.check(offset)
	if known && commits.remade(n, topicID) {
		gone = remadeError(offset)
	}
	o.committed = known && gone == nil
	o.next, err = c.within(kafka, n, offset, b, gone)
	return o, err
}

// remadeError says that an offset was committed of another topic.
func remadeError(offset int64) error {
	return fmt.Errorf("offset %d: %w: the topic was deleted and made again; up to %d is of the old one", offset, ErrOffsetOutOfRange, offset)
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
	c := commits{offsets: map[int32]int64{}, topics: map[int32]string{}}
	blocks, err := l.committed(group, topic, partitions)
	for n, block := range blocks {
		c.set(n, block)
	}
	return c, err
}

// committed asks for what a group has committed, as Kafka has it.
func (l *kafkaLog) committed(group, topic string, partitions []int32) (map[int32]*sarama.OffsetFetchResponseBlock, error) {
	admin, err := sarama.NewClusterAdminFromClient(l.client)
	if err != nil {
		return nil, err
	}
	resp, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		return nil, nil // nothing was committed
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for n, block := range resp.Blocks[topic] {
		if err := kafkaError(block.Err); err != nil {
			errs = append(errs, fmt.Errorf("%s partition %d: committed offset: %w", topic, n, err))
		}
	}
	return resp.Blocks[topic], errors.Join(errs...)
}

// set takes over what Kafka says of a partition.
func (c *commits) set(partition int32, block *sarama.OffsetFetchResponseBlock) {
	if block.Offset < 0 {
		return
	}
	c.offsets[partition] = block.Offset
	said := parseNote(block.Metadata)
	c.topics[partition] = said.topicID
	if said.partitions > 0 && (c.partitions == 0 || said.partitions < c.partitions) {
		c.partitions = said.partitions
	}
}
