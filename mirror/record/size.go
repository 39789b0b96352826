package record

import (
	"encoding/binary"
	"math/bits"
)

// BatchOverhead is the size in bytes of an empty record batch (magic 2).
const BatchOverhead = 61

// Size is the largest number of bytes that the record takes in a batch of any client
// before compression:
//
//	length varint · attributes 1 · timestamp delta varint · offset delta varint
//	key length varint · key · value length varint · value
//	header count varint · { name length varint · name · value length varint · value }
//
// A topic takes a batch when BatchOverhead plus the sizes of its records is at most
// its max.message.bytes.
func Size(r Record) int {
	n := 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32
	n += sized(len(r.Key)) + sized(len(r.Value)) + varintLen(len(r.Headers))
	for _, h := range r.Headers {
		n += sized(len(h.Key)) + sized(len(h.Value))
	}
	return varintLen(n) + n
}

// sized is the size of n bytes with their length before them.
func sized(n int) int { return varintLen(n) + n }

// varintLen is the size of n as a zigzag varint; n is not negative.
func varintLen(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
