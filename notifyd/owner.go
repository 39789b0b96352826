package notifyd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// settleAfter is how long after its exchange a message is settled although a group has not
// answered yet.
const settleAfter = 5 * time.Second

const (
	// memoryShare is the part of the delivery memory that each shard may take however full it is, and
	// leastMemory how much that is at least, in bytes.
	memoryShare = 64
	leastMemory = 1 << 20
)

// core is what every part of a broker works with.
type core struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	declared  *registry // of the main store
	commits   *commitGate
	hub       *hub
	producers *producers
	callbacks *callbacks
	backlog   *backlog
	// topic finds a declared topic, or declares it where that is configured.
	topic func(context.Context, string) (store.Topic, error)
	// decided takes a decision that a callback gave.
	decided func(context.Context, handle, string, store.Decision) error
	viewer  *viewer
	fits    func(*message.Message) (size, limit int, ok bool)
	bodies  *bodyCache
	// unsettledBytes is the memory of messages kept for delivery, over all shards.
	unsettledBytes atomic.Int64
}

// full reports whether this owner keeps no more messages for delivery: the memory of all is taken, and
// it has its own share. What one shard cannot settle stops no other. The lock is held.
func (o *owner) full() bool {
	all := int64(o.cfg.DeliveryMemory)
	return o.unsettledBytes.Load() > all && int64(o.counted) >= min(all, max(all/memoryShare, leastMemory))
}

// An owner is this broker's ownership of one shard under one epoch. Its goroutines:
// the inserter stores batches (insert.go), the settler removes and parks messages (settle.go), the
// reader pages and drains (drain.go), the checker asks about halves (check.go), and in shard 0
// the relay empties the outbox (relay.go); the counter counts what waits (backlog.go). It ends when it is fenced, when a
// transaction's outcome is unknown, or when it is asked to release the shard.
type owner struct {
	*side
	no    int
	epoch int64

	inserts, settles *store.Writer
	copies           *origin // of broadcast copies

	queue *batchQueue
	// leaseEnd is the local instant until which the lease surely holds, in nanoseconds since the clock's start.
	leaseEnd atomic.Int64

	relays      chan relayWork
	readWake    chan struct{}
	settleWake  chan struct{}
	deadWork    chan *deadWork
	releasing   chan struct{} // closed: hand the shard over
	inserted    chan struct{} // closed: the inserter has ended
	readEnded   chan struct{} // closed: the reader has ended
	settleEnded chan struct{} // closed: the settler has ended
	lost        chan struct{} // closed: the lease is another's
	losing      sync.Once     // closes lost

	refusals int // settlements in a row of which the store refused the rows; the settler's

	deadKept atomic.Bool // no dead letter came or went since they were counted

	mu        sync.Mutex
	slot      *shard.Slot
	ledger    *shard.Ledger
	retrying  int  // bytes of retries under way
	counted   int  // of ledger.Bytes and retrying in core.unsettledBytes
	closed    bool // nothing is counted any more
	acks      []shard.Ack
	fails     []shard.PendingRow
	deads     []shard.DeadRow
	dying     map[flightGroup]bool // in deads, or in the settlement under way
	redriveAt map[int32]int64      // by group: when the next redriven delivery may be due
	busy      map[flightGroup]bool // pending rows being delivered, or whose outcome is being written
	written   []flightGroup        // busy ones whose outcome is committed; see forgetWritten
	drains    map[int32]*drain

	swept int64 // registry version whose dropped groups have no rows here; the reader's

	settleTrouble, readTrouble, checkTrouble, relayTrouble trouble // each of one loop

	// doubt is the batch whose COMMIT has an unknown outcome, for the lease manager.
	doubt *doubt
}

type flightGroup struct {
	pos   shard.Pos
	group int32
}

// trouble lets one log line through when something begins to fail.
type trouble struct{ since bool }

func (t *trouble) on(log func()) {
	if !t.since {
		log()
	}
	t.since = true
}

func (t *trouble) off() { t.since = false }

// A doubt is a batch whose outcome is unknown.
type doubt struct {
	batch []*publish
	cause error
	first shard.Pos // of the positions asked for; 0: no INSERT was sent
	rows  int
}

func newOwner(s *side, no int, t store.Taken, v *view, inserts, settles *store.Writer) *owner {
	return &owner{
		side: s, no: no, epoch: t.Epoch,
		inserts: inserts, settles: settles, copies: s.origin(no),
		queue: newBatchQueue(), relays: make(chan relayWork),
		readWake: make(chan struct{}, 1), settleWake: make(chan struct{}, 1),
		releasing: make(chan struct{}), inserted: make(chan struct{}), readEnded: make(chan struct{}), lost: make(chan struct{}),
		slot:   shard.NewSlot(t.Epoch),
		ledger: shard.NewLedger(t.Settled, shard.EpochStart(t.Epoch), settleAfter.Microseconds(), v.Version, v.exchange),
		busy:   map[flightGroup]bool{}, dying: map[flightGroup]bool{},
		drains: map[int32]*drain{}, redriveAt: map[int32]int64{},
		deadWork: make(chan *deadWork), settleEnded: make(chan struct{}),
	}
}

