package record

import "slices"

// An Arena is memory that records are made in, so that many of them cost few allocations.
// The zero Arena is empty. What was made in it is valid until Reset.
type Arena struct {
	bytes   []byte
	headers []KafkaHeader
}

// A block of an arena has at least leastBlock bytes, and mostBlock at most unless one
// record needs more.
const leastBlock, mostBlock = 4 << 10, 4 << 20

// Encode is the function Encode with nothing allocated while there is room: the record
// shares no memory with the message.
func (a *Arena) Encode(m Message) Record {
	size, count := headerSize(m)
	a.reserve(size + len(m.Key) + len(m.Body))
	m.Key, m.Body = a.keep(m.Key), a.keep(m.Body)
	if cap(a.headers)-len(a.headers) < count {
		a.headers = slices.Grow(a.headers[len(a.headers):], 2*cap(a.headers)+count)
	}
	r := encode(m, a.bytes[len(a.bytes):len(a.bytes):cap(a.bytes)], a.headers[len(a.headers):len(a.headers):cap(a.headers)])
	a.bytes = a.bytes[:len(a.bytes)+size]
	a.headers = a.headers[:len(a.headers)+count]
	return r
}

// reserve makes room for n bytes. What lies in the block before stays where it is.
func (a *Arena) reserve(n int) {
	if cap(a.bytes)-len(a.bytes) < n {
		a.bytes = make([]byte, 0, max(n, min(mostBlock, max(leastBlock, 2*cap(a.bytes)))))
	}
}

// keep copies b, for which there is room.
func (a *Arena) keep(b []byte) []byte {
	n := len(a.bytes)
	a.bytes = append(a.bytes, b...)
	return a.bytes[n:len(a.bytes):len(a.bytes)]
}

// Reset makes the arena empty, and keeps memory for its next use, mostBlock bytes at most.
func (a *Arena) Reset() {
	if cap(a.bytes) > mostBlock {
		a.bytes = nil
	}
	clear(a.headers)
	a.bytes, a.headers = a.bytes[:0], a.headers[:0]
}
