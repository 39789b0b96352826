package kafkago

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"notifymirror/mirror/record"
)

// A Fetcher is what is needed of a *kafka.Reader.
type Fetcher interface {
	// FetchMessage returns the next record of one of the partitions.
	FetchMessage(ctx context.Context) (kafka.Message, error)
}

// Config is a Reader's configuration. Its zero value is the default.
type Config struct {
	// Remember is how many ids are kept to tell repeats in another generation, 40 bytes
	// each or so. Default 100,000.
	Remember int
	// SkipForeign passes over records that the mirror did not write. Default: they are an
	// error that wraps record.ErrNotMirrored.
	SkipForeign bool
}

// A Message is what the mirror copied, and its record as kafka-go has it, for
// CommitMessages.
type Message struct {
	record.Message
	Record kafka.Message
}

// A Reader hands out the mirror's messages, each once. It is for one goroutine at a time.
type Reader struct {
	from Fetcher
	cfg  Config
	last map[place]uint64 // the greatest seq seen
	ids  recent
}

// place is where a source numbers its messages in ascending order.
type place struct {
	topic     string
	partition int
	source    record.Source
}

// New reads from a *kafka.Reader of the mirror's topics (the prefix and notify's name).
// Who made it closes it.
func New(from Fetcher, cfg Config) *Reader {
	if cfg.Remember == 0 {
		cfg.Remember = 100_000
	}
	return &Reader{from: from, cfg: cfg, last: map[place]uint64{}, ids: recent{most: cfg.Remember, known: map[uuid.UUID]bool{}}}
}

// Fetch returns the next message. It commits nothing: with a consumer group, call the
// kafka.Reader's CommitMessages with Message.Record when the message is handled. An error
// is FetchMessage's, or wraps record.ErrNotMirrored and names the record; fetching again
// goes on behind it.
func (r *Reader) Fetch(ctx context.Context) (Message, error) {
	for {
		m, err := r.from.FetchMessage(ctx)
		if err != nil {
			return Message{}, err
		}
		if marker(m) {
			continue
		}
		msg, err := decode(m)
		switch {
		case errors.Is(err, record.ErrNotMirrored) && r.cfg.SkipForeign:
		case err != nil:
			return Message{}, fmt.Errorf("%s partition %d offset %d: %w", m.Topic, m.Partition, m.Offset, err)
		case !r.seen(m, msg):
			return Message{msg, m}, nil
		}
	}
}

// seen tells whether a message was handed out before, and remembers it.
func (r *Reader) seen(m kafka.Message, msg record.Message) bool {
	at := place{m.Topic, m.Partition, msg.Source}
	if last, ok := r.last[at]; ok && msg.Seq <= last {
		return true
	}
	r.last[at] = msg.Seq
	return r.ids.seen(msg.ID)
}

// marker tells whether a record is the end of a transaction: a key of two 16-bit numbers
// (version 0; 0 for abort, 1 for commit), a value of 16 and 32 bits, and no headers.
func marker(m kafka.Message) bool {
	return len(m.Headers) == 0 && len(m.Key) == 4 && bytes.HasPrefix(m.Key, []byte{0, 0, 0}) && m.Key[3] <= 1 && len(m.Value) == 6
}

func decode(m kafka.Message) (record.Message, error) {
	headers := make([]record.KafkaHeader, len(m.Headers))
	for i, h := range m.Headers {
		headers[i] = record.KafkaHeader{Key: []byte(h.Key), Value: h.Value}
	}
	return record.Decode(record.Record{Key: m.Key, Value: m.Value, Headers: headers, Timestamp: m.Time})
}

// recent are the ids of the last messages.
type recent struct {
	most  int
	ring  []uuid.UUID
	next  int // in the ring, once it is full
	known map[uuid.UUID]bool
}

// seen tells whether an id is among them, and puts it there.
func (r *recent) seen(id uuid.UUID) bool {
	if r.known[id] {
		return true
	}
	r.known[id] = true
	if len(r.ring) < r.most {
		r.ring = append(r.ring, id)
		return false
	}
	delete(r.known, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % r.most
	return false
}