// run works until the shard is released or lost. Its error says why it was lost:
// store.ErrFenced, store.ErrUnknown, or nil after a release.
func (o *owner) run(ctx context.Context) error {
	label := shardLabel(o.no)
	o.metrics.shardOwned.WithLabelValues(o.st.Name, label).Set(1)
	defer o.metrics.shardOwned.WithLabelValues(o.st.Name, label).Set(0)
	defer o.end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { defer close(o.inserted); return o.insertLoop(ctx) })
	g.Go(func() error { return o.settleLoop(ctx) })
	g.Go(func() error { return o.readLoop(ctx) })
	g.Go(func() error { return o.checkLoop(ctx) })
	g.Go(func() error { return o.relayLoop(ctx) })
	g.Go(func() error { return o.countLoop(ctx) })
	g.Go(func() error {
		select {
		case <-o.lost:
			return store.ErrFenced
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	err := g.Wait()
	if errors.Is(err, errReleased) {
		return nil
	}
	return err // of the first loop that ended
}

// errReleased ends the loops after a hand-over.
var errReleased = errors.New("shard released")

// turns are the instants of a period at which shards do what they do once in it.
const turns = 8

// turn is when in a period this shard begins. If all shards settled, counted or asked at one instant, whoever publishes
// then would wait.
func (o *owner) turn(period time.Duration) time.Duration {
	return period * time.Duration(o.no%turns) / turns
}

// lose ends the ownership of a shard whose lease is another's: an idle owner would not
// notice by itself. Both loops of the keeper may find it out, at the same time.
func (o *owner) lose() { o.losing.Do(func() { close(o.lost) }) }

// release asks the owner to settle what it has and to stop.
func (o *owner) release() { close(o.releasing) }

// end lets go of everything; the store keeps what is unsettled for the next owner.
func (o *owner) end() {
	o.queue.failAll(shardMoved())
	o.hub.drop(o)
	o.inserts.Close()
	o.settles.Close()
	o.closeAccount()
	o.metrics.unsettled.DeleteLabelValues(o.st.Name, shardLabel(o.no))
}

// closeAccount takes what is in memory out of the broker's account. Outcomes may still come: they count for nothing.
func (o *owner) closeAccount() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsettledBytes.Add(-int64(o.counted))
	o.counted, o.closed = 0, true
}

// renewed notes that the lease holds until d after asked.
func (o *owner) renewed(asked time.Time, d time.Duration) {
	o.leaseEnd.Store(int64(asked.Add(d).Sub(o.clock.start)))
}

// leased reports whether the lease surely holds. A broker that was stopped for longer does
// not push what another owner may be pushing. Writes are fenced by the epoch, not by this.
func (o *owner) leased() bool { return int64(time.Since(o.clock.start)) < o.leaseEnd.Load() }

// count keeps the memory accounts. The lock is held.
func (o *owner) count() {
	if o.closed {
		return
	}
	n := o.ledger.Bytes() + o.retrying
	o.unsettledBytes.Add(int64(n - o.counted))
	o.counted = n
	o.metrics.unsettled.WithLabelValues(o.st.Name, shardLabel(o.no)).Set(float64(o.ledger.Len()))
}

// flights makes first attempts of deliveries.
func (o *owner) flights(ds []shard.Delivery) []*flight {
	fs := make([]*flight, len(ds))
	v := o.registry.load()
	for i, d := range ds {
		fs[i] = o.flight(v, d, 1)
	}
	return fs
}

// offer pushes first attempts. What has come too late for its message's life (paged, delayed, or a half
// committed late) becomes a dead letter instead.
func (o *owner) offer(ds []shard.Delivery) {
	now := o.clock.now()
	fs := o.flights(ds)
	live := fs[:0]
	for _, f := range fs {
		if f.outlives(now) {
			o.bury(f, deadExpired, "")
		} else {
			live = append(live, f)
		}
	}
	o.hub.offer(live)
}

func (o *owner) flight(v *view, d shard.Delivery, attempt int) *flight {
	return &flight{from: o, pos: d.Pos, group: d.Group, attempt: attempt, msg: d.Msg, size: d.Size,
		token:   token{store: o.storeID, shard: o.no, pos: d.Pos, id: d.Msg.ID, group: d.Group, attempt: attempt}.encode(),
		ackWait: v.policy(d.Msg.Topic, d.Group).ackWait.Microseconds()}
}

// sent implements source.
func (o *owner) sent(fs []*flight) []*flight {
	leased := o.leased()
	now := o.clock.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.count()
	ok := fs[:0:0]
	for _, f := range fs {
		ackBy := now + f.wait
		switch {
		case leased && (f.retry || o.ledger.Sent(f.pos, f.group, ackBy)):
			f.ackBy = ackBy
			ok = append(ok, f)
		case f.retry:
			o.putBack(f)
		}
	}
	return ok
}

// deferred implements source.
func (o *owner) deferred(fs []*flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range fs {
		if f.retry {
			o.putBack(f)
			continue
		}
		o.undo(f)
	}
	o.count()
	o.wakeSettler()
}

// undo takes a first attempt back that did not leave. When its message was settled meanwhile, its row counts an attempt
// that was none. The lock is held.
func (o *owner) undo(f *flight) {
	if o.ledger.Defer(f.pos, f.group) == shard.Settled && f.ackBy != 0 && !o.busy[flightGroup{f.pos, f.group}] {
		o.fails = append(o.fails, shard.PendingRow{Pos: f.pos, Group: f.group})
	}
}

// putBack leaves a retry to be read again. The lock is held.
func (o *owner) putBack(f *flight) {
	o.letGo(f)
	delete(o.busy, flightGroup{f.pos, f.group})
	o.hint(f.group, 0)
}

// letGo ends the account of a retry's memory. The lock is held.
func (o *owner) letGo(f *flight) {
	o.retrying -= f.held
	if d := o.drains[f.group]; d != nil {
		d.held = max(0, d.held-f.held) // another, when the group was dropped meanwhile
	}
	f.held = 0
}

// failed implements source.
func (o *owner) failed(f *flight, x failure) {
	o.ended(f, cmp.Or(x.kind, kindNack))
	o.heard(f, endingOf(x), x.err)
	next, dead := o.registry.load().policy(f.msg.Topic, f.group).retry.next(o.clock.now(), f.ageFrom(), f.attempt, x, retrySeed(f.msg.ID, f.group, f.attempt))
	if dead == "" && f.outlives(next) {
		dead = deadExpired
	}
	if dead != "" {
		o.bury(f, dead, x.err)
		return
	}
	row := shard.PendingRow{Pos: f.pos, Group: f.group, NextAt: next, Attempts: f.attempt, Err: x.err}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case f.retry:
		o.fails = append(o.fails, row)
	case o.ledger.Fail(f.pos, f.group, row.NextAt, x.err) == shard.Settled && x.err != failedNoAck && !o.busy[flightGroup{f.pos, f.group}]:
		// Settled while it ran: its row has the deadline, which only an earlier end changes. A row that is busy
		// is being delivered already, and that attempt decides.
		o.fails = append(o.fails, row)
	}
	o.wakeSettler()
}

