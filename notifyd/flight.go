package notifyd

import (
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

// A source is where a delivery comes from and where its outcome goes: a shard's owner.
type source interface {
	// sent tells that deliveries are on their way and have their ack waits from now on, and
	// drops those that must not be pushed from here any more.
	sent(ds []*flight) []*flight
	// deferred tells that nothing left for the group: it cannot take the deliveries now, or
	// the stream ended before.
	deferred(ds []*flight)
	// failed tells that a pushed delivery ended without an acknowledgement.
	failed(f *flight, x failure)
}

// A flight is one attempt of one delivery, from the group's queue to its outcome.
type flight struct {
	from     source
	pos      shard.Pos
	group    int32
	attempt  int
	retry    bool // of a pending row
	msg      *message.Message
	size     int // of msg
	token    []byte
	ackWait  int64 // of its subscription, microseconds
	since    int64 // of a retry, or a replay: when its age counts from, if later than born_at
	ackBy    int64 // by the store's clock, 0 before it was sent; its owner's lock guards it
	replayed bool  // of a replay
	held     int   // of a retry: bytes in the account of its owner, whose lock guards it
	over     bool  // its outcome has come; its owner's lock guards it

	queuedAt int64 // this and the rest by the group's clock, under its lock
	deadline int64
	place    int   // among the deadlines
	until    int64 // extended, behind the deadline by which it is ordered
	wait     int64 // from the push to the deadline, microseconds; set with inst

	inst   *instance
	done   bool
	queued bool // in the instance's outbox
	taken  bool // by the instance's stream, out of the outbox
	probe  bool // of a group that is down
}

type flightKey struct {
	from source
	pos  shard.Pos
}

func (f *flight) key() flightKey { return flightKey{f.from, f.pos} }

// An instance is one attached stream of a group, or its endpoint. Its fields belong to the
// group's lock; name, peer, transport and wait never change.
type instance struct {
	name, peer string
	transport  string // as metrics call it
	wait       int64  // for an acknowledgement, microseconds; 0: the subscription's
	credit     int
	inFlight   int
	stale      int           // ended before the stream could send them: their places are still in the outbox
	outbox     []*flight     // nil: one of those
	wake       chan struct{} // capacity 1: outbox has something
	gone       bool

	copies    []*flight // of broadcast messages, waiting for credit
	resting   []*flight // copies that are due again at queuedAt
	copyBytes int       // of all its copies, those in flight too
	sources   map[shardKey]*copies
}

func (i *instance) free() int {
	if i.gone {
		return 0
	}
	return i.credit - i.inFlight - i.stale
}

// forgetEnded lets go of what ended in the outbox: an instance that does not read would keep the messages.
// Their places stay, and take credit until it reads again. The group's lock is held.
func (i *instance) forgetEnded() {
	for n, f := range i.outbox {
		if f != nil && f.done {
			i.outbox[n] = nil
		}
	}
}

// Transports of deliveries.
const (
	transportStream  = "grpc"
	transportWebhook = "webhook"
)
