package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

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

// Config is a consumer's configuration. Brokers and Topics must be given; the zero
// value of every other field is its default.
type Config struct {
	// Brokers are host:port of some of Kafka's brokers; the others are found.
	Brokers []string
	// Topics are notify's names.
	Topics []string
	// Prefix is the mirror's. Default record.DefaultPrefix.
	Prefix string
	// Group is the consumer group: its members share the partitions, and it remembers
	// how far each is handled. Default: no group; the consumer reads the partitions
	// assigned to it, and nothing is remembered.
	Group string
	// Partitions to read without a group; then Topics must be one topic. Default: all
	// that there are at the start.
	Partitions []int32
	// Start is where a partition begins for which the group remembers nothing, or where
	// every partition begins without a group. Default Oldest. A partition that a topic
	// got later than the group begins at its oldest record, whatever Start is.
	// A group whose remembered offset is not in the log any more stops with
	// ErrOffsetOutOfRange: use another group, or set its offset with Kafka's tools.
	Start Position
	// End is where reading ends, as it is at the start; not with a group. Run returns
	// when each partition is handled up to it. Default: it never ends.
	End Position
	// ReadUncommitted reads records of open and aborted transactions too, without
	// waiting for the mirror's commit; repeats are dropped by source and seq. Records of
	// a transaction that is never committed are seen as well. Default: committed ones only.
	ReadUncommitted bool
	// SkipForeign passes over records that the mirror did not write. Default: they stop
	// the consumer with record.ErrNotMirrored.
	SkipForeign bool
	// Handler handles one record; see Run. The record's key and body are its own.
	Handler func(context.Context, Record) error
	// StopTimeout is what the record in hand gets before its context ends, when the
	// consumer stops or a partition goes to another member. Default 10 s.
	StopTimeout time.Duration
	// CommitInterval is how often handled offsets are committed; they are at each stop
	// as well. Default 1 s.
	CommitInterval time.Duration
	// SessionTimeout is how long a member of a group may be silent before its partitions
	// go to another; Kafka bounds it to 6 s to 5 min unless configured. Default 10 s.
	SessionTimeout time.Duration
	// FetchBytes bounds what is read ahead of the handler, per partition; one batch
	// larger than that is read all the same. Default 1 MiB.
	FetchBytes int32
	// LagInterval is how often lag is measured. Default 5 s.
	LagInterval time.Duration
	// Client changes the client's configuration before it is used: TLS, SASL, client id.
	// What this package promises is set after it.
	Client func(*sarama.Config)
	// Logger takes changes of state. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: there are none.
	Registerer prometheus.Registerer
}

// A Consumer reads mirrored messages from Kafka. It is made by New and runs once, by
// Run or Records.
type Consumer struct {
	cfg     Config
	topics  map[string]string // Kafka's name -> notify's
	metrics *metrics
	held    holdings
	trouble atomic.Bool
}

