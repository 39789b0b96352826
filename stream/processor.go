package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"notifymirror/mirror/record"
	"notifymirror/mirror/transact"
)

// ProcessorConfig is a processor's configuration. Group, one topic, State and Process
// must be given.
type ProcessorConfig struct {
	// Config says what is read, as for a Consumer; Handler, BatchHandler, RejectTopic and
	// ReadUncommitted must be unset. BatchRecords and BatchWait bound a transaction;
	// SessionTimeout is also the transaction's timeout.
	Config
	// State is the topic of the state, by its name in Kafka, for this group alone. It is
	// made when it is missing: compacted, with as many partitions as the input has. It
	// knows how far the input is in it: to process again what was processed, use another
	// one; setting the group's offset back has no effect.
	State string
	// MaxState bounds the state of one partition, keys and values, in bytes. Default 64 MiB.
	MaxState int
	// Process handles a batch of records of one partition. What it puts into the step is
	// committed, together with the batch's offsets, when it returns nil. Any error throws
	// the step away: after RetryAfter the same batch comes again, and any other error
	// stops the processor. The batch and the step are its own until it returns.
	Process func(ctx context.Context, step *Step, batch []Record) error
}

func (cfg ProcessorConfig) withDefaults() (ProcessorConfig, error) {
	var errs []error
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New("stream: "+text))
		}
	}
	wrong(cfg.Process == nil, "Process: none is given")
	wrong(cfg.State == "", "State: none is given")
	wrong(cfg.Group == "", "Group: none is given; a processor is a member of one")
	wrong(len(cfg.Topics) > 1, "Topics: a processor reads one; its state has the topic's partitions")
	wrong(cfg.Handler != nil || cfg.BatchHandler != nil, "Handler: a processor has Process instead")
	wrong(cfg.RejectTopic != "", "RejectTopic: a processor emits what it rejects, in its transaction")
	wrong(cfg.ReadUncommitted, "ReadUncommitted: a processor reads what is committed")
	wrong(cfg.End.kind != unset, "End: a processor has none")
	wrong(cfg.MaxState < 0, "MaxState: negative")
	cfg.MaxState = orDefault(cfg.MaxState, 64<<20)
	var err error
	cfg.Config, err = cfg.Config.withDefaults()
	return cfg, errors.Join(append(errs, err)...)
}

// A Processor reads a topic, keeps state, and writes records, exactly once: outputs,
// changes of the state and the offsets of what they come from are one Kafka transaction.
// Whatever dies, a read_committed reader of the outputs sees each once, made from a state
// that has each input once.
//
//	partition taken ─> initialise its transactional id ─> offset, state ─> batches ...
//	                   (aborts a predecessor's transaction,     │
//	                    and fences it)                          v
//	   Process(step, batch) ─> begin, outputs, state, offsets, commit ─> Process ...
//
// Each partition of the input has its own transactional id, state and transactions. It is
// made by NewProcessor and runs once.
type Processor struct {
	c   *Consumer
	cfg ProcessorConfig
}

// NewProcessor checks the configuration. All that is wrong with it is reported at once.
func NewProcessor(cfg ProcessorConfig) (*Processor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Processor{c, cfg}, nil
}

// Lag is that of a Consumer, for the partitions that are processed here at present.
func (p *Processor) Lag() ([]PartitionLag, error) { return p.c.Lag() }

