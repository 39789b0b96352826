package mirror

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"notifymirror/mirror/record"
)

// message is a row of a message table. Its bytes belong to the binlog's reader: they are
// valid until its next row.
type message struct {
	shard    int
	pos      int64
	id       uuid.UUID
	topic    []byte
	key      []byte
	headers  []byte
	body     []byte
	mirrored bool
	bornAt   int64 // microseconds since 1970 UTC
}

// stamp is what a message's place in the binlog adds to it.
type stamp struct {
	source     record.Source
	seq        uint64
	commitTime time.Time
}

// A router says what the records of messages hold. It is pure, and keeps only room to work in.
type router struct {
	headers []record.Header
}

// route is what the record of a message on a topic says, and the most that it takes in a
// Kafka record batch of its own. It shares memory with the message and with the router. The
// error wraps ErrRow.
func (r *router) route(m message, s stamp, t *topic) (routed record.Message, size int, err error) {
	hs, err := record.AppendHeaders(r.headers[:0], string(m.headers))
	if err != nil {
		return record.Message{}, 0, fmt.Errorf("%w: message %s in topic %s: headers: %w", ErrRow, m.id, m.topic, err)
	}
	r.headers = hs[:0]
	routed = record.Message{
		ID: m.id, Topic: t.notify, Key: m.key, Headers: hs, Body: m.body,
		BornAt: time.UnixMicro(m.bornAt), CommitTime: s.commitTime, Source: s.source, Seq: s.seq,
	}
	return routed, record.BatchOverhead + record.SizeOf(routed), nil
}
