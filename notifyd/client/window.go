package client

import (
	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// window holds the messages of a publisher that are not answered, in the order
// in which they were published:
//
//	answered | sent on this stream, no answer yet | not sent on this stream |
//	  gone   | entries[:sent]                     | entries[sent:]          |
//
// answered moves the first bar, next the second, rewind puts the second back to
// the first. A message that was answered "again" waits in failed, and nothing
// more is sent on that stream; rewind puts it back in front. So whatever happens
// to streams, each message is answered for good once, and every stream carries
// what is left in the first order.
type window struct {
	failed  []entry
	entries []entry
	sent    int
}

type entry struct {
	req    *notifyv1.PublishRequest
	weight int64
	done   func(Published, error)
}

func (w *window) push(e entry) { w.entries = append(w.entries, e) }

func (w *window) empty() bool { return len(w.entries)+len(w.failed) == 0 }

// unsent reports whether next would return something.
func (w *window) unsent() bool { return w.sent < len(w.entries) && len(w.failed) == 0 }

// spent reports whether this stream can do no more: a message failed on it, and
// all that it carried is answered.
func (w *window) spent() bool { return len(w.failed) > 0 && w.sent == 0 }

// next marks as sent, and returns, up to n messages and about size bytes of
// bodies, at least one when one is unsent.
func (w *window) next(n, size int) []*notifyv1.PublishRequest {
	var batch []*notifyv1.PublishRequest
	bytes := 0
	for w.unsent() && len(batch) < n {
		req := w.entries[w.sent].req
		bytes += len(req.GetMessage().GetBody()) + overhead
		if len(batch) > 0 && bytes > size {
			break
		}
		batch = append(batch, req)
		w.sent++
	}
	return batch
}

// answered removes the n oldest sent messages. False: fewer were sent.
func (w *window) answered(n int) ([]entry, bool) {
	if n > w.sent {
		return nil, false
	}
	out := w.entries[:n:n]
	w.entries = w.entries[n:]
	w.sent -= n
	return out, true
}

// again keeps an answered message for the next stream.
func (w *window) again(e entry) { w.failed = append(w.failed, e) }

// rewind begins a new stream: nothing is sent on it.
func (w *window) rewind() {
	if len(w.failed) > 0 {
		w.entries = append(w.failed, w.entries...)
		w.failed = nil
	}
	w.sent = 0
}

// drop removes all messages.
func (w *window) drop() []entry {
	w.rewind()
	out := w.entries
	w.entries = nil
	return out
}

// overhead is added to a body's length for what surrounds it.
const overhead = 128
