package notifyd

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/store"
)

// Limits of one insert transaction.
const (
	maxBatchRows  = 500
	maxBatchBytes = 1 << 20
)

// A line is one ordered stream of publishes. Once one of them failed, those behind it that
// are not committed must fail too.
type line struct{ broken atomic.Bool }

// A publish is one message, half or decision on its way into the store.
type publish struct {
	item store.Item
	size int
	line *line // nil: on its own
	came time.Time

	unstored   bool // of a memory topic
	replicated bool // its answer needs a replica, as far as its topic is known; the inserter's

	release func() // gives memory and route back; may be nil

	done chan struct{} // closed when the rest is set
	id   uuid.UUID     // the message's own until then
	dup  bool
	err  *apiError
}

func newPublish(item store.Item, l *line) *publish {
	p := &publish{item: item, size: decisionSize, line: l, came: time.Now(), done: make(chan struct{})}
	if item.Msg != nil {
		p.size, p.id = item.Msg.Size(), item.Msg.ID
	}
	return p
}

// decisionSize is about the memory of a decision, in bytes.
const decisionSize = 512

func (p *publish) stored(id uuid.UUID, dup bool) {
	p.id, p.dup = id, dup
	p.finish()
}

// finish answers, and lets go of the message: an answer may wait long to be sent.
func (p *publish) finish() {
	p.item.Msg = nil
	if p.release != nil {
		p.release()
	}
	close(p.done)
}

func (p *publish) fail(err *apiError) {
	if p.line != nil && breaksLine(err) {
		p.line.broken.Store(true)
	}
	p.err = err
	p.finish()
}

// breaksLine reports whether what is behind a message with this error must fail: all but
// refusals for good do.
func breaksLine(err *apiError) bool {
	return err.detail.Retryable || err.detail.Reason == notifyv1.Reason_REASON_RESULT_UNKNOWN
}

// A batchQueue coalesces concurrent publishes without a timer: what arrives while one batch
// is being committed is the next batch.
type batchQueue struct {
	mu     sync.Mutex
	items  []*publish
	closed bool
	ready  chan struct{} // capacity 1
}

func newBatchQueue() *batchQueue { return &batchQueue{ready: make(chan struct{}, 1)} }

// put reports false when the queue is closed.
func (q *batchQueue) put(p *publish) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.items = append(q.items, p)
	wake(q.ready)
	return true
}

// take returns the next batch: up to 500 messages or 1 MiB, or one larger message. Messages
// of a broken line fail here. over is true when the queue is closed and empty.
func (q *batchQueue) take() (batch []*publish, over bool) {
	q.mu.Lock()
	n, bytes := 0, 0
	var behind []*publish
	for n < len(q.items) && len(batch) < maxBatchRows {
		p := q.items[n]
		if p.line != nil && p.line.broken.Load() {
			behind = append(behind, p)
			n++
			continue
		}
		if len(batch) > 0 && bytes+p.size > maxBatchBytes {
			break
		}
		bytes += p.size
		batch = append(batch, p)
		n++
	}
	clear(q.items[:n])
	q.items = q.items[n:]
	if len(q.items) > 0 {
		wake(q.ready)
	}
	over = q.closed && len(q.items) == 0 && len(batch) == 0
	q.mu.Unlock()
	for _, p := range behind {
		p.fail(behindFailure())
	}
	return batch, over
}

func (q *batchQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// close lets no more in; what is inside can still be taken.
func (q *batchQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	wake(q.ready)
}

// failAll closes the queue and fails what is inside.
func (q *batchQueue) failAll(err *apiError) {
	q.mu.Lock()
	items := q.items
	q.items, q.closed = nil, true
	q.mu.Unlock()
	for _, p := range items {
		p.fail(err)
	}
}

func behindFailure() *apiError {
	return newError(notifyv1.Reason_REASON_BEHIND_FAILURE, "an earlier message of this stream failed: send this one again behind it")
}

func shardMoved() *apiError {
	return newError(notifyv1.Reason_REASON_UNAVAILABLE, "the shard is moving to another owner: send the message again")
}

func resultUnknown(err error) *apiError {
	return newError(notifyv1.Reason_REASON_RESULT_UNKNOWN,
		"result unknown: the connection to the store was lost at COMMIT; send it again with the same idempotency key: %s", err)
}
