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

// close drops what is queued and ends every pop.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.items = true, nil
	q.mu.Unlock()
	q.filled.Broadcast()
}