// Run processes until ctx ends or an error comes up, as Consumer.Run does. A transaction
// that failed, since Kafka was away or another member has the partition, is not an error:
// what was in it is processed again from the last committed state.
func (p *Processor) Run(ctx context.Context) (err error) {
	log, err := openLog(p.c.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	kafka := record.TopicName(p.cfg.Prefix, p.cfg.Topics[0])
	if err := log.makeState(p.cfg.State, kafka); err != nil {
		return err
	}
	reader, err := sarama.NewConsumer(p.cfg.Brokers, p.c.cfg.sarama())
	if err != nil {
		return reachable(err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	p.c.log.Store(log)
	defer p.c.log.Store(nil)
	lagging, stopLag := context.WithCancel(ctx)
	var lag sync.WaitGroup
	lag.Go(func() { p.c.watchLag(lagging, log) })
	defer func() { stopLag(); lag.Wait() }()

	sc := p.c.cfg.sarama()
	sc.Consumer.Offsets.AutoCommit.Enable = false // offsets go with the transactions only
	return p.c.runGroup(ctx, sc, func(stop func()) membership {
		return &processing{p: p, log: log, reader: reader, instance: sc.Consumer.Group.InstanceId, failures: failures{stop: stop},
			closing: func() (context.Context, func()) { return withGrace(ctx, abortGrace) }}
	})
}

// processing implements sarama.ConsumerGroupHandler for one generation of the group after
// another.
type processing struct {
	failures
	p      *Processor
	log    *kafkaLog
	reader sarama.Consumer
	// instance is the member's, when it is a static one.
	instance string
	// closing is a context in which partitions are given up, and its end.
	closing func() (context.Context, func())

	mu    sync.Mutex
	tasks map[place]*task
}

// Setup takes over the partitions: their predecessors can commit nothing any more when it
// returns.
func (g *processing) Setup(s sarama.ConsumerGroupSession) error {
	g.tasks = map[place]*task{}
	var all errgroup.Group
	all.SetLimit(8)
	of := transact.Member{Group: g.p.cfg.Group, ID: s.MemberID(), Generation: s.GenerationID()}
	if instance := g.instance; instance != "" {
		of.Instance = &instance
	}
	for kafka, claimed := range s.Claims() {
		if err := g.log.makeState(g.p.cfg.State, kafka); err != nil { // the input may have grown
			return err
		}
		for _, n := range claimed {
			all.Go(func() error {
				t, err := g.p.take(s.Context(), g.log, g.reader, of, place{kafka, n})
				if err != nil {
					return fmt.Errorf("%s partition %d: %w", kafka, n, err)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				g.tasks[place{kafka, n}] = t
				t.measure()
				// The session begins to read here; each goes in one direction only.
				s.MarkOffset(kafka, n, t.next, "")
				s.ResetOffset(kafka, n, t.next, "")
				return nil
			})
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	g.p.c.cfg.Logger.Info("partitions taken", "group", g.p.cfg.Group, "generation", s.GenerationID(), "partitions", s.Claims())
	g.p.c.wellAgain()
	return nil
}

// ConsumeClaim processes one partition until it is given up.
func (g *processing) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	g.mu.Lock()
	t := g.tasks[place{claim.Topic(), claim.Partition()}]
	g.mu.Unlock()
	p := g.p.c.partition(claim.Topic(), claim.Partition(), t.next, handler{t.process, g.p.cfg.BatchRecords})
	if t.fresh {
		p.from = g.p.cfg.Start.of(claim.Partition()).time
	}
	g.p.c.held.add(p)
	defer g.p.c.letGo(p)
	err := p.run(s.Context(), claim.Messages())
	if errors.Is(err, ErrOffsetOutOfRange) {
		_, err = g.p.c.lost(g.log, p, err) // where to go on is for the next generation's Setup
	}
	switch {
	case err == nil:
	case errors.Is(err, errNotCommitted) && !neverTaken(err):
		g.p.c.inTrouble(err) // the next generation begins at what is committed
	default:
		g.fail(err)
	}
	return nil
}

// Cleanup is called when nothing of the generation is processed any more.
func (g *processing) Cleanup(s sarama.ConsumerGroupSession) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, release := g.closing()
	defer release()
	var all sync.WaitGroup
	for _, t := range g.tasks {
		all.Go(func() { t.writer.close(ctx) })
		t.letGo()
	}
	all.Wait()
	g.tasks = nil
	g.p.c.cfg.Logger.Info("partitions given up", "group", g.p.cfg.Group, "generation", s.GenerationID())
	return nil
}
