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
// the first. So whatever happens to streams, each message is answered once and
// every stream carries them in the first order.
type window struct {
	entries []entry
	sent    int
}

type entry struct {
	req    *notifyv1.PublishRequest
	weight int64
	done   func(Published, error)
}

func (w *window) push(e entry) { w.entries = append(w.entries, e) }

func (w *window) empty() bool { return len(w.entries) == 0 }

func (w *window) unsent() bool { return w.sent < len(w.entries) }

// next marks as sent, and returns, up to n messages and about size bytes of
// bodies, at least one when one is unsent.
func (w *window) next(n, size int) []*notifyv1.PublishRequest {
	var batch []*notifyv1.PublishRequest
	bytes := 0
	for w.sent < len(w.entries) && len(batch) < n {
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

// rewind forgets what was sent: the stream broke.
func (w *window) rewind() { w.sent = 0 }

// drop removes all messages.
func (w *window) drop() []entry {
	out := w.entries
	w.entries, w.sent = nil, 0
	return out
}

// overhead is added to a body's length for what surrounds it.
const overhead = 128
