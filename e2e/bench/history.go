package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/record"
)

const (
	// historyPartitions are those of the mirror's topic, as canald makes it.
	historyPartitions = 8
	// historyTransaction is how many messages one Kafka transaction has, as canald's have when it catches up.
	historyTransaction = 5000
)

// A history writes messages into the mirror's topic as canald does.
type history struct {
	client   *kgo.Client
	messages *messages
	source   record.Source
	seq      uint64
}

func newHistory(ctx context.Context, kafka string) (*history, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.TransactionalID("bench"), kgo.DefaultProduceTopic(record.DefaultPrefix+topicName),
		kgo.ProducerLinger(0), kgo.MaxBufferedRecords(2*historyTransaction))
	if err != nil {
		return nil, err
	}
	if _, err := kadm.NewClient(c).CreateTopic(ctx, historyPartitions, 1, nil, record.DefaultPrefix+topicName); err != nil {
		c.Close()
		return nil, err
	}
	return &history{client: c, messages: newMessages(0), source: record.Source{Store: uuid.NewString(), Generation: 1}}, nil
}

func (h *history) close() { h.client.Close() }

// commit writes n messages in one transaction; at is the commit time of the i-th.
func (h *history) commit(ctx context.Context, n int, at func(i int) time.Time) error {
	if err := h.client.BeginTransaction(); err != nil {
		return err
	}
	var failure firstError
	for i := range n {
		h.seq++
		when := at(i)
		r := record.Encode(record.Message{ID: uuid.Must(uuid.NewV7()), Topic: topicName, Key: []byte(h.messages.key()), Headers: []record.Header{{Name: "kind", Value: "trade"}},
			Body: h.messages.body(), BornAt: when, CommitTime: when, Source: h.source, Seq: h.seq})
		out := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, x := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: string(x.Key), Value: x.Value})
		}
		h.client.Produce(ctx, out, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.set(err)
			}
		})
	}
	return errors.Join(h.client.Flush(ctx), h.client.EndTransaction(ctx, kgo.TryCommit), failure.get())
}

// fillHistory writes n messages, a millisecond apart.
func fillHistory(ctx context.Context, kafka string, n int) error {
	h, err := newHistory(ctx, kafka)
	if err != nil {
		return err
	}
	defer h.close()
	begin := time.Now().Add(-time.Duration(n) * time.Millisecond).Truncate(time.Second)
	for done := 0; done < n; {
		some := min(historyTransaction, n-done)
		if err := h.commit(ctx, some, func(i int) time.Time { return begin.Add(time.Duration(done+i) * time.Millisecond) }); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		done += some
	}
	return nil
}
