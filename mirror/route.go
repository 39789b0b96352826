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

// A router makes records of messages. It is pure, and keeps only room to work in.
type router struct {
	headers []record.Header
}

// route gives a message its record and partition on a topic. The record shares memory
// with the message. The error wraps ErrRow, or ErrTooLarge when the topic would refuse it.
func (r *router) route(m message, s stamp, t *topic) (rec record.Record, partition int32, err error) {
	hs, err := record.AppendHeaders(r.headers[:0], string(m.headers))
	if err != nil {
		return record.Record{}, 0, fmt.Errorf("%w: message %s in topic %s: headers: %w", ErrRow, m.id, m.topic, err)
	}
	r.headers = hs[:0]
	rec = record.Encode(record.Message{
		ID: m.id, Topic: t.notify, Key: m.key, Headers: hs, Body: m.body,
		BornAt: time.UnixMicro(m.bornAt), CommitTime: s.commitTime, Source: s.source, Seq: s.seq,
	})
	return rec, record.Partition(rec.Key, t.Partitions), nil
}

// recordSize is the most that a record takes in a Kafka record batch of its own.
func recordSize(r record.Record) int { return record.BatchOverhead + record.Size(r) }
