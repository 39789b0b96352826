package notifyd

import (
	"context"
	"math"
	"slices"
	"time"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// readPeriod is how often the reader looks for due rows when nobody wakes it, and pacePeriod
	// how often while some are due that its group is not given at once.
	readPeriod = 100 * time.Millisecond
	pacePeriod = rampBurst
	// pageRows and drainRows are the most rows of one read.
	pageRows  = 500
	drainRows = 500
	// drainLead is how many outcomes may wait for the settler before nothing more is drained: a settler that is left
	// behind has its deletes to do when somebody publishes again.
	drainLead = 2 * settleBatch
)

// never is a time that does not come.
const never = math.MaxInt64

// A drain is how far the pending rows of one group have been read. Rows are read in the
// order (next_at, pos) behind a cursor, page by page. It ends only with a pass from the start that finds
// nothing due, and during which nothing came: rows become due behind the cursor.
type drain struct {
	next    int64 // no row is due before
	cursor  store.Cursor
	passing bool // a pass is under way
	found   bool // it has found a row, or one has come since it began
	held    int  // bytes of retries under way
}

// start lies before every row.
func start() store.Cursor { return store.Cursor{NextAt: -1} }

func newDrain() *drain { return &drain{next: never, cursor: start()} }

// hint notes that a row is due at next.
func (d *drain) hint(next int64) {
	d.next = min(d.next, next)
	d.found = d.found || d.passing
}

// page begins the next page, which is read from the cursor on: rows that come from now on are hinted.
func (d *drain) page() store.Cursor {
	d.next, d.passing = never, true
	return d.cursor
}

// goOn leaves the pass to another page.
func (d *drain) goOn() { d.next = 0 }

// end ends the pass behind its last page, and reports whether there has to be another one at once.
func (d *drain) end() (again bool) {
	again = d.found
	d.cursor, d.passing, d.found = start(), false, false
	if again {
		d.next = 0
	}
	return again
}

// readLoop pages messages that are not in memory and drains pending rows.
func (o *owner) readLoop(ctx context.Context) error {
	defer close(o.readEnded)
	t := time.NewTimer(readPeriod)
	defer t.Stop()
	for sought := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			return nil
		case <-t.C:
		case <-o.readWake:
		}
		t.Reset(readPeriod)
		if !o.leased() {
			continue
		}
		var again bool
		var err error
		if !sought {
			err = o.seekDrains(ctx)
		}
		if err == nil {
			sought = true
			again, err = o.read(ctx)
		}
		if err != nil {
			if err := o.readFailed(ctx, err); err != nil {
				return err
			}
			continue
		}
		o.readTrouble.off()
		switch {
		case again:
			wake(o.readWake)
		case o.paced():
			t.Reset(pacePeriod)
		}
	}
}

// readFailed logs trouble with reading; writers notice a store that is away.
func (o *owner) readFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.metrics.storeErrors.WithLabelValues(o.st.Name, "read").Inc()
	o.readTrouble.on(func() {
		o.log.Warn("reading failed and is tried again", "store", o.st.Name, "shard", o.no, "err", err)
	})
	return nil
}

// seekDrains learns which groups have pending rows from before.
func (o *owner) seekDrains(ctx context.Context) error {
	groups := []int32{shard.Delayed}
	for _, g := range o.registry.load().Groups {
		groups = append(groups, g.ID)
	}
	for _, g := range groups {
		next, ok, err := o.st.NextDue(ctx, o.no, g, -1)
		if err != nil {
			return err
		}
		if ok {
			o.mu.Lock()
			o.hint(g, next)
			o.mu.Unlock()
		}
	}
	return nil
}

// read does one round and reports whether there is more to do at once.
func (o *owner) read(ctx context.Context) (again bool, err error) {
	again, err = o.page(ctx)
	if err != nil {
		return false, err
	}
	now := o.clock.now()
	o.mu.Lock()
	o.forgetWritten()
	var due []int32
	for g, d := range o.drains {
		if d.next <= now {
			due = append(due, g)
		}
	}
	o.mu.Unlock()
	more, err := o.sweep(ctx)
	if err != nil {
		return false, err
	}
	again = again || more
	for _, g := range due {
		drain := o.drainGroup
		if g == shard.Delayed {
			drain = o.exchangeDue
		}
		more, err = drain(ctx, g)
		if err != nil {
			return false, err
		}
		again = again || more
	}
	return again, nil
}

// paced reports whether rows are due of a group that would take them.
func (o *owner) paced() bool {
	now := o.clock.now()
	o.mu.Lock()
	var due []int32
	for g, d := range o.drains {
		if d.next <= now {
			due = append(due, g)
		}
	}
	o.mu.Unlock()
	return slices.ContainsFunc(due, func(g int32) bool { return o.hub.group(g).isUp() })
}

