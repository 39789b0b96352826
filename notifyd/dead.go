package notifyd

import (
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/shard"
)

const (
	// maxNackDelay is the longest pause that a consumer may ask for.
	maxNackDelay = 24 * time.Hour
	// maxNackReason is how much of a consumer's reason is kept, in bytes.
	maxNackReason = 1000
)

// nacked notes what a consumer said instead of an acknowledgement.
func (o *owner) nacked(f *flight, n *notifyv1.Nack) {
	x := failure{err: "nack", reject: n.GetReject(),
		delay: min(time.Duration(n.GetDelayMs())*time.Millisecond, maxNackDelay)}
	if x.reject {
		x.err = "rejected"
	}
	if s := n.GetReason(); s != "" {
		x.err += ": " + s[:min(len(s), maxNackReason)]
	}
	o.fail(f, x)
}

// bury makes a dead letter of a delivery. err is empty when nothing was sent.
func (o *owner) bury(f *flight, reason, err string) {
	o.metrics.deadLetters.WithLabelValues(f.msg.Topic, o.registry.load().GroupNames[f.group], reason).Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.retry || o.ledger.Dead(f.pos, f.group, reason, err) == shard.Settled {
		o.buryRow(shard.DeadRow{Pos: f.pos, Group: f.group, Reason: reason, Attempts: f.attempt, Err: err})
	}
	o.wakeSettler()
}

// buryRow makes a dead letter of a pending row, which is not read any more. The lock is held.
func (o *owner) buryRow(d shard.DeadRow) {
	o.deads = append(o.deads, d)
	o.busy[flightGroup{d.Pos, d.Group}] = true
}

// ageFrom is when the age of the delivery began, microseconds.
func (f *flight) ageFrom() int64 { return max(f.msg.BornAt, f.msg.DeliverAt, f.since) }

// outlives reports whether the message has expired at the time. What was redriven was wanted nevertheless.
func (f *flight) outlives(at int64) bool {
	return f.since == 0 && f.msg.ExpiresAt != 0 && f.msg.ExpiresAt <= at
}
