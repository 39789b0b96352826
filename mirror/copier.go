package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/semaphore"

	"notifymirror/canal"
	"notifymirror/mirror/transact"
)

// surveyEvery is how often the server's clock and its list of binlog files are asked for.
const surveyEvery = time.Minute

// abortGrace is how long a planned stop tries to abort the open Kafka transaction.
const abortGrace = 500 * time.Millisecond

// A Copier copies one store's committed messages into Kafka, exactly once and in order.
// A canald runs one per store; they share nothing but the configuration, so that one that
// waits or halts does not touch the others.
type Copier struct {
	config  Config
	name    string // of the store
	dsn     *mysql.Config
	primary *primary
	log     *slog.Logger
	lag     lag
	shards  atomic.Int32 // of the store, once it was asked
	looked  atomic.Int64 // records, while the topics are looked through for a lost checkpoint
	metrics *storeMetrics
	board   board
	stuck   stuck
	session time.Duration
	// used tells that binlog from the installation on turned out to be purged.
	used bool

	changing  sync.Mutex
	proposed  *change                 // for the next run
	interrupt context.CancelCauseFunc // ends the run that goes on
	wake      chan struct{}           // something was proposed

	// What tests replace.
	readStore    func(context.Context) (storeInfo, error)
	openSource   func(canal.Position) source
	openProbe    func(canal.Position) source
	startBefore  func(context.Context, time.Time) (canal.Position, error)
	mayBackfill  func(ctx context.Context, shards int) error
	openView     func(ctx context.Context, info storeInfo, locked bool) (snapshot, error)
	probeLimit   time.Duration
	survey       func(context.Context) (canal.Survey, error)
	surveyEvery  time.Duration
	connected    func() bool
	dialer       transact.Dialer
	lookEvery    time.Duration // verifyEvery
	primaryEvery time.Duration
}

// New makes a Copier of the configuration's store of that name, and registers its metrics,
// all with the label store. It connects nowhere. The error wraps ErrConfig and names every
// problem of the configuration.
func New(config Config, store string, deps Deps) (*Copier, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	of, known := config.Stores[store]
	if !known {
		return nil, fmt.Errorf("%w: stores.%s: is not there", ErrConfig, store)
	}
	c := &Copier{
		config: config.WithDefaults(), name: store, session: Session, wake: make(chan struct{}, 1),
		probeLimit: probeLimit, surveyEvery: surveyEvery, lookEvery: verifyEvery, primaryEvery: primaryEvery,
	}
	var err error
	if c.dsn, err = parseDSN(of.DSN); err != nil {
		return nil, err
	}
	c.log = deps.Logger.With("store", c.name)
	c.primary = newPrimary(c.dsn)
	tail := tailerConfig(c.config, c.name, c.dsn, &c.shards, c.log)
	if c.primary.Several() {
		tail.Find = c.primary.Find
	}
	tailer, err := canal.NewTailer(tail)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.metrics, err = newStoreMetrics(deps.Registerer, c.name, c, tailer.Stats); err != nil {
		return nil, fmt.Errorf("metrics of store %s: %w", c.name, err)
	}
	c.board.status = Status{Store: c.name, ID: c.config.ID, State: Idle, Since: time.Now()}
	c.readStore = func(ctx context.Context) (storeInfo, error) { return readStore(ctx, c.dsn, tail) }
	c.openSource = func(at canal.Position) source { return tailed{tailer, at} }
	c.openProbe = func(at canal.Position) source { return probing(tail, at) }
	c.startBefore = func(ctx context.Context, t time.Time) (canal.Position, error) { return canal.StartBefore(ctx, tail, t) }
	c.mayBackfill = func(ctx context.Context, shards int) error { return mayBackfill(ctx, c.dsn, shards) }
	c.openView = func(ctx context.Context, info storeInfo, locked bool) (snapshot, error) {
		return openView(ctx, info.at(c.dsn), info, locked)
	}
	c.survey = func(ctx context.Context) (canal.Survey, error) { return canal.Look(ctx, tail) }
	c.connected = func() bool { return tailer.Stats().Connected }
	return c, nil
}

// Status is the mirror's state now.
func (c *Copier) Status() Status {
	s := c.board.read()
	s.measure(c.lag.at(time.Now()))
	s.Connected = c.connected()
	return s
}

