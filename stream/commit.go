package stream

import "notifymirror/mirror/record"

// progress is how far a partition is handled. Offsets grow but have gaps (markers,
// aborted records), and a client that reconnects may give some again: what is to be
// committed is never past a record that is not handled, and never goes back.
//
//	take(5) ─> handle ─> done(5) ─> commit 6
type progress struct {
	next int64
}

// take tells whether the record at an offset is still to be handled.
func (p *progress) take(offset int64) bool { return offset >= p.next }

// done says that the record at an offset and all before it are handled, and returns
// the offset to commit: that of the next record to handle.
func (p *progress) done(offset int64) int64 {
	p.next = max(p.next, offset+1)
	return p.next
}

// repeats finds the records that a reader of uncommitted records sees again: each
// source numbers its messages, and a partition has them in ascending order.
type repeats struct {
	last map[record.Source]uint64
}

// seen tells whether a message of the source with this or a later number was there before.
func (r *repeats) seen(source record.Source, seq uint64) bool {
	if last, ok := r.last[source]; ok && seq <= last {
		return true
	}
	if r.last == nil {
		r.last = map[record.Source]uint64{}
	}
	r.last[source] = seq
	return false
}