// New checks the configuration. All that is wrong with it is reported at once.
func New(cfg Config) (*Consumer, error) {
	var errs []error
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New("stream: "+text))
		}
	}
	wrong(len(cfg.Brokers) == 0, "Brokers: none is given")
	wrong(len(cfg.Topics) == 0, "Topics: none is given")
	wrong(len(cfg.Partitions) > 0 && cfg.Group != "", "Partitions: a group assigns them; give one of the two")
	wrong(len(cfg.Partitions) > 0 && len(cfg.Topics) != 1, "Partitions: they need exactly one topic")
	wrong(cfg.End.kind != unset && cfg.Group != "", "End: not with a group")
	wrong(cfg.StopTimeout < 0 || cfg.CommitInterval < 0 || cfg.SessionTimeout < 0 || cfg.LagInterval < 0 || cfg.FetchBytes < 0,
		"a negative duration or size")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.StopTimeout = orDefault(cfg.StopTimeout, 10*time.Second)
	cfg.CommitInterval = orDefault(cfg.CommitInterval, time.Second)
	cfg.SessionTimeout = orDefault(cfg.SessionTimeout, 10*time.Second)
	cfg.LagInterval = orDefault(cfg.LagInterval, 5*time.Second)
	cfg.FetchBytes = orDefault(cfg.FetchBytes, 1<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Start.kind == unset {
		cfg.Start = Oldest()
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

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// readAhead is how many records may wait beside the answer of a fetch, per partition.
const readAhead = 4

// sarama is the client's configuration.
func (cfg *Config) sarama() *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = "notify-stream"
	sc.Net.DialTimeout = 10 * time.Second
	sc.Consumer.Retry.Backoff = 500 * time.Millisecond
	sc.Consumer.MaxWaitTime = 250 * time.Millisecond // a stop waits for it
	if cfg.Client != nil {
		cfg.Client(sc)
	}
	sc.Version = sarama.DefaultVersion
	sc.Metadata.AllowAutoTopicCreation = false // reading must not make a topic
	sc.ChannelBufferSize = readAhead
	sc.Consumer.Return.Errors = true
	sc.Consumer.Fetch.Default = cfg.FetchBytes
	sc.Consumer.Fetch.Max = 0 // a larger record is waited for, never passed over
	sc.Consumer.IsolationLevel = sarama.ReadCommitted
	if cfg.ReadUncommitted {
		sc.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	sc.Consumer.Offsets.AutoCommit.Interval = cfg.CommitInterval
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.ResetInvalidOffsets = false // an offset that is gone is an error
	sc.Consumer.Group.Session.Timeout = cfg.SessionTimeout
	sc.Consumer.Group.Heartbeat.Interval = cfg.SessionTimeout / 3
	sc.Consumer.Group.Rebalance.Timeout = cfg.StopTimeout + 15*time.Second
	// A join is answered when the other members have given up what they hold.
	sc.Net.ReadTimeout = max(sc.Net.ReadTimeout, cfg.StopTimeout+20*time.Second)
	sc.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	return sc
}

// Run reads until ctx ends, an error comes up, or each partition is handled up to End,
// and then returns nil, the error, or nil. The handler is called with one record of a
// partition after another, and for several partitions at once. When it returns nil the
// record is handled, and its offset will be committed; when it returns an error the
// consumer stops, and Run returns a *HandlerError. A record in hand when its context
// ends is handled again by whoever reads the partition next.
//
// At the start Kafka must answer, and the topics must exist: the error wraps
// ErrUnreachable, ErrUnknownTopic or ErrOffsetOutOfRange. Later, Run waits for a Kafka
// that is away.
func (c *Consumer) Run(ctx context.Context) error {
	if c.cfg.Handler == nil {
		return errors.New("stream: Handler: none is given")
	}
	return c.run(ctx, c.cfg.Handler)
}

func (c *Consumer) run(ctx context.Context, handle func(context.Context, Record) error) (err error) {
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
	lagging, stopLag := context.WithCancel(ctx)
	var lag sync.WaitGroup
	lag.Go(func() { c.watchLag(lagging, log) })
	defer func() { stopLag(); lag.Wait() }()
	if c.cfg.Group != "" {
		return c.runGroup(ctx, log, handle)
	}
	return c.runAssigned(ctx, log, handle)
}

// Records is Run as an iterator, for a Config without Handler: the records of all
// partitions as they come, those of each partition in order. A record is handled when
// the loop asks for the next one or ends. A last pair carries the error that Run would
// return, if there is one.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if c.cfg.Handler != nil {
			yield(Record{}, errors.New("stream: Handler: Records needs a Config without it"))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		turns := make(chan turn)
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err = c.run(ctx, func(work context.Context, r Record) error { return offer(ctx, work, turns, r) })
		}()
		defer func() { cancel(); <-ended }()
		for {
			select {
			case t := <-turns:
				if !t.give(yield) {
					return
				}
			case <-ended:
				if err != nil {
					yield(Record{}, err)
				}
				return
			}
		}
	}
}

// turn is a record on its way to the loop over Records, which closes handled.
type turn struct {
	record  Record
	handled chan struct{}
}

// give runs the loop's body on the record, which is handled then, also if it breaks.
func (t turn) give(yield func(Record, error) bool) bool {
	defer close(t.handled)
	return yield(t.record, nil)
}

// offer waits until the loop has taken and handled a record. It gives up while the
// record is not taken when the iteration or the record's context ends.
func offer(iteration, work context.Context, turns chan<- turn, r Record) error {
	t := turn{r, make(chan struct{})}
	select {
	case turns <- t:
		<-t.handled
		return nil
	case <-iteration.Done():
	case <-work.Done():
	}
	return errNotTaken
}

// partition makes the reader of one partition that begins at an offset.
func (c *Consumer) partition(kafka string, number int32, next int64, handle func(context.Context, Record) error) *partition {
	topic := c.topics[kafka]
	p := &partition{
		topic: topic, kafka: kafka, number: number,
		cfg: &c.cfg, handle: handle, mark: func(int64) {}, last: forever,
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

// holdings are the partitions read at present.
type holdings struct {
	mu   sync.Mutex
	list []*partition
}

func (h *holdings) add(p *partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, p)
}

func (h *holdings) remove(p *partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(o *partition) bool { return o == p })
}

// whileHeld calls f if the partition is held, and keeps it held meanwhile.
func (h *holdings) whileHeld(p *partition, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.list, p) {
		f()
	}
}

// now is a copy of the list.
func (h *holdings) now() []*partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}
