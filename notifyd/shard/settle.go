package shard

import "notifymirror/notifyd/message"

// A PendingRow is a delivery that was not acknowledged in time.
type PendingRow struct {
	Pos   Pos
	Group int32
	// NextAt is when the next attempt is due; 0: at once, not sent yet.
	NextAt int64
	// Attempts counts those begun.
	Attempts int
	Err      string
}

// A DeadRow is a delivery that ended without an acknowledgement and is not tried again.
type DeadRow struct {
	Pos   Pos
	Group int32
	// Reason is one word that says why it ended.
	Reason string
	// Attempts counts those begun.
	Attempts int
	// Err is the error of the last attempt.
	Err string
}

// A Kept is a message that has pending rows, and how many.
type Kept struct {
	Pos  Pos
	Msg  *message.Message
	Rows int
}

// An Ack is a group's acknowledgement of a message that is settled.
type Ack struct {
	Pos   Pos
	Group int32
}

// A Plan is the content of one settling transaction. Until SettleDone or SettleFailed is
// called with it, its messages are nobody else's.
type Plan struct {
	// Version must equal the registry version in the epoch row; else roll back,
	// call SettleFailed, then SetRegistry with the newer one.
	Version int64
	// Delete are messages that every group has acknowledged.
	Delete []Pos
	// Undelay are messages whose (pos, Delayed) row goes in this transaction.
	Undelay []Pos
	// Pending and Dead are all rows of the messages that some group has not: they are
	// inserted together.
	Pending []PendingRow
	Dead    []DeadRow
	// Kept are the messages of Pending.
	Kept []Kept
	// Settled is the position up to which everything is settled once this commits.
	Settled Pos

	entries []*entry
}

// Ready is the number of messages that could be settled at now.
func (l *Ledger) Ready(now int64) int {
	l.advance(now)
	return len(l.complete)
}

// advance queues what is overdue.
func (l *Ledger) advance(now int64) {
	for _, f := range []*fifo{&l.queue, &l.due} {
		for e := f.next(); e != nil && e.exchangedAt+l.settleAfter <= now; e = f.next() {
			f.overdue++
			if !e.settling && !e.queued {
				e.queued = true
				l.complete = append(l.complete, e)
			}
		}
	}
}

// Plan takes up to most messages whose outcomes are all known, or that are overdue.
func (l *Ledger) Plan(now int64, most int) *Plan {
	l.advance(now)
	p := &Plan{Version: l.version}
	n := min(most, len(l.complete))
	p.entries = l.complete[:n:n]
	l.complete = l.complete[n:]
	for _, e := range p.entries {
		e.queued, e.settling = false, true
		l.planEntry(p, e)
	}
	p.Settled = l.settledAfter()
	return p
}

func (l *Ledger) planEntry(p *Plan, e *entry) {
	if e.delayed {
		p.Undelay = append(p.Undelay, e.pos)
	}
	left, rows := false, len(p.Pending)
	for _, t := range e.targets {
		switch t.state {
		case acked:
			continue
		case dead:
			p.Dead = append(p.Dead, deadRow(e.pos, t))
		default:
			p.Pending = append(p.Pending, pendingRow(e.pos, t))
		}
		left = true
	}
	if rows = len(p.Pending) - rows; rows > 0 {
		p.Kept = append(p.Kept, Kept{e.pos, e.msg, rows})
	}
	if !left {
		p.Delete = append(p.Delete, e.pos)
	}
}

func pendingRow(pos Pos, t target) PendingRow {
	r := PendingRow{Pos: pos, Group: t.group, Attempts: t.attempts, Err: t.err}
	switch t.state {
	case running:
		r.NextAt, r.Err = t.at, NoAck
	case failed:
		r.NextAt = t.at
	}
	return r
}

func deadRow(pos Pos, t target) DeadRow {
	return DeadRow{Pos: pos, Group: t.group, Reason: t.reason, Attempts: t.attempts, Err: t.err}
}

// settledAfter is the position below the first message that stays unsettled.
func (l *Ledger) settledAfter() Pos {
	for _, e := range l.queue.entries {
		if !e.gone && !e.settling {
			return e.pos - 1
		}
	}
	return l.tail
}

// A Late is what became of a plan's deliveries while its transaction ran: the rows just
// written are to be changed accordingly.
type Late struct {
	Acks  []Ack
	Fails []PendingRow
	Dead  []DeadRow
}

// SettleDone takes the plan's messages out.
func (l *Ledger) SettleDone(p *Plan) (late Late) {
	for _, r := range p.Pending {
		t := l.byPos[r.Pos].target(r.Group)
		switch {
		case t == nil:
		case t.state == acked:
			late.Acks = append(late.Acks, Ack{r.Pos, r.Group})
		case t.state == dead:
			late.Dead = append(late.Dead, deadRow(r.Pos, *t))
		case t.state == failed && t.at != r.NextAt, t.state == deferred && r.Attempts > 0:
			late.Fails = append(late.Fails, pendingRow(r.Pos, *t))
		}
	}
	for _, r := range p.Dead {
		if t := l.byPos[r.Pos].target(r.Group); t != nil && t.state == acked {
			late.Acks = append(late.Acks, Ack{r.Pos, r.Group})
		}
	}
	for _, e := range p.entries {
		e.gone = true
		delete(l.byPos, e.pos)
		l.bytes -= e.size
		e.msg, e.targets = nil, nil // gone entries may stay behind an unsettled one
	}
	l.queue.trim()
	l.due.trim()
	return late
}

// SettleFailed puts the plan's messages back after a rollback and returns what groups added
// meanwhile are owed.
func (l *Ledger) SettleFailed(p *Plan) []Delivery {
	var out []Delivery
	for _, e := range p.entries {
		e.settling = false
		if p.Version != l.version {
			out = l.reexchange(e, out)
		}
		if !e.queued {
			e.queued = true
			l.complete = append(l.complete, e)
		}
	}
	return out
}
