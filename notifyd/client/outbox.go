package client

import (
	"sync"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// settlement is an ack or a nack on its way to a broker.
type settlement struct {
	token []byte
	nack  bool
	// Of a nack:
	reason  string
	delayMS uint32 // deliver again after this time; 0: after the group's backoff
	reject  bool   // never deliver again
}

// outbox holds what is to be sent on one Subscribe stream: settlements, and a
// changed credit. While one frame is written the next one gathers.
type outbox struct {
	ready chan struct{} // holds one token when the writer should look

	mu     sync.Mutex
	queue  []settlement
	extend [][]byte // tokens
	credit uint32
	ended  bool // no more will be added: write what is there and half-close
	broken bool
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// add queues settlements; false when the stream has broken.
func (o *outbox) add(s ...settlement) bool {
	o.mu.Lock()
	if o.broken {
		o.mu.Unlock()
		return false
	}
	o.queue = append(o.queue, s...)
	o.mu.Unlock()
	o.wake()
	return true
}

// extends queues tokens of deliveries that need more time; false when the stream has broken.
func (o *outbox) extends(tokens ...[]byte) bool {
	o.mu.Lock()
	if o.broken {
		o.mu.Unlock()
		return false
	}
	o.extend = append(o.extend, tokens...)
	o.mu.Unlock()
	o.wake()
	return true
}

func (o *outbox) setCredit(n uint32) {
	o.mu.Lock()
	o.credit = n
	o.mu.Unlock()
	o.wake()
}

// end lets the writer half-close the stream once all is written.
func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.wake()
}

// fail marks the stream broken and returns what was not written.
func (o *outbox) fail() []settlement {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.queue
	o.queue, o.broken = nil, true
	return left
}

// next takes up to n settlements as one frame, nil when there is nothing to
// send. last: nothing will follow.
func (o *outbox) next(n int) (frame *notifyv1.SubscribeRequest, taken []settlement, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = min(n, len(o.queue))
	taken, o.queue = o.queue[:n:n], o.queue[n:]
	if n == 0 && o.credit == 0 && len(o.extend) == 0 {
		return nil, nil, o.ended
	}
	frame = &notifyv1.SubscribeRequest{Credit: o.credit, Extends: o.extend}
	o.credit, o.extend = 0, nil
	for _, s := range taken {
		if s.nack {
			frame.Nacks = append(frame.Nacks, &notifyv1.Nack{Token: s.token, Reason: s.reason, DelayMs: s.delayMS, Reject: s.reject})
		} else {
			frame.Acks = append(frame.Acks, s.token)
		}
	}
	return frame, taken, false
}

func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