// Ready is nil while the store is being copied; otherwise it says why not.
func (c *Copier) Ready() error { return c.Status().ready() }

// Run copies until ctx ends, which returns nil, or until only an operator can help, which
// returns a *Halt. While Kafka or the store is away it tries again for ever, and while
// another canald is active it stands by. When it returns, all that it started has ended.
func (c *Copier) Run(ctx context.Context) error {
	defer c.metrics.active.Set(0)
	defer c.metrics.setWaiting("")
	c.board.enter(Starting, time.Now())
	c.metrics.setHalted("")
	looking, enough := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { c.keepSurveying(looking) })
	defer looks.Wait()
	defer enough()
	pause := backoff{}
	for {
		err := c.attend(ctx, &pause)
		if ctx.Err() != nil {
			c.board.enter(Idle, time.Now())
			return nil
		}
		var h *Halt
		if errors.As(err, &h) {
			h.Store = c.name
			for _, command := range []string{resumeCommand, backfillCommand, resetCommand} {
				h.Repair = strings.ReplaceAll(h.Repair, command, command+" --store "+c.name)
			}
			c.adopt().finish(h)
			c.board.halts(h, time.Now())
			c.metrics.setHalted(h.Reason)
			return h
		}
		c.interrupted(err)
		if !pause.wait(ctx) {
			c.board.enter(Idle, time.Now())
			return nil
		}
	}
}

// keepSurveying surveys the store's server, unless another canald is active and does.
func (c *Copier) keepSurveying(ctx context.Context) {
	tick := time.NewTicker(c.surveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if c.board.read().State == Standby {
			continue
		}
		s, err := c.survey(ctx)
		if err != nil {
			c.log.Debug("server not surveyed", "err", err) // the stream tells what it means
			continue
		}
		c.lag.surveyed(s)
	}
}

// interrupted notes a fault that is tried again, and logs it when it changes the state.
func (c *Copier) interrupted(err error) {
	o := c.obstacle(err)
	if !c.board.waits(err, o, time.Now()) {
		return
	}
	if o == nil {
		c.metrics.setWaiting("")
		c.log.Warn("mirror interrupted, trying again", "err", err)
		return
	}
	c.metrics.setWaiting(o.Reason)
	c.log.Warn("mirror waits until somebody mends Kafka", "reason", o.Reason, "err", o.Err, "repair", o.Repair)
}

// run takes over, and copies until something fails. copied tells that a transaction was written.
func (c *Copier) run(ctx context.Context, m *member) (copied bool, err error) {
	ctx, stop := c.interruptible(ctx)
	defer stop()
	s, err := c.open(ctx, m)
	if err == nil {
		copied, err = c.copy(ctx, s)
	} else {
		c.metrics.errors.WithLabelValues("start").Inc()
	}
	if err != nil && transact.Fenced(err) {
		err = fmt.Errorf("%w: %w", errFenced, err)
	}
	err = c.explained(err, m.group.topic, s.topics)
	s.change.finish(err) // unless it is in Kafka
	if errors.Is(context.Cause(ctx), errChanging) {
		err = errChanging
	}
	return copied, errors.Join(err, s.close())
}

