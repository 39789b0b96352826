package notifyd

import (
	"context"
	"errors"
	"strings"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// maxNackDelay is the longest pause that a consumer may ask for.
	maxNackDelay = 24 * time.Hour
	// maxNackReason is how much of a consumer's reason is kept, in bytes.
	maxNackReason = 1000
)

// nacked notes what a consumer said instead of an acknowledgement.
func (o *owner) nacked(f *flight, n *notifyv1.Nack) { o.failed(f, failureOf(n)) }

// failureOf is what a nack means.
func failureOf(n *notifyv1.Nack) failure {
	x := failure{err: "nack", reject: n.GetReject(),
		delay: min(time.Duration(n.GetDelayMs())*time.Millisecond, maxNackDelay)}
	if x.reject {
		x.err = "rejected"
	}
	if s := n.GetReason(); s != "" {
		x.err += ": " + strings.ToValidUTF8(s[:min(len(s), maxNackReason)], "") // the cut may split a character
	}
	return x
}

// bury makes a dead letter of a delivery. err is empty when nothing was sent.
func (o *owner) bury(f *flight, reason, err string) {
	o.metrics.deadLetters.WithLabelValues(f.msg.Topic, o.groupName(f.group), reason).Inc()
	attempts := f.attempt
	if err == "" {
		attempts--
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.retry || o.ledger.Dead(f.pos, f.group, reason, err) == shard.Settled {
		o.buryRow(shard.DeadRow{Pos: f.pos, Group: f.group, Reason: reason, Attempts: attempts, Err: err})
	}
	o.wakeSettler()
}

// buryRow makes a dead letter of a pending row, which is not read any more. The first reason
// stays: a first attempt may fail while the row that its message got meanwhile expires. The lock is held.
func (o *owner) buryRow(d shard.DeadRow) {
	k := flightGroup{d.Pos, d.Group}
	if o.dying[k] {
		return
	}
	o.deads = append(o.deads, d)
	o.dying[k], o.busy[k] = true, true
}

// ageFrom is when the age of the delivery began, microseconds.
func (f *flight) ageFrom() int64 { return max(f.msg.BornAt, f.msg.DeliverAt, f.since) }

// outlives reports whether the message has expired at the time. What was redriven was wanted nevertheless.
func (f *flight) outlives(at int64) bool {
	return f.since == 0 && f.msg.ExpiresAt != 0 && f.msg.ExpiresAt <= at
}

const (
	// deadBatch is the most dead letters of one transaction, and deadCall of one call in one shard.
	deadBatch = 500
	deadCall  = 2000
)

// A deadChange is what is to be done with dead letters: one of three.
type deadChange struct {
	count, purge bool
	rate         int // of a redrive: a second, over all shards
}

// A deadDone is what was done in one shard.
type deadDone struct {
	changed int
	more    bool
	names   []store.DeadName // found
}

// A deadWork is a change of some dead letters, for the settler.
type deadWork struct {
	names  []store.DeadName
	change deadChange
	n      int
	err    error
	done   chan struct{}
}

var errShardMoved = errors.New("the shard is moving to another broker: try again")

// changeSome redrives, purges or counts dead letters of the shard, a bounded number of them.
func (o *owner) changeSome(ctx context.Context, f store.DeadFilter, c deadChange) (done deadDone, err error) {
	most := deadCall
	if c.count {
		most = countLimit
	}
	page := store.DeadPage{More: true}
	for page.More && done.changed < most {
		var names []store.DeadName
		names, page, err = o.st.FindDead(ctx, o.no, f, page.Next, min(deadBatch, most-done.changed))
		if err != nil {
			return done, err
		}
		n := len(names)
		if n > 0 && !c.count {
			n, err = o.askSettler(ctx, names, c)
		}
		done.changed += n
		if err != nil {
			return done, err
		}
		done.names = append(done.names, names...)
	}
	done.more = page.More
	return done, nil
}

// askSettler has dead letters changed by the settler, which alone touches rows.
func (o *owner) askSettler(ctx context.Context, names []store.DeadName, c deadChange) (int, error) {
	w := &deadWork{names: names, change: c, done: make(chan struct{})}
	select {
	case o.deadWork <- w:
	case <-o.settleEnded:
		return 0, errShardMoved
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	<-w.done
	return w.n, w.err
}

// changeDead is the settler's part. Its error ends the ownership.
func (o *owner) changeDead(ctx context.Context, w *deadWork) error {
	defer close(w.done)
	ctx = context.WithoutCancel(ctx)
	if w.change.purge {
		keys := make([]store.DeadKey, len(w.names))
		for i, n := range w.names {
			keys[i] = n.DeadKey
		}
		_, w.n, w.err = o.settles.Purge(ctx, o.no, o.epoch, keys)
	} else {
		rows := o.places(w.names, w.change.rate)
		if _, w.n, w.err = o.settles.Redrive(ctx, o.no, o.epoch, rows); w.err == nil {
			o.redriven(w.names, rows)
		}
	}
	o.deadKept.Store(false)
	if errors.Is(w.err, store.ErrFenced) || errors.Is(w.err, store.ErrUnknown) {
		return w.err
	}
	return nil
}

// places gives redriven deliveries the times when they are due: at the rate, so that they do not
// come back as one storm.
func (o *owner) places(names []store.DeadName, rate int) []store.Redrive {
	step := int64(o.st.Shards) * time.Second.Microseconds() / int64(rate)
	now := o.clock.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	rows := make([]store.Redrive, len(names))
	for i, n := range names {
		at := max(now, o.redriveAt[n.Group])
		o.redriveAt[n.Group] = at + step
		rows[i] = store.Redrive{DeadKey: n.DeadKey, NextAt: at}
	}
	return rows
}

// redriven lets the reader find rows that a redrive has made.
func (o *owner) redriven(names []store.DeadName, rows []store.Redrive) {
	for _, n := range names {
		o.metrics.redriven.WithLabelValues(n.Topic, o.groupName(n.Group)).Inc()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rows {
		o.hint(r.Group, r.NextAt)
	}
	wake(o.readWake)
}
