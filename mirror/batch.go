package mirror

import "time"

// limits bound a batch: what goes into one Kafka transaction.
type limits struct {
	records int
	bytes   int
	linger  time.Duration
}

// batch decides when a Kafka transaction is large enough. It holds no record.
//
// A record batch of Kafka may not exceed its topic's limit, and a client is free to put
// all of a transaction's records for one partition into one. So the whole batch stays
// within the smallest limit of the topics in it. A record that is alone may fill its
// topic's limit, also above limits.bytes.
type batch struct {
	limits
	n      int
	size   int
	lowest int
	since  time.Time
}

// fits tells whether n more records of size bytes in all, for topics of which lowest is
// the smallest limit, may join.
func (b *batch) fits(n, size, lowest int) bool {
	if b.n == 0 {
		return true
	}
	most := min(b.bytes, lowest)
	if b.lowest > 0 {
		most = min(most, b.lowest)
	}
	return b.n+n <= b.records && b.size+size <= most
}

// add takes records in; now counts when they are the first.
func (b *batch) add(n, size, lowest int, now time.Time) {
	if n == 0 {
		return
	}
	if b.n == 0 {
		b.since = now
	}
	if b.lowest == 0 || lowest < b.lowest {
		b.lowest = lowest
	}
	b.n += n
	b.size += size
}

// full tells whether the batch should close although more is waiting.
func (b *batch) full() bool { return b.n >= b.records || b.size >= b.bytes }

// wait is how long a batch that is not full may stay open when nothing is waiting.
func (b *batch) wait(now time.Time) time.Duration {
	return max(0, b.since.Add(b.linger).Sub(now))
}

// reset empties the batch.
func (b *batch) reset() { b.n, b.size, b.lowest = 0, 0, 0 }
