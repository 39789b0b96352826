package stream

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A bookmark remembers a reading with an End in a consumer group that has no members: how far
// each partition is handled, and to where it is read. Without a Group it remembers nothing.
type bookmark struct {
	c     *Consumer
	log   *kafkaLog
	ps    []assignment
	saved map[place]int64 // what Kafka has
}

// A mark is what the group remembers of one partition: the offset to go on at, and, in the
// commit's metadata, "to <last offset> <until, nanoseconds since 1970, or 0> <topic id>".
type mark struct {
	next    int64
	last    int64
	until   time.Time
	topicID string // empty where Kafka gives none
}

// remade tells whether the mark is of an earlier topic of the same name.
func (m mark) remade(topicID string) bool {
	return m.topicID != "" && topicID != "" && m.topicID != topicID
}

func (m mark) String() string {
	until := int64(0)
	if !m.until.IsZero() {
		until = m.until.UnixNano()
	}
	return fmt.Sprintf("to %d %d %s", m.last, until, m.topicID)
}

// parseMark reads the metadata of a commit; it reports false for other tools' and other groups'.
func parseMark(next int64, text string) (m mark, ok bool) {
	m.next = next
	var until int64
	n, _ := fmt.Sscanf(text, "to %d %d %s", &m.last, &until, &m.topicID) // the id may be missing
	if until != 0 {
		m.until = time.Unix(0, until)
	}
	return m, n >= 2
}

// earlier is what a group remembers of a reading of one topic that was ended before its end.
type earlier struct {
	marks   map[int32]mark
	topicID string // as it is now
}

// has tells whether a partition is to be read: those that the topic got after the reading
// began are not of it.
func (e earlier) has(partition int32) bool {
	_, ok := e.marks[partition]
	return ok || len(e.marks) == 0
}

// before asks for the reading that the group remembers, if there is one.
func (c *Consumer) before(log *kafkaLog, kafka string, partitions []int32) (e earlier, err error) {
	if c.cfg.Group == "" {
		return e, nil
	}
	if e.topicID, err = log.topicID(kafka); err != nil {
		return e, err
	}
	blocks, err := log.committed(c.cfg.Group, kafka, partitions)
	if err != nil {
		return e, err
	}
	e.marks = map[int32]mark{}
	for n, block := range blocks {
		if block.Offset < 0 {
			continue
		}
		m, ok := parseMark(block.Offset, block.Metadata)
		if !ok {
			return e, fmt.Errorf("group %s: its offsets are not of a reading with an end: take another name", c.cfg.Group)
		}
		e.marks[n] = m
		c.resumed.Store(true)
	}
	return e, nil
}

func (c *Consumer) bookmark(log *kafkaLog, ps []assignment) *bookmark {
	return &bookmark{c: c, log: log, ps: ps, saved: map[place]int64{}}
}

// save commits how far the partitions are handled, all in one request.
func (b *bookmark) save() error {
	group := b.c.cfg.Group
	if group == "" {
		return nil
	}
	req := &sarama.OffsetCommitRequest{Version: 7, ConsumerGroup: group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
	now := map[place]int64{}
	for _, p := range b.ps {
		next, at := p.next.Load(), place{p.kafka, p.number}
		if was, ok := b.saved[at]; ok && was == next {
			continue
		}
		now[at] = next
		m := mark{last: p.last, until: p.until, topicID: p.topicID}
		req.AddBlockWithLeaderEpoch(p.kafka, p.number, next, -1, 0, m.String())
	}
	if len(now) == 0 {
		return nil
	}
	if err := b.log.commit(group, req); err != nil {
		return fmt.Errorf("group %s: commit: %w", group, err)
	}
	maps.Copy(b.saved, now)
	return nil
}

// keep saves every period, until stop is called.
func (b *bookmark) keep(period time.Duration) (stop func()) {
	ended := make(chan struct{})
	var saving sync.WaitGroup
	saving.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if err := b.save(); err != nil {
				b.c.inTrouble(err)
			} else {
				b.c.wellAgain()
			}
		}
	})
	return func() { close(ended); saving.Wait() }
}

// forget deletes the group: its reading has come to its end.
func (b *bookmark) forget() error {
	group := b.c.cfg.Group
	if group == "" {
		return nil
	}
	err := b.log.atCoordinator(group, func(broker *sarama.Broker) error {
		req := &sarama.DeleteGroupsRequest{Version: 1, Groups: []string{group}}
		resp, err := broker.DeleteGroups(req)
		if err != nil {
			return err
		}
		return kafkaError(resp.GroupErrorCodes[group])
	})
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return fmt.Errorf("group %s: all is handled, but it could not be deleted: %w", group, err)
	}
	return nil
}

// commit commits offsets for a group without members.
func (l *kafkaLog) commit(group string, req *sarama.OffsetCommitRequest) error {
	return l.atCoordinator(group, func(broker *sarama.Broker) error {
		resp, err := broker.CommitOffset(req)
		if err != nil {
			return err
		}
		for _, partitions := range resp.Errors {
			for _, code := range partitions {
				if err := kafkaError(code); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// atCoordinator asks a group's coordinator, a few times within 2 s if need be.
func (l *kafkaLog) atCoordinator(group string, question func(*sarama.Broker) error) error {
	const tries = 6
	for try := 1; ; try++ {
		if try > 2 {
			<-time.After(50 * time.Millisecond << (try - 2))
		}
		broker, err := l.client.Coordinator(group)
		if err == nil {
			if err = question(broker); err == nil || errors.Is(err, sarama.ErrGroupIDNotFound) {
				return err
			}
			if _, answered := errors.AsType[sarama.KError](err); !answered {
				_ = broker.Close() // the next question opens it anew
			}
		}
		if try == tries {
			return err
		}
		_ = l.client.RefreshCoordinator(group) // the next question finds out
	}
}

// Resumed reports whether Run goes on with an earlier one that had the same Group and an End. It is
// known when Progress is.
func (c *Consumer) Resumed() bool { return c.resumed.Load() }
