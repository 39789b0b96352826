package shard

// A Look is what the ledger holds of one message.
type Look struct {
	// ExchangedAt is when it was exchanged first here, microseconds by the store's clock.
	ExchangedAt int64
	Targets     []TargetLook
}

// A TargetLook is the state of one delivery in the ledger.
type TargetLook struct {
	Group int32
	State TargetState
	// At is the end of the ack wait of a running delivery, and the next attempt of a failed one.
	At       int64
	Attempts int
	Err      string
	// Reason is that of a dead one.
	Reason string
}

// A TargetState is how far a delivery in the ledger has come.
type TargetState uint8

// The states of a delivery in the ledger; state says how one becomes another.
const (
	Open     = TargetState(open)
	Running  = TargetState(running)
	Failed   = TargetState(failed)
	Deferred = TargetState(deferred)
	Dead     = TargetState(dead)
	Acked    = TargetState(acked)
)

// Look tells what the ledger knows of a position, if it is in memory; otherwise whether it has left or
// was not read yet.
func (l *Ledger) Look(pos Pos) (look Look, place Place) {
	e := l.byPos[pos]
	switch {
	case e == nil && pos > l.tail:
		return look, Unpaged
	case e == nil:
		return look, Settled
	}
	look.ExchangedAt = e.exchangedAt
	for _, t := range e.targets {
		look.Targets = append(look.Targets, TargetLook{Group: t.group, State: TargetState(t.state), At: t.at, Attempts: t.attempts, Err: t.err, Reason: t.reason})
	}
	return look, InMemory
}
