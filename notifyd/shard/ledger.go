package shard

import (
	"notifymirror/notifyd/message"
)

// Delayed is the group id of a pending row that means "exchange at next_at". Real groups count from 1.
const Delayed int32 = 0

// An Exchange names the groups to which a message goes, by one version of the registry.
type Exchange func(*message.Message) []int32

// A Delivery is one message owed to one group.
type Delivery struct {
	Pos   Pos
	Group int32
	Msg   *message.Message
	// Size is Msg.Size(), which is not asked for twice.
	Size int
}

// A Stored is a message as it stands in the store.
type Stored struct {
	Pos Pos
	Msg *message.Message
	// Delayed: it was inserted with a (pos, Delayed) row, so it is settled until that is due.
	Delayed bool
}

// A Place says where the state of a delivery is to be found.
type Place uint8

const (
	// InMemory: the ledger has taken the outcome.
	InMemory Place = iota
	// Settled: the message has left the ledger; its pending row, if any, decides.
	Settled
	// Unpaged: the owner has not read the message yet; the outcome must be dropped,
	// and the message will be delivered again.
	Unpaged
)

// NoAck is the error of an attempt that was not acknowledged within its ack wait.
const NoAck = "no acknowledgement in time"

// The life of a target:
//
//	open ----> running ----> acked
//	  |         |     |
//	  v         |     v
//	deferred <--+   failed, dead <-- open
//
// An ack is taken in every state.
type state uint8

const (
	open     state = iota // not sent yet
	running               // sent; at is the end of the ack wait
	failed                // nacked or timed out; at is the next attempt
	deferred              // nothing left for the group
	dead                  // ended without an ack, for good
	acked
)

type target struct {
	group    int32
	state    state
	at       int64
	attempts int
	err      string
	reason   string // of dead
}

type entry struct {
	pos         Pos
	msg         *message.Message
	size        int // of msg
	exchangedAt int64
	delayed     bool
	settling    bool
	gone        bool
	queued      bool // in Ledger.complete
	targets     []target
}

func (e *entry) target(group int32) *target {
	for i := range e.targets {
		if e.targets[i].group == group {
			return &e.targets[i]
		}
	}
	return nil
}

// known reports whether every target has an outcome.
func (e *entry) known() bool {
	for i := range e.targets {
		if s := e.targets[i].state; s == open || s == running {
			return false
		}
	}
	return true
}

// A Ledger holds the unsettled messages of one shard in its owner's memory. Everything
// up to its tail is in the ledger or settled; what lies between the tail and the last
// committed position has to be paged from the store. Times are microseconds of the
// store's clock. It is not safe for concurrent use.
type Ledger struct {
	settleAfter int64
	version     int64
	exchange    Exchange

	byPos    map[Pos]*entry
	queue    fifo     // all but delayed ones, by pos
	due      fifo     // delayed ones
	complete []*entry // every outcome known or overdue, not settling yet
	tail     Pos
	last     Pos
	bytes    int
}

// NewLedger begins at the settled position that the store holds. last is a position that
// no committed message is behind. settleAfter is how long after its exchange a message is
// settled although outcomes are missing.
func NewLedger(settled, last Pos, settleAfter, version int64, exchange Exchange) *Ledger {
	return &Ledger{settleAfter: settleAfter, version: version, exchange: exchange,
		byPos: map[Pos]*entry{}, tail: settled, last: last}
}

// Committed takes messages that were inserted just now, in order, and returns what to
// deliver. When full, or while older ones still wait to be paged, it only notes that they exist.
func (l *Ledger) Committed(now int64, batch []Stored, full bool) []Delivery {
	if len(batch) == 0 {
		return nil
	}
	live := l.tail == l.last && !full
	l.last = batch[len(batch)-1].Pos
	if !live {
		return nil
	}
	l.tail = l.last
	return l.add(now, batch)
}

// Page returns the range (from, to] that has to be read from the store, and whether there is one.
func (l *Ledger) Page() (from, to Pos, need bool) { return l.tail, l.last, l.tail < l.last }

// Paged takes the unsettled messages of the range up to and including upTo, in order, and
// returns what to deliver. A message is unsettled when it has neither a pending nor a
// dead-letter row.
func (l *Ledger) Paged(now int64, unsettled []Stored, upTo Pos) []Delivery {
	l.tail = upTo
	return l.add(now, unsettled)
}

// Due takes a delayed message whose time has come. Its (pos, Delayed) row stays until it is settled.
func (l *Ledger) Due(now int64, m Stored) []Delivery {
	if l.byPos[m.Pos] != nil {
		return nil
	}
	e := l.newEntry(now, m)
	e.delayed = true
	l.due.push(e)
	return l.deliveries(e, nil)
}

func (l *Ledger) add(now int64, batch []Stored) []Delivery {
	var out []Delivery
	for _, m := range batch {
		if m.Delayed {
			continue
		}
		e := l.newEntry(now, m)
		l.queue.push(e)
		out = l.deliveries(e, out)
	}
	return out
}

