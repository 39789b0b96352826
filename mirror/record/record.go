package record

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The layout of a record. All text is UTF-8, all numbers are decimal digits.
//
//	key        the message's key, 1 to 255 bytes; of an unkeyed message the id's text
//	value      the body, exact bytes; an empty body is an empty value, never null
//	timestamp  when the store committed the message, by the store's clock, in ms
//	headers    in this order:
//	  <name>          the message's own headers by name ascending; none begins with
//	                  "notify-" in any mix of cases, but for these two, when they are set:
//	                  notify-deliver-at and notify-expires-at, when the message is pushed
//	                  first and when it is given up, microseconds since 1970 UTC
//	  notify-id       the id: 36 bytes, 8-4-4-4-12 lower-case hex digits
//	  notify-topic    the topic as the producer named it, without the mirror's prefix
//	  notify-born-at  when the store took the message, microseconds since 1970 UTC
//	  notify-source   store id "/" generation
//	  notify-seq      number of the message in that generation of that store, from 1
const (
	headerID     = "notify-id"
	headerTopic  = "notify-topic"
	headerBornAt = "notify-born-at"
	headerSource = "notify-source"
	headerSeq    = "notify-seq"

	// Times that notifyd writes among a message's own headers, when they are set.
	headerDeliverAt = "notify-deliver-at"
	headerExpiresAt = "notify-expires-at"

	ownHeaders = 5
	idLen      = 36
	// maxNumber is the length of the longest decimal int64 or uint64.
	maxNumber = 20
)

// A Record is a message as Kafka holds it. It is made of plain bytes, so that any
// client's record can be made from it, and it from any client's.
type Record struct {
	Key     []byte
	Value   []byte
	Headers []KafkaHeader
	// Timestamp in whole milliseconds.
	Timestamp time.Time
}

// A KafkaHeader is a header of a Record: a message's own, or one of ours.
type KafkaHeader struct {
	Key, Value []byte
}

// A Message is what a Record means.
type Message struct {
	ID    uuid.UUID
	Topic string
	// Key is empty for an unkeyed message.
	Key []byte
	// Headers are the message's own, by name ascending.
	Headers []Header
	Body    []byte
	// BornAt is when the store took the message, in whole microseconds.
	BornAt time.Time
	// CommitTime is when the store committed it, in whole milliseconds (MariaDB
	// knows whole seconds only).
	CommitTime time.Time
	// Source and Seq name the message for good within a generation of the mirror.
	Source Source
	Seq    uint64
}

// A Source is one generation of the mirror of one store. Within it, seq counts every
// message of the store from 1, without a gap.
type Source struct {
	// Store is the store's id.
	Store string
	// Generation is at least 1.
	Generation uint64
}

// String is the text of the notify-source header.
func (s Source) String() string { return string(s.appendTo(nil)) }

func (s Source) appendTo(b []byte) []byte {
	b = append(b, s.Store...)
	b = append(b, '/')
	return strconv.AppendUint(b, s.Generation, 10)
}

// ParseSource reads the text of a notify-source header.
func ParseSource(text string) (Source, error) {
	store, generation, ok := strings.Cut(text, "/")
	if !ok || store == "" {
		return Source{}, fmt.Errorf("source %q: not of the form <store id>/<generation>", text)
	}
	g, err := strconv.ParseUint(generation, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("source %q: generation: %w", text, err)
	}
	return Source{Store: store, Generation: g}, nil
}

// KeyOf is the record key of a message: its key, or the text of its id when it has none.
func KeyOf(key []byte, id uuid.UUID) []byte {
	if len(key) > 0 {
		return key
	}
	return appendID(make([]byte, 0, idLen), id)
}

// appendID appends the text of an id.
func appendID(b []byte, id uuid.UUID) []byte {
	b = append(hex.AppendEncode(b, id[:4]), '-')
	b = append(hex.AppendEncode(b, id[4:6]), '-')
	b = append(hex.AppendEncode(b, id[6:8]), '-')
	b = append(hex.AppendEncode(b, id[8:10]), '-')
	return hex.AppendEncode(b, id[10:])
}

// Encode makes the record of a message. The record's key and value share memory with
// the message's; the headers do not. The message's own headers must have come from
// DecodeHeaders or have passed EncodeHeaders. It allocates twice.
func Encode(m Message) Record {
	size, count := headerSize(m)
	return encode(m, make([]byte, 0, size), make([]KafkaHeader, 0, count))
}

// headerSize is the most that a record's headers take, and their number.
func headerSize(m Message) (size, count int) {
	size = len(headerID+headerTopic+headerBornAt+headerSource+headerSeq) +
		idLen + len(m.Topic) + len(m.Source.Store) + 1 + 3*maxNumber
	for _, h := range m.Headers {
		size += len(h.Name) + len(h.Value)
	}
	return size, len(m.Headers) + ownHeaders
}

// encode is Encode with the headers in buf and out, which are empty and large enough.
func encode(m Message, buf []byte, out []KafkaHeader) Record {
	w := headerWriter{buf: buf, out: out}
	for _, h := range m.Headers {
		w.buf = append(w.name(h.Name), h.Value...)
		w.end()
	}
	w.buf = appendID(w.name(headerID), m.ID)
	id := w.end()
	w.buf = append(w.name(headerTopic), m.Topic...)
	w.end()
	w.buf = strconv.AppendInt(w.name(headerBornAt), m.BornAt.UnixMicro(), 10)
	w.end()
	w.buf = m.Source.appendTo(w.name(headerSource))
	w.end()
	w.buf = strconv.AppendUint(w.name(headerSeq), m.Seq, 10)
	w.end()

	r := Record{Key: m.Key, Value: m.Body, Headers: w.out, Timestamp: m.CommitTime.Truncate(time.Millisecond)}
	if len(r.Key) == 0 {
		r.Key = id
	}
	if r.Value == nil {
		r.Value = []byte{}
	}
	return r
}

// headerWriter cuts header names and values from one buffer that is large enough.
type headerWriter struct {
	buf        []byte
	out        []KafkaHeader
	start, mid int
}

// name begins a header; its value is appended to the result, which goes back to buf.
func (w *headerWriter) name(s string) []byte {
	w.start = len(w.buf)
	b := append(w.buf, s...)
	w.mid = len(b)
	return b
}

// end finishes the header begun last, and returns its value.
func (w *headerWriter) end() []byte {
	n := len(w.buf)
	value := w.buf[w.mid:n:n]
	w.out = append(w.out, KafkaHeader{Key: w.buf[w.start:w.mid:w.mid], Value: value})
	return value
}
