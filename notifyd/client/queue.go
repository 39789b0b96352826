package client

import (
	"sync"
	"time"
)

// queue holds deliveries between the streams and the handlers. Credit bounds it.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	items  []received
	closed bool
}

// received is a delivery with the stream that it came from.
type received struct {
	Delivery
	token []byte
	from  *attachment
	at    time.Time
	// extended is when its ack wait began last.
	extended time.Time
}

func newQueue() *queue {
	q := &queue{}
	q.filled.L = &q.mu
	return q
}

func (q *queue) push(items []received) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	if len(items) == 1 {
		q.filled.Signal()
	} else {
		q.filled.Broadcast()
	}
}

// pop waits for a delivery that may be begun at the time that it is taken. Those
// of a broken stream and those past their deadline are dropped: the broker
// delivers them again. False: closed.
func (q *queue) pop(now func() time.Time) (received, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.items) == 0 && !q.closed {
			q.filled.Wait()
		}
		if q.closed {
			return received{}, false
		}
		r := q.items[0]
		q.items[0] = received{}
		q.items = q.items[1:]
		t := now()
		r.from.waited(t.Sub(r.at))
		if !r.from.isBroken() && t.Before(r.Deadline) {
			return r, true
		}
	}
}

// extend begins the ack wait of queued deliveries anew when a third of it is over: no
// other instance should get what only waits here for its turn. Nothing is extended when no
// handler has begun or ended for a whole wait.
func (q *queue) extend(now, handled time.Time) {
	byStream := map[*attachment][][]byte{}
	q.mu.Lock()
	for i := range q.items {
		r := &q.items[i]
		wait := time.Duration(r.from.ackWait.Load())
		if now.Sub(r.extended) >= wait/3 && now.Before(r.Deadline) && now.Sub(handled) < wait {
			r.extended, r.Deadline = now, now.Add(wait)
			byStream[r.from] = append(byStream[r.from], r.token)
		}
	}
	q.mu.Unlock()
	for a, tokens := range byStream {
		a.out.extends(tokens...)
	}
}

// close drops what is queued and ends every pop.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.items = true, nil
	q.mu.Unlock()
	q.filled.Broadcast()
}
