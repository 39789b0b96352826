package stream

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A Position is a place in each partition of a topic. The zero Position is none.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
	each   *eachOffset
}

// eachOffset is an offset for each of some partitions, and the position in the others.
type eachOffset struct {
	offsets map[int32]int64
	rest    Position
}

type positionKind uint8

const (
	unset positionKind = iota
	oldest
	newest
	atOffset
	atTime
	atOffsets
)

// Oldest is before the oldest record that Kafka still holds.
func Oldest() Position { return Position{kind: oldest} }

// Newest is behind the newest record at the moment of the start; for a reader of
// committed records, behind the newest one before the first open transaction.
func Newest() Position { return Position{kind: newest} }

// AtOffset is before the record with this offset, in each partition.
func AtOffset(offset int64) Position { return Position{kind: atOffset, offset: offset} }

// AtTime is before the first record of each partition that a store committed at this
// time or later; behind the newest record when there is none yet. Records of several
// stores are not ordered by time among each other: some behind this position may be older.
func AtTime(t time.Time) Position { return Position{kind: atTime, time: t} }

// AtOffsets is before the record with the partition's own offset, and rest in partitions
// that have none there. The map is not copied.
func AtOffsets(offsets map[int32]int64, rest Position) Position {
	return Position{kind: atOffsets, each: &eachOffset{offsets, rest}}
}

// of is the position in one partition.
func (p Position) of(partition int32) Position {
	if p.kind != atOffsets {
		return p
	}
	if offset, ok := p.each.offsets[partition]; ok {
		return AtOffset(offset)
	}
	return p.each.rest.of(partition)
}

// String is the position as ParsePosition reads it; empty for none and
// for AtOffsets.
func (p Position) String() string {
	switch p.kind {
	case oldest:
		return "oldest"
	case newest:
		return "newest"
	case atOffset:
		return strconv.FormatInt(p.offset, 10)
	case atTime:
		return p.time.Format(time.RFC3339Nano)
	}
	return ""
}

// Before tells whether a position is certainly earlier than another one: both are times, or
// both are offsets.
func (p Position) Before(other Position) bool {
	switch {
	case p.kind == atTime && other.kind == atTime:
		return p.time.Before(other.time)
	case p.kind == atOffset && other.kind == atOffset:
		return p.offset < other.offset
	}
	return false
}

// ParsePosition reads a position as people write it: oldest, newest, an offset, a time
// (2026-11-29T14:00:00Z, or 2026-11-29T14:00:00 and 2026-11-29 in now's zone), or a
// duration such as 15m, which is that long before now.
func ParsePosition(text string, now time.Time) (Position, error) {
	switch text {
	case "oldest":
		return Oldest(), nil
	case "newest":
		return Newest(), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return AtOffset(n), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return AtTime(now.Add(-d)), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return AtTime(t), nil
		}
	}
	return Position{}, fmt.Errorf("position %q: not oldest, newest, an offset, a time such as 2026-11-29T14:00:00Z, or a duration such as 15m", text)
}

// GonePolicy is what is done when records that were to be read next are not in the log
// any more: retention took them before they were read, or the topic was deleted and made
// again, or its log was cut off.
type GonePolicy uint8

const (
	// StopWhenGone stops the consumer with an error that wraps ErrOffsetOutOfRange and
	// names the offsets that are gone. Use another group then, set the group's offset with
	// Kafka's tools, or run once with OldestWhenGone.
	StopWhenGone GonePolicy = iota
	// OldestWhenGone goes on at the oldest record that there is. The offsets that are gone
	// are logged as a warning and counted in notify_stream_gone_total.
	OldestWhenGone
)

// bounds are the ends of a partition: the offset of its oldest record, behind the
// newest one that the reader may see, and behind the last one of all.
type bounds struct {
	oldest, newest, end int64
}

// check returns an error when the log does not hold an offset.
func (b bounds) check(offset int64) error {
	if offset < b.oldest {
		return fmt.Errorf("offset %d: %w: %d to %d are gone, the oldest is %d", offset, ErrOffsetOutOfRange, offset, b.oldest-1, b.oldest)
	}
	if offset > b.end {
		return fmt.Errorf("offset %d: %w: %d to %d are gone, the log ends at %d: it was cut off, or the topic made again",
			offset, ErrOffsetOutOfRange, b.end, offset-1, b.end)
	}
	return nil
}

// lost is where to go on when Kafka said of a partition, while it was read, that what
// comes next is gone.
func (c *Consumer) lost(log *kafkaLog, p *partition, gone error) (int64, error) {
	b, err := log.bounds(p.kafka, p.number)
	if err != nil {
		return 0, errors.Join(gone, err)
	}
	if named := b.check(p.progress.next); named != nil {
		gone = named
	}
	return c.within(p.kafka, p.number, p.progress.next, b, gone)
}

// within is where to begin: at the offset, or at the oldest when gone says that the
// offset is not in the log and the policy is to go on.
func (c *Consumer) within(kafka string, partition int32, offset int64, b bounds, gone error) (int64, error) {
	switch {
	case gone == nil:
		return offset, nil
	case c.cfg.Gone != OldestWhenGone:
		return 0, fmt.Errorf("%s partition %d: %w", kafka, partition, gone)
	}
	c.cfg.Logger.Warn("records are gone, going on at the oldest",
		"topic", kafka, "partition", partition, "wanted", offset, "oldest", b.oldest, "end", b.end, "err", gone)
	c.metrics.gone.WithLabelValues(c.cfg.Group, c.topics[kafka]).Inc()
	return b.oldest, nil
}