func (l *Ledger) newEntry(now int64, m Stored) *entry {
	e := &entry{pos: m.Pos, msg: m.Msg, size: m.Msg.Size(), exchangedAt: now}
	for _, g := range l.exchange(m.Msg) {
		e.targets = append(e.targets, target{group: g})
	}
	l.byPos[m.Pos] = e
	l.bytes += e.size
	l.check(e)
	return e
}

func (l *Ledger) deliveries(e *entry, out []Delivery) []Delivery {
	for i := range e.targets {
		out = append(out, Delivery{e.pos, e.targets[i].group, e.msg, e.size})
	}
	return out
}

// A fifo holds entries in the order of their exchange. Those that are gone leave from the front.
type fifo struct {
	entries []*entry
	overdue int // entries[:overdue] have been found overdue
}

func (f *fifo) push(e *entry) { f.entries = append(f.entries, e) }

func (f *fifo) trim() {
	for len(f.entries) > 0 && f.entries[0].gone {
		f.entries[0] = nil
		f.entries = f.entries[1:]
		f.overdue = max(0, f.overdue-1)
	}
}

// next is the first entry not found overdue yet, or nil.
func (f *fifo) next() *entry {
	for f.overdue < len(f.entries) {
		if e := f.entries[f.overdue]; !e.gone {
			return e
		}
		f.overdue++
	}
	return nil
}

// check queues the entry for settling once every outcome is known.
func (l *Ledger) check(e *entry) {
	if !e.settling && !e.queued && !e.gone && e.known() {
		e.queued = true
		l.complete = append(l.complete, e)
	}
}

// Sent notes that a delivery is on its way until deadline. It reports false when the
// delivery must not be sent from here any more: it is being settled, or has been.
func (l *Ledger) Sent(pos Pos, group int32, deadline int64) bool {
	e := l.byPos[pos]
	if e == nil || e.settling {
		return false
	}
	t := e.target(group)
	if t == nil || t.state != open {
		return false
	}
	t.state, t.at, t.attempts = running, deadline, 1
	return true
}

// Defer notes that nothing left for the group: there was nobody to send to, or the stream
// ended before. That was no attempt.
func (l *Ledger) Defer(pos Pos, group int32) Place {
	return l.outcome(pos, group, func(t *target) {
		if t.state == open || t.state == running {
			t.state, t.at, t.attempts = deferred, 0, 0
		}
	})
}

// Ack notes that the group is done with the message.
func (l *Ledger) Ack(pos Pos, group int32) Place {
	return l.outcome(pos, group, func(t *target) { t.state = acked })
}

// Extend notes that a running delivery has until deadline now. When its message is being settled that is too
// late: its row has the deadline before.
func (l *Ledger) Extend(pos Pos, group int32, deadline int64) Place {
	if e := l.byPos[pos]; e != nil && e.settling {
		return Settled
	}
	return l.outcome(pos, group, func(t *target) {
		if t.state == running {
			t.at = deadline
		}
	})
}

// Fail notes that the running delivery ended without an ack; the next attempt is due at nextAt.
func (l *Ledger) Fail(pos Pos, group int32, nextAt int64, err string) Place {
	return l.outcome(pos, group, func(t *target) {
		if t.state == running {
			t.state, t.at, t.err = failed, nextAt, err
		}
	})
}

// Dead notes that the running delivery ended without an ack, or that it was never sent, and that it
// is not tried again.
func (l *Ledger) Dead(pos Pos, group int32, reason, err string) Place {
	return l.outcome(pos, group, func(t *target) {
		if t.state == open || t.state == running {
			t.state, t.reason, t.err = dead, reason, err
		}
	})
}

func (l *Ledger) outcome(pos Pos, group int32, set func(*target)) Place {
	e := l.byPos[pos]
	if e == nil {
		if pos > l.tail {
			return Unpaged
		}
		return Settled
	}
	if t := e.target(group); t != nil {
		set(t)
		l.check(e)
	}
	return InMemory
}

// SetRegistry exchanges by another version: what added groups are owed is returned, what
// dropped ones were owed is forgotten. Messages being settled follow when that fails.
func (l *Ledger) SetRegistry(version int64, exchange Exchange) []Delivery {
	if version == l.version {
		return nil
	}
	l.version, l.exchange = version, exchange
	var out []Delivery
	for _, f := range []*fifo{&l.queue, &l.due} {
		for _, e := range f.entries {
			if !e.gone && !e.settling {
				out = l.reexchange(e, out)
			}
		}
	}
	return out
}

func (l *Ledger) reexchange(e *entry, out []Delivery) []Delivery {
	groups := l.exchange(e.msg)
	kept := make([]target, 0, len(groups))
	for _, g := range groups {
		if t := e.target(g); t != nil {
			kept = append(kept, *t)
			continue
		}
		kept = append(kept, target{group: g})
		out = append(out, Delivery{e.pos, g, e.msg, e.size})
	}
	e.targets = kept
	l.check(e)
	return out
}

// Version is the registry version that the ledger exchanges by.
func (l *Ledger) Version() int64 { return l.version }

// Len is the number of messages in memory.
func (l *Ledger) Len() int { return len(l.byPos) }

// Bytes is about the memory they take.
func (l *Ledger) Bytes() int { return l.bytes }
