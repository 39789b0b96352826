package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"notifymirror/mirror/record"
)

// A Record is a mirrored message and its place in Kafka.
type Record struct {
	record.Message
	// KafkaTopic is the topic's name in Kafka; Topic is notify's.
	KafkaTopic string
	Partition  int32
	Offset     int64
}

// A Consumer reads mirrored messages from Kafka. It is made by New and runs once, by
// Run or Records.
type Consumer struct {
	cfg     Config
	topics  map[string]string // Kafka's name -> notify's
	metrics *metrics
	held    holdings
	trouble atomic.Bool
	log     atomic.Pointer[kafkaLog] // while it runs
	reach   atomic.Pointer[[]assignment]
	resumed atomic.Bool
	rejects *rejecter // nil without a reject topic
}

// New checks the configuration. All that is wrong with it is reported at once.
func New(cfg Config) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("stream: metrics: %w", err)
	}
	c := &Consumer{cfg: cfg, topics: map[string]string{}, metrics: m}
	for _, t := range cfg.Topics {
		c.topics[record.TopicName(cfg.Prefix, t)] = t
	}
	return c, nil
}

// Run reads until ctx ends, an error comes up, or each partition is handled up to End,
// and then returns nil, the error, or nil. The handler is called with one record of a
// partition after another, and for several partitions at once. What it returns decides:
//
//	nil         the record is handled, and its offset will be committed
//	RetryAfter  the partition waits, and the same record comes again; others go on
//	Reject      the record goes to the reject topic, and then it is handled
//	other       the consumer stops, and Run returns a *HandlerError
//
// A BatchHandler's outcome is that of all records of the batch, unless At says which.
// A record in hand when its context ends is handled again by whoever reads the partition
// next.
//
// At the start Kafka must answer, and the topics must exist: the error wraps
// ErrUnreachable, ErrUnknownTopic or ErrOffsetOutOfRange. Later, Run waits for a Kafka
// that is away.
func (c *Consumer) Run(ctx context.Context) error {
	switch {
	case c.cfg.BatchHandler != nil:
		return c.run(ctx, handler{c.cfg.BatchHandler, c.cfg.BatchRecords})
	case c.cfg.Handler != nil:
		return c.run(ctx, oneByOne(c.cfg.Handler))
	}
	return errors.New("stream: Handler: none is given")
}

// handler handles batches of up to most records.
type handler struct {
	call func(context.Context, []Record) error
	most int
}

func oneByOne(handle func(context.Context, Record) error) handler {
	return handler{func(ctx context.Context, batch []Record) error { return handle(ctx, batch[0]) }, 1}
}

func (c *Consumer) run(ctx context.Context, handle handler) (err error) {
	log, err := openLog(c.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	for kafka := range c.topics {
		if _, err := log.partitions(kafka); err != nil {
			return err
		}
	}
	if c.rejects, err = openRejecter(&c.cfg, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.rejects.close()) }()
	c.log.Store(log)
	defer c.log.Store(nil)
	lagging, stopLag := context.WithCancel(ctx)
	var lag sync.WaitGroup
	lag.Go(func() { c.watchLag(lagging, log) })
	defer func() { stopLag(); lag.Wait() }()
	if c.cfg.Group != "" && c.cfg.End.kind == unset {
		return c.runGroup(ctx, c.cfg.sarama(), func(stop func()) membership {
			return &generation{c: c, log: log, handle: handle, failures: failures{stop: stop}}
		})
	}
	return c.runAssigned(ctx, log, handle)
}

// partition makes the reader of one partition that begins at an offset.
func (c *Consumer) partition(kafka string, number int32, next int64, handle handler) *partition {
	topic := c.topics[kafka]
	p := &partition{
		topic: topic, kafka: kafka, number: number,
		cfg: &c.cfg, handle: handle, mark: func(int64) {}, last: forever,
		rejects: c.rejects, trouble: c.inTrouble,
		progress: progress{next}, metrics: c.metrics.of(c.cfg.Group, topic),
	}
	p.next.Store(next)
	return p
}

// inTrouble logs the first of a row of errors that the client gets over by itself.
func (c *Consumer) inTrouble(err error) {
	if !c.trouble.Swap(true) {
		c.cfg.Logger.Warn("kafka in trouble, trying on", "err", err)
	}
}

// wellAgain ends such a row.
func (c *Consumer) wellAgain() {
	if c.trouble.Load() && c.trouble.Swap(false) {
		c.cfg.Logger.Info("kafka well again")
	}
}