// Reasons of failed deliveries that are not the consumer's own.
const (
	failedNoAck       = shard.NoAck
	failedStreamEnded = "stream ended"
)

// ended counts an attempt that is over. kind says why it failed, as metrics have it; empty: it
// was acknowledged.
func (o *owner) ended(f *flight, kind string) {
	o.mu.Lock()
	f.over = true
	o.letGo(f)
	o.count()
	o.mu.Unlock()
	group := o.registry.load().GroupNames[f.group]
	o.metrics.attempts.WithLabelValues(f.msg.Topic, group, f.inst.transport).Inc()
	o.metrics.pushDuration.WithLabelValues(f.inst.transport).Observe(float64(o.hub.clock.now()-f.deadline+f.wait) / 1e6)
	if kind != "" {
		o.metrics.failures.WithLabelValues(f.msg.Topic, group, f.inst.transport, kind).Inc()
		return
	}
	o.heard(f, alive, "")
	o.metrics.latency.WithLabelValues(f.msg.Topic, group).Observe(float64(o.clock.now()-f.msg.BornAt) / 1e6)
}

// ack notes that a group is done with a message. It reports false when the message was not
// read by this owner yet, so that the acknowledgement is void.
func (o *owner) ack(pos shard.Pos, group int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.ledger.Ack(pos, group) {
	case shard.Settled:
		o.acks = append(o.acks, shard.Ack{Pos: pos, Group: group})
		o.busy[flightGroup{pos, group}] = true
	case shard.Unpaged:
		return false
	}
	o.wakeSettler()
	return true
}

// setRegistry exchanges by a newer version.
func (o *owner) setRegistry(v *view) {
	o.mu.Lock()
	ds := o.ledger.SetRegistry(v.Version, v.exchange)
	o.mu.Unlock()
	o.offer(ds)
}

// refresh reads the registry in force and exchanges by it.
func (o *owner) refresh(ctx context.Context) error {
	if err := o.readRegistry(ctx); err != nil {
		return err
	}
	o.setRegistry(o.registry.load())
	return nil
}
