package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"

	"notifymirror/mirror"
	"notifymirror/mirror/access"
	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// A search looks for one message in the mirror. There is no index of ids: it reads every record of a
// range of time, by the records' time, which is that of the commit in the store.
type search struct {
	kafka       mirror.KafkaConfig
	prefix      string
	topics      []string // notify's names
	key         string   // its partition is searched before the others; empty: all at once
	from, until time.Time
	dial        time.Duration
}

// searched is what was read of one topic.
type searched struct {
	Topic      string              `json:"topic"`
	From       time.Time           `json:"from"`
	Until      time.Time           `json:"until"`
	Partitions []searchedPartition `json:"partitions,omitempty"`
	// Problem says why the topic was not, or not wholly, read.
	Problem string `json:"problem,omitempty"`
}

// searchedPartition is what was read of one partition, from the first offset to the last.
type searchedPartition struct {
	Partition int32  `json:"partition"`
	Records   int    `json:"records"`
	First     *int64 `json:"first_offset,omitempty"`
	Last      *int64 `json:"last_offset,omitempty"`
}

// String is the range for people.
func (s searched) String() string {
	text := fmt.Sprintf("%s from %s to %s", s.Topic, clock(s.From), clock(s.Until))
	empty := 0
	for _, p := range s.Partitions {
		if p.Records == 0 {
			empty++
			continue
		}
		text += fmt.Sprintf("; partition %d: offsets %d to %d", p.Partition, *p.First, *p.Last)
	}
	if empty > 0 {
		text += fmt.Sprintf("; nothing in %d of %d partitions", empty, len(s.Partitions))
	}
	if s.Problem != "" {
		text += "; " + s.Problem
	}
	return text
}

// run reads topic after topic until the message is found. What could not be read is said in done.
func (s search) run(ctx context.Context, id uuid.UUID) (found *stream.Record, done []searched) {
	for _, topic := range s.topics {
		r, d := s.topic(ctx, topic, id)
		done = append(done, d)
		if r == nil && s.key != "" && d.Problem == "" { // the key was elsewhere when there were fewer partitions
			everywhere := s
			everywhere.key = ""
			r, d = everywhere.topic(ctx, topic, id)
			done = append(done, d)
		}
		if r != nil || ctx.Err() != nil {
			return r, done
		}
	}
	return nil, done
}

func (s search) topic(ctx context.Context, topic string, id uuid.UUID) (*stream.Record, searched) {
	out := searched{Topic: record.TopicName(s.prefix, topic), From: s.from.UTC(), Until: s.until.UTC()}
	partitions, err := s.partitions(out.Topic)
	if err != nil {
		out.Problem = s.problem(err)
		return nil, out
	}
	if s.key != "" {
		partitions = []int32{record.Partition([]byte(s.key), int32(len(partitions)))}
	}
	read := map[int32]*searchedPartition{}
	for _, p := range partitions {
		read[p] = &searchedPartition{Partition: p}
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	var found *stream.Record
	c, err := stream.New(stream.Config{
		Brokers: s.kafka.Brokers, Access: s.kafka.Access, Topics: []string{topic}, Prefix: s.prefix, Partitions: partitions, SkipForeign: true,
		Start: stream.AtTime(s.from), End: stream.AtTime(s.until), Client: s.client,
		Handler: func(_ context.Context, r stream.Record) error {
			mu.Lock() // partitions are handled side by side
			defer mu.Unlock()
			if found != nil {
				return nil
			}
			read[r.Partition].add(r.Offset)
			if r.ID == id {
				found = &r
				enough()
			}
			return nil
		},
	})
	if err == nil {
		err = c.Run(ctx)
	}
	if err == nil && found == nil {
		err = ctx.Err()
	}
	if err != nil && found == nil {
		out.Problem = s.problem(err)
	}
	for _, p := range slices.Sorted(slices.Values(partitions)) {
		out.Partitions = append(out.Partitions, *read[p])
	}
	return found, out
}

func (p *searchedPartition) add(offset int64) {
	if p.Records == 0 {
		p.First = &offset
	}
	p.Last = &offset
	p.Records++
}

func (s search) client(c *sarama.Config) {
	c.Net.DialTimeout = s.dial
	c.Metadata.Retry.Max = 1
}

// partitions are the numbers of a topic's partitions in Kafka.
func (s search) partitions(kafka string) ([]int32, error) {
	cfg := sarama.NewConfig()
	s.client(cfg)
	cfg.Metadata.AllowAutoTopicCreation = false
	letIn, err := s.kafka.Access.Load()
	if err != nil {
		return nil, err
	}
	letIn(cfg)
	client, err := sarama.NewClient(s.kafka.Brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", stream.ErrUnreachable, err)
	}
	defer client.Close()
	ps, err := client.Partitions(kafka)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, stream.ErrUnknownTopic
	}
	return ps, err
}

// problem says in words why a topic was not read.
func (s search) problem(err error) string {
	at := strings.Join(s.kafka.Brokers, ",")
	mend, denied := access.Mend(err)
	switch {
	case denied:
		return fmt.Sprintf("not searched: Kafka at %s lets nobody in like that; %s (--kafka-config)", at, mend)
	case errors.Is(err, stream.ErrUnreachable):
		return fmt.Sprintf("not searched: Kafka at %s cannot be reached; --kafka or NOTIFY_KAFKA names another", at)
	case errors.Is(err, stream.ErrUnknownTopic):
		return "not searched: it is not in Kafka, so nothing of it was mirrored yet, or --prefix is another"
	case errors.Is(err, context.Canceled):
		return "the search was ended before"
	}
	return "not searched to the end: " + err.Error()
}
