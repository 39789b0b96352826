package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"notifymirror/canal"
	"notifymirror/mirror/record"
	"notifymirror/notifyd/schema"
)

const (
	// plainRecords and plainBytes bound a batch as the mirror's defaults bound a Kafka transaction.
	plainRecords = 5000
	plainBytes   = 4 << 20
	// plainPartitions is the mirror's default.
	plainPartitions = 8
)

// bePlain is the mirror without exactly-once: the same tailer, records, batches and requests,
// from an idempotent producer. There is no transaction and no checkpoint, nor what they are
// for: no order is checked, nothing is counted but the messages, and no memory is bounded.
func bePlain(ctx context.Context, br brief, say func(word) error) error {
	dsn, err := mysql.ParseDSN(br.DSN)
	if err != nil {
		return err
	}
	p, err := newPlain(ctx, br.Brokers)
	if err != nil {
		return err
	}
	defer p.client.Close()
	tailer, err := canal.NewTailer(canal.Config{
		Addr: dsn.Addr, User: dsn.User, Password: dsn.Passwd, Schema: dsn.DBName,
		Watch: func(table string) bool { _, ok := schema.ParseMessage(table); return ok },
	})
	if err != nil {
		return err
	}
	batches := make(chan *plainBatch, 1)
	g, work := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(batches)
		return readPlain(work, tailer, br, batches)
	})
	g.Go(func() error {
		for b := range batches {
			if err := p.produce(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if err := say(word{Done: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// plainBatch is the records of one request, by partition.
type plainBatch struct {
	arena  record.Arena
	parts  [plainPartitions]*sarama.RecordBatch
	n, len int
}

// readPlain makes batches of br.Messages messages.
func readPlain(ctx context.Context, tailer *canal.Tailer, br brief, out chan<- *plainBatch) error {
	source, b := record.Source{Store: "plain", Generation: 1}, new(plainBatch)
	done := 0
	for t, err := range tailer.Txns(ctx, canal.Position{Flavor: canal.Flavor(naiveFlavor(br.GTID)), GTIDs: br.GTID}) {
		if err != nil {
			return err
		}
		for row, err := range t.Rows() {
			if err != nil {
				return err
			}
			done++
			if err := b.add(row, record.Message{Source: source, Seq: uint64(done), CommitTime: t.CommitTime}); err != nil {
				return err
			}
			if b.n < plainRecords && b.len < plainBytes && done < br.Messages {
				continue
			}
			select {
			case out <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
			b = new(plainBatch)
		}
		if done >= br.Messages {
			return nil
		}
	}
	return errors.New("the binlog ended")
}

// add makes the record of a row; its columns are in the order of the schema.
func (b *plainBatch) add(row canal.Row, m record.Message) (err error) {
	if m.ID, err = uuid.FromBytes(row.Values[schema.MessageID].Bytes); err != nil {
		return err
	}
	if m.Headers, err = record.DecodeHeaders(row.Values[schema.MessageHeaders].Bytes); err != nil {
		return err
	}
	m.Topic, m.Key = string(row.Values[schema.MessageTopic].Bytes), row.Values[schema.MessageKey].Bytes
	m.Body, m.BornAt = row.Values[schema.MessageBody].Bytes, time.UnixMicro(row.Values[schema.MessageBornAt].Int)
	r := b.arena.Encode(m)
	part := &b.parts[record.Partition(r.Key, plainPartitions)]
	if *part == nil {
		*part = &sarama.RecordBatch{Version: 2, FirstTimestamp: r.Timestamp, MaxTimestamp: r.Timestamp}
	}
	one := &sarama.Record{Key: r.Key, Value: r.Value, OffsetDelta: int64(len((*part).Records)), TimestampDelta: r.Timestamp.Sub((*part).FirstTimestamp)}
	for i := range r.Headers {
		one.Headers = append(one.Headers, (*sarama.RecordHeader)(&r.Headers[i]))
	}
	(*part).LastOffsetDelta = int32(len((*part).Records))
	(*part).Records = append((*part).Records, one)
	b.n, b.len = b.n+1, b.len+record.SizeOf(m)
	return nil
}

// plain is an idempotent producer.
type plain struct {
	client sarama.Client
	number int64
	epoch  int16
	next   [plainPartitions]int32
}

// newPlain makes the topic and the producer.
func newPlain(ctx context.Context, brokers []string) (*plain, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	if err := makeTopic(brokers, c); err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		return nil, err
	}
	p := &plain{client: client}
	if err := p.initialise(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return p, nil
}

// initialise waits until the topic can be written, and gets the producer's number. Both take
// a moment while a Kafka is new.
func (p *plain) initialise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, arrivalPatience)
	defer cancel()
	return every(ctx, 20*time.Millisecond, func() (bool, error) {
		_ = p.client.RefreshMetadata(topicName) // until it is known
		led, _ := p.client.WritablePartitions(topicName)
		broker, err := p.client.Leader(topicName, 0)
		if err != nil || len(led) < plainPartitions {
			return false, nil
		}
		r, err := broker.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
		if err != nil || r.Err != sarama.ErrNoError {
			return false, err
		}
		p.number, p.epoch = r.ProducerID, r.ProducerEpoch
		return true, nil
	})
}

// produce sends a batch in requests of about 1,000 records and waits until all are
// acknowledged. All partitions have one leader here.
func (p *plain) produce(b *plainBatch) error {
	leader, err := p.client.Leader(topicName, 0)
	if err != nil {
		return err
	}
	requests, answers := 0, make(chan error, plainPartitions)
	req, n := new(sarama.ProduceRequest), 0
	for i, part := range b.parts {
		if part != nil {
			part.ProducerID, part.ProducerEpoch, part.FirstSequence = p.number, p.epoch, p.next[i]
			p.next[i] += int32(len(part.Records))
			req.AddBatch(topicName, int32(i), part)
			n += len(part.Records)
		}
		if n < 1000 && (n == 0 || i < len(b.parts)-1) {
			continue
		}
		req.Version, req.RequiredAcks, req.Timeout = 7, sarama.WaitForAll, 10_000
		if err := leader.AsyncProduce(req, func(res *sarama.ProduceResponse, err error) { answers <- plainAnswer(res, err) }); err != nil {
			return err
		}
		requests++
		req, n = new(sarama.ProduceRequest), 0
	}
	for range requests {
		err = errors.Join(err, <-answers)
	}
	return err
}

// plainAnswer is the first refusal in an answer.
func plainAnswer(res *sarama.ProduceResponse, err error) error {
	if err != nil {
		return err
	}
	for no, block := range res.Blocks[topicName] {
		if block.Err != sarama.ErrNoError {
			return fmt.Errorf("partition %d: %w", no, block.Err)
		}
	}
	return nil
}
