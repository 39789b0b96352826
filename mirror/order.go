package mirror

import (
	"fmt"
	"slices"
)

// A message's pos is epoch * 2^40 + n.
const posBits = 40

// order holds the invariant of a store's message tables: within a shard pos only grows,
// and within an epoch n grows by one. n begins at 1 in each epoch. A pos that breaks it
// means that something was lost, or came twice.
type order struct {
	last []int64
}

// anyPos is the last pos of a shard of which nothing is known: any may come next.
const anyPos = -1

// above is the last pos of a shard of which only that much is known: the next is above it,
// with any gap. above(0) is anyPos.
func above(pos int64) int64 { return ^pos }

// floor is the pos that the next one is above.
func floor(last int64) int64 {
	if last < 0 {
		return ^last
	}
	return last
}

// newOrder continues behind the last pos of each shard, 0 for a shard without messages.
func newOrder(last []int64) order { return order{last: slices.Clone(last)} }

// copied tells that a message came from the tables already, and comes from the binlog again.
func (o *order) copied(shard int, pos int64) bool {
	return shard < len(o.last) && o.last[shard] < 0 && pos <= floor(o.last[shard])
}

// take checks the next pos of a shard and makes it the last.
func (o *order) take(shard int, pos int64) error {
	if shard < 0 || shard >= len(o.last) {
		return fmt.Errorf("%w: shard %d of a store with %d shards", ErrOrder, shard, len(o.last))
	}
	last := o.last[shard]
	epoch, n := split(pos)
	lastEpoch, lastN := split(last)
	switch {
	case pos <= floor(last):
		return fmt.Errorf("%w: shard %d: pos %s comes after %s", ErrOrder, shard, posText(pos), posText(last))
	case last < 0:
	case epoch == lastEpoch && n != lastN+1, epoch != lastEpoch && n != 1:
		return fmt.Errorf("%w: shard %d: gap between pos %s and %s", ErrOrder, shard, posText(last), posText(pos))
	}
	o.last[shard] = pos
	return nil
}

// positions appends the last pos of each shard to dst.
func (o *order) positions(dst []int64) []int64 { return append(dst, o.last...) }

func split(pos int64) (epoch, n int64) { return pos >> posBits, pos & (1<<posBits - 1) }

// posText is a pos as people write it: epoch:n, with a + where a gap may follow.
func posText(pos int64) string {
	switch {
	case pos == anyPos:
		return "-"
	case pos < 0:
		return posText(floor(pos)) + "+"
	}
	epoch, n := split(pos)
	return fmt.Sprintf("%d:%d", epoch, n)
}
