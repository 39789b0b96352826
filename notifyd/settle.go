package notifyd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// settlePeriod is how long outcomes gather before a transaction takes them; nobody waits for it.
	settlePeriod = 200 * time.Millisecond
	// settleBatch is the most messages of one settling transaction; as many do not wait for the period.
	settleBatch = 500
	// handOverPatience bounds a hand-over of which the store refuses the last settlement: what
	// is not settled then is read again by the next owner.
	handOverPatience = 5 * time.Second
	// settleRefusals is how often in a row the rows of settlements may be refused. Then what is in
	// memory contradicts the store, and the ownership ends: the next one reads everything again.
	settleRefusals = 5
)

// settleLoop writes outcomes. It is the only writer of pending rows and the only deleter of
// messages, so that one position is never in two transactions at once.
func (o *owner) settleLoop(ctx context.Context) error {
	defer close(o.settleEnded)
	period := time.NewTimer(o.turn(settlePeriod))
	defer period.Stop()
	ping := time.NewTicker(pingPeriod)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			return o.handOver(ctx)
		case <-period.C:
			period.Reset(settlePeriod)
		case <-o.settleWake:
		case w := <-o.deadWork:
			if err := o.changeDead(ctx, w); err != nil {
				return err
			}
			continue
		case <-ping.C:
			if err := o.settles.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		if err := o.settleReady(ctx); err != nil {
			return err
		}
	}
}

// wakeSettler calls the settler when a full batch is ready. The lock is held.
func (o *owner) wakeSettler() {
	ready := o.ledger.Ready(o.clock.now())
	if ready+o.outcomes() >= settleBatch {
		wake(o.settleWake)
	}
}

// outcomes is how many rows of settled messages wait for the settler. The lock is held.
func (o *owner) outcomes() int { return len(o.acks) + len(o.fails) + len(o.deads) }

// settleReady settles until less than a full batch is left.
func (o *owner) settleReady(ctx context.Context) error {
	for {
		s := o.settlement(settleBatch)
		if s == nil {
			return nil
		}
		full := len(s.Acks)+len(s.Fails)+len(s.Deads) >= settleBatch || len(s.Plan.Delete) >= settleBatch
		if ok, err := o.settle(ctx, s); err != nil || !ok || !full {
			return err
		}
	}
}

// settlement takes what is ready, or returns nil.
func (o *owner) settlement(most int) *store.Settlement {
	o.mu.Lock()
	defer o.mu.Unlock()
	ready := o.ledger.Ready(o.clock.now())
	if ready+o.outcomes() == 0 {
		return nil
	}
	s := &store.Settlement{Shard: o.no, Epoch: o.epoch, Plan: o.ledger.Plan(o.clock.now(), most)}
	n := min(most, len(o.acks))
	s.Acks, o.acks = o.acks[:n:n], o.acks[n:]
	n = min(most, len(o.fails))
	s.Fails, o.fails = o.fails[:n:n], o.fails[n:]
	n = min(most, len(o.deads))
	s.Deads, o.deads = o.deads[:n:n], o.deads[n:]
	return s
}

// settle runs one settlement. It reports false when that was rolled back, to be tried again
// later. Its error ends the ownership.
func (o *owner) settle(ctx context.Context, s *store.Settlement) (ok bool, err error) {
	o.keepBodies(s)
	began := time.Now()
	fence, err := o.settles.Settle(context.WithoutCancel(ctx), s)
	switch {
	case err == nil:
		o.clock.set(fence.Now, began)
		o.settleTrouble.off()
		o.refusals = 0
		o.settled(s)
		return true, nil
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrUnknown):
		return false, err
	}
	if store.RowsRefused(err) {
		if o.refusals++; o.refusals == settleRefusals {
			return false, fmt.Errorf("settlement: %w", err)
		}
	}
	o.unsettle(s)
	if errors.Is(err, store.ErrVersion) {
		err = o.refresh(ctx)
	}
	if err != nil {
		o.metrics.storeErrors.WithLabelValues(o.st.Name, "settle").Inc()
		o.settleTrouble.on(func() {
			o.log.Warn("settling failed and is tried again", "store", o.st.Name, "shard", o.no, "err", err)
		})
	}
	return false, nil
}

