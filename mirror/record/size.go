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
	n := fixedSize + sized(len(r.Key)) + sized(len(r.Value)) + varintLen(len(r.Headers))
	for _, h := range r.Headers {
		n += sized(len(h.Key)) + sized(len(h.Value))
	}
	return varintLen(n) + n
}

// fixedSize is what a record's attributes and deltas take at most.
const fixedSize = 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32

// SizeOf is Size of a message's record, which need not be made for it.
func SizeOf(m Message) int {
	key := len(m.Key)
	if key == 0 {
		key = idLen
	}
	n := fixedSize + sized(key) + sized(len(m.Body)) + varintLen(len(m.Headers)+ownHeaders)
	for _, h := range m.Headers {
		n += sized(len(h.Name)) + sized(len(h.Value))
	}
	n += sized(len(headerID)) + sized(idLen)
	n += sized(len(headerTopic)) + sized(len(m.Topic))
	n += sized(len(headerBornAt)) + sized(signedLen(m.BornAt.UnixMicro()))
	n += sized(len(headerSource)) + sized(len(m.Source.Store)+1+decimalLen(m.Source.Generation))
	n += sized(len(headerSeq)) + sized(decimalLen(m.Seq))
	return varintLen(n) + n
}

// signedLen and decimalLen are the lengths of numbers in decimal digits.
func signedLen(v int64) int {
	if v < 0 {
		return 1 + decimalLen(uint64(-v))
	}
	return decimalLen(uint64(v))
}

func decimalLen(v uint64) int {
	n := 1
	for ; v >= 10_000; v /= 10_000 {
		n += 4
	}
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

// sized is the size of n bytes with their length before them.
func sized(n int) int { return varintLen(n) + n }

// varintLen is the size of n as a zigzag varint; n is not negative.
func varintLen(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
