package record

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Decode is what a record means. The message's key and body share memory with the
// record's; its headers do not. The error wraps ErrNotMirrored.
//
// It reads what Encode writes, and is lenient where clients differ: headers come in
// any order, and a null value is an empty body.
func Decode(r Record) (Message, error) { return new(Decoder).Decode(r) }

// A Decoder is Decode for many records of one partition: topic and source of a message share
// memory with those of the one before, when they are the same. It is for one goroutine.
type Decoder struct {
	topic, text string // of the last record; text is that of its source
	source      Source
}

// Decode is Decode.
func (d *Decoder) Decode(r Record) (Message, error) {
	m := Message{Key: r.Key, Body: r.Value, CommitTime: r.Timestamp}
	var seen uint8
	for _, h := range r.Headers {
		bit, err := d.own(&m, h)
		if err != nil {
			return Message{}, fmt.Errorf("%w: header %s: %w", ErrNotMirrored, h.Key, err)
		}
		if seen&bit != 0 {
			return Message{}, fmt.Errorf("%w: header %s comes twice", ErrNotMirrored, h.Key)
		}
		if bit == 0 && !Reserved(h.Key) {
			m.Headers = append(m.Headers, Header{string(h.Key), string(h.Value)})
		}
		seen |= bit
	}
	for i, name := range [ownHeaders]string{headerID, headerTopic, headerBornAt, headerSource, headerSeq} {
		if seen&(1<<i) == 0 {
			return Message{}, fmt.Errorf("%w: header %s is missing", ErrNotMirrored, name)
		}
	}
	slices.SortStableFunc(m.Headers, byName)
	if err := check(m.Headers); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrNotMirrored, err)
	}
	if len(m.Key) == idLen && bytes.Equal(m.Key, KeyOf(nil, m.ID)) {
		m.Key = nil
	}
	return m, nil
}

// own takes over the value of one of our headers, and tells which by its bit in
// the order of the layout; 0 for a header of a later version.
func (d *Decoder) own(m *Message, h KafkaHeader) (bit uint8, err error) {
	value := h.Value
	switch string(h.Key) {
	case headerID:
		if len(value) != idLen {
			return 0, fmt.Errorf("%d bytes instead of %d", len(value), idLen)
		}
		m.ID, err = uuid.ParseBytes(value)
		return 1 << 0, err
	case headerTopic:
		if string(value) != d.topic {
			d.topic = string(value)
		}
		m.Topic = d.topic
		return 1 << 1, nil
	case headerBornAt:
		us, err := strconv.ParseInt(string(value), 10, 64)
		m.BornAt = time.UnixMicro(us)
		return 1 << 2, err
	case headerSource:
		if len(value) == 0 || string(value) != d.text { // an empty one is an error
			text := string(value)
			source, err := ParseSource(text)
			if err != nil {
				return 1 << 3, err
			}
			d.source, d.text = source, text
		}
		m.Source = d.source
		return 1 << 3, nil
	case headerSeq:
		m.Seq, err = strconv.ParseUint(string(value), 10, 64)
		return 1 << 4, err
	}
	return 0, nil
}