// page reads messages that were stored while memory was full, or before the takeover.
func (o *owner) page(ctx context.Context) (again bool, err error) {
	o.mu.Lock()
	from, to, need := o.ledger.Page()
	need = need && !o.full()
	o.mu.Unlock()
	if !need {
		return false, nil
	}
	rows, upTo, err := o.st.Page(ctx, o.no, from, to, pageRows)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	ds := o.ledger.Paged(o.clock.now(), rows, upTo)
	o.count()
	o.wakeSettler()
	_, _, again = o.ledger.Page()
	o.mu.Unlock()
	o.deliver(taken{rows, ds})
	return again, nil
}

// drainGroup pushes due rows of a group as far as its credit goes.
func (o *owner) drainGroup(ctx context.Context, group int32) (again bool, err error) {
	o.mu.Lock()
	most := o.drainable(group)
	o.mu.Unlock()
	if most > 0 {
		most = o.hub.group(group).reserve(most)
	}
	if most == 0 {
		return false, nil
	}
	offered := 0
	defer func() { o.hub.group(group).giveBack(most - offered) }()
	return o.readDue(ctx, group, most, func(d *drain, now int64, due []store.Due) {
		fs := o.retries(d, group, now, due)
		offered = len(fs)
		o.hub.offer(fs)
	})
}

// readDue reads up to most rows of a group that are due, behind its cursor, and gives them to take, which moves the cursor.
func (o *owner) readDue(ctx context.Context, group int32, most int, take func(*drain, int64, []store.Due)) (again bool, err error) {
	now := o.clock.now()
	o.mu.Lock()
	d := o.drains[group]
	cursor := d.page()
	o.mu.Unlock()
	due, more, err := o.st.DueRows(ctx, o.no, group, cursor, now, most, o.body)
	if err == nil {
		for _, row := range due {
			o.bodies.put(o.bodyKey(row.Pos), row.Msg, 1)
		}
		take(d, now, due)
		if !more {
			return o.passEnded(ctx, d, group, now)
		}
	}
	o.mu.Lock()
	d.goOn()
	o.mu.Unlock()
	return more, err
}

// forgetWritten takes rows whose outcome was committed out of busy. It is called before
// rows are read, and only then: a read under way may still show them as they were. The lock is held.
func (o *owner) forgetWritten() {
	for _, k := range o.written {
		delete(o.busy, k)
	}
	o.written = o.written[:0]
}

// unwanted is why a retry of a due row is not made any more, or nothing. Its last attempt may have been made by an owner that
// did not live to see its end, or under a policy that allowed more.
func unwanted(f *flight, p retryPolicy, now int64) (dead string) {
	switch {
	case f.attempt > p.attempts:
		return deadMaxAttempts
	case p.expired(now, f.ageFrom()) || f.outlives(now):
		return deadExpired
	}
	return ""
}

// retries makes attempts of due rows that are not on their way already and moves the
// cursor. Rows that are too old at now, or out of attempts, become dead letters instead.
func (o *owner) retries(d *drain, group int32, now int64, due []store.Due) []*flight {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.registry.load()
	var fs []*flight
	for _, row := range due {
		d.cursor = store.Cursor{NextAt: row.NextAt, Pos: row.Pos}
		k := flightGroup{row.Pos, group}
		if o.busy[k] {
			continue
		}
		d.found = true
		f := o.flight(v, shard.Delivery{Pos: row.Pos, Group: group, Msg: row.Msg, Size: row.Msg.Size()}, row.Attempts+1)
		f.retry, f.since = true, row.CountsFrom
		if dead := unwanted(f, v.policy(row.Msg.Topic, group).retry, now); dead != "" {
			o.metrics.deadLetters.WithLabelValues(row.Msg.Topic, o.groupName(group), dead).Inc()
			o.buryRow(shard.DeadRow{Pos: row.Pos, Group: group, Reason: dead, Attempts: row.Attempts})
			continue
		}
		o.busy[k] = true
		f.held = f.size
		d.held += f.held
		o.retrying += f.held
		fs = append(fs, f)
	}
	o.count()
	return fs
}

// drainable is how many rows of a group the memory has room for: while it is full one after the
// other, so that no group stands still. The lock is held.
func (o *owner) drainable(group int32) int {
	switch d := o.drains[group]; {
	case d == nil, o.outcomes() >= drainLead: // dropped meanwhile, or the settler is behind
		return 0
	case !o.full():
		return drainRows
	case d.held == 0:
		return 1
	}
	return 0
}

// passEnded begins the next pass, or ends the drain after one that found nothing.
func (o *owner) passEnded(ctx context.Context, d *drain, group int32, now int64) (again bool, err error) {
	o.mu.Lock()
	again = d.end()
	o.mu.Unlock()
	if again {
		return true, nil
	}
	next, ok, err := o.st.NextDue(ctx, o.no, group, now)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil:
		o.hint(group, 0)
	case ok:
		o.hint(group, next)
	}
	return false, err
}