// unsettle puts a settlement back after its rollback.
func (o *owner) unsettle(s *store.Settlement) {
	o.mu.Lock()
	ds := o.ledger.SettleFailed(s.Plan)
	o.acks = append(s.Acks, o.acks...)
	o.fails = append(s.Fails, o.fails...)
	o.deads = append(s.Deads, o.deads...)
	o.mu.Unlock()
	o.offer(ds)
}

// settled notes a committed settlement.
func (o *owner) settled(s *store.Settlement) {
	o.metrics.batchRows.WithLabelValues("delete").Observe(float64(len(s.Plan.Delete)))
	o.metrics.batchRows.WithLabelValues("pending").Observe(float64(len(s.Plan.Pending)))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropBodies(s)
	late := o.ledger.SettleDone(s.Plan)
	o.acks = append(o.acks, late.Acks...)
	o.fails = append(o.fails, late.Fails...)
	for _, d := range late.Dead {
		o.buryRow(d)
	}
	for _, r := range s.Plan.Pending {
		o.hint(r.Group, r.NextAt)
	}
	for _, pos := range s.Plan.Undelay {
		o.written = append(o.written, flightGroup{pos, shard.Delayed})
	}
	for _, a := range s.Acks {
		o.written = append(o.written, flightGroup{a.Pos, a.Group})
	}
	if len(s.Plan.Dead)+len(s.Deads)+s.Completed > 0 {
		o.deadKept.Store(false)
	}
	for _, d := range s.Deads {
		k := flightGroup{d.Pos, d.Group}
		o.written = append(o.written, k)
		delete(o.dying, k)
	}
	for _, r := range s.Fails {
		o.written = append(o.written, flightGroup{r.Pos, r.Group})
		o.hint(r.Group, r.NextAt)
	}
	o.count()
	wake(o.readWake)
}

// handOver writes every outcome known and parks the rest, then ends the ownership. What is
// still running gets a row that is due at its deadline.
func (o *owner) handOver(ctx context.Context) error {
	for _, ended := range []chan struct{}{o.inserted, o.readEnded} {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.park(o.hub.drop(o))
	ctx, cancel := context.WithTimeout(ctx, handOverPatience)
	defer cancel()
	pause := time.NewTicker(settlePeriod)
	defer pause.Stop()
	for {
		s := o.everything()
		if s == nil {
			return errReleased
		}
		ok, err := o.settle(ctx, s)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return errReleased
		}
	}
}

// park gives the next owner the deadlines of retries that are still running; those of first
// attempts are in the ledger. What no stream has taken was no attempt.
func (o *owner) park(flying []*flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range flying {
		switch {
		case !f.taken && !f.retry:
			o.undo(f)
		case f.taken && f.retry && f.ackBy != 0:
			o.fails = append(o.fails, shard.PendingRow{Pos: f.pos, Group: f.group, NextAt: f.ackBy, Attempts: f.attempt, Err: failedNoAck})
		}
	}
}

// everything is a settlement that takes messages although they are not due, or nil.
func (o *owner) everything() *store.Settlement {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ledger.Len()+o.outcomes() == 0 {
		return nil
	}
	s := &store.Settlement{Shard: o.no, Epoch: o.epoch, Acks: o.acks, Fails: o.fails, Deads: o.deads,
		Plan: o.ledger.Plan(o.clock.now()+2*settleAfter.Microseconds(), settleBatch)}
	o.acks, o.fails, o.deads = nil, nil, nil
	return s
}

var _ source = (*owner)(nil)

// hint notes that a pending row of the group is due at next. The lock is held.
func (o *owner) hint(group int32, next int64) {
	d := o.drains[group]
	if d == nil {
		d = newDrain()
		o.drains[group] = d
	}
	d.hint(next)
}