// copy runs reader and writer until one fails. A fault of the reader is returned once all
// that was read before it is in Kafka.
func (c *Copier) copy(ctx context.Context, s *start) (copied bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(context.Canceled) }
	var watching sync.WaitGroup
	watching.Go(func() { c.watchPrimary(ctx, s.info.addr, end) })
	defer watching.Wait()
	defer cancel()
	chunks := make(chan *chunk, 256)
	memory, pool := semaphore.NewWeighted(int64(c.config.Memory)), new(chunkPool)
	began := false
	var sp *spool
	w := c.newWriter(s, memory, pool, func(at checkpoint) {
		began = true
		if sp != nil && !at.Backfill.pending() {
			sp.close()
			sp.remove()
			sp = nil
		}
		if c.stuck.past(at) {
			copied = true
			c.copies(at)
		}
	})
	defer func() {
		if began && c.obstacle(err) != nil {
			at := c.board.read()
			c.stuck.meet(at.Generation, at.Seq)
		}
	}()
	if !c.begin(s.change) {
		return copied, errChanging // back to what it was
	}
	if err := w.commit(ctx); err != nil { // tells the next start who writes
		s.change.finish(fmt.Errorf("as far as is known: Kafka did not say whether it took the change, which is not tried again; `notify mirror checkpoint show` tells: %w", err))
		return copied, c.movedFault(ctx, c.writeFault(ctx, s, err))
	}
	s.change.finish(nil)
	if err := ctx.Err(); err != nil { // that was all
		return copied, c.movedFault(ctx, err)
	}
	if sp, err = c.backfill(ctx, s, w); err != nil {
		c.metrics.errors.WithLabelValues("start").Inc()
		return copied, c.movedFault(ctx, err)
	}
	defer sp.close()
	src := c.openSource(s.at.position())
	r := c.newReader(s, memory, pool, chunks)
	c.metrics.active.Set(1)
	defer c.metrics.active.Set(0)
	defer c.metrics.buffered.Set(0) // what a fault left behind is dropped
	read := make(chan error, 1)
	go func(sp *spool) { read <- r.run(ctx, sp, src) }(sp)
	writeErr := w.run(ctx, chunks)
	cancel()
	readErr := <-read
	if writeErr == nil {
		c.metrics.errors.WithLabelValues("read").Inc()
		if s.first && errors.Is(readErr, canal.ErrPurged) { // a server that does not say so beforehand
			c.used = true
			return copied, readErr
		}
		return copied, c.refusal(s.sourceError(c.movedFault(ctx, readErr)))
	}
	return copied, c.movedFault(ctx, c.writeFault(ctx, s, writeErr))
}

// copies notes that the mirror copies: a checkpoint was written, and what it was stuck at,
// if anything, is behind.
func (c *Copier) copies(at checkpoint) {
	if c.board.enter(Copying, time.Now()) {
		c.metrics.setWaiting("")
		c.log.Info("mirror copies", "server", at.Server, "position", at.GTIDs, "generation", at.Generation, "seq", at.Seq)
	}
}

// writeFault is the end of a run by the writer: a planned stop, or a fault.
func (c *Copier) writeFault(ctx context.Context, s *start, err error) error {
	if errors.Is(err, context.Canceled) {
		grace, stop := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
		defer stop()
		s.producer.Abort(grace)
		return err
	}
	c.metrics.errors.WithLabelValues("produce").Inc()
	return err
}

func (c *Copier) newWriter(s *start, memory *semaphore.Weighted, pool *chunkPool, wrote func(checkpoint)) *writer {
	at := s.at
	at.Shards = slices.Clone(s.at.Shards)
	return &writer{
		producer: s.producer, topic: s.topic, writer: c.config.ID, at: at,
		fresh: s.grown, recorded: cloneTopics(s.topics), verify: func(all map[string]topicRecord) error { return c.checkTopics(all, s.kafka) },
		verified: time.Now(), lookEvery: c.lookEvery,
		batch:  batch{limits: c.limits()},
		memory: memory, pool: pool, lag: &c.lag, metrics: c.metrics,
		saved: func(at checkpoint, now time.Time) {
			c.board.saved(at, now)
			c.metrics.remaining.Set(float64(at.Backfill.Messages - at.Backfill.Copied))
			wrote(at)
		},
	}
}

func (c *Copier) newReader(s *start, memory *semaphore.Weighted, pool *chunkPool, out chan<- *chunk) *reader {
	var committed time.Time
	if us := s.at.Last.CommittedAt; us > 0 {
		committed = time.UnixMicro(us)
	}
	c.lag.start(committed, time.Now())
	return &reader{
		config: c.config, at: s.at, order: newOrder(s.at.Shards),
		rows: rowDecoder{schema: c.dsn.DBName},
		topics: &topics{
			kafka: s.kafka, config: c.config, saved: s.topics,
			byName: make(map[string]*topic), metric: c.metrics.topic,
		},
		batch:  batch{limits: c.limits()},
		memory: memory, pool: pool, out: out, lag: &c.lag, metrics: c.metrics,
	}
}

func (c *Copier) limits() limits {
	return limits{records: c.config.BatchRecords, bytes: int(c.config.BatchBytes), linger: c.config.Linger}
}

// backoff waits longer each time, from 100 ms to 5 s, with jitter.
type backoff struct{ last time.Duration }

// wait is false when ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	b.last = min(5*time.Second, max(100*time.Millisecond, 2*b.last))
	return pause(ctx, b.last/2+rand.N(b.last/2))
}

// pause is false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
