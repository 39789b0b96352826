package stream

import (
	"fmt"
	"strconv"
	"time"
)

// A Position is a place in each partition of a topic. The zero Position is none.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
}

type positionKind uint8

const (
	unset positionKind = iota
	oldest
	newest
	atOffset
	atTime
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

// String is the position as ParsePosition reads it; empty for none.
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

// bounds are the ends of a partition: the offset of its oldest record, behind the
// newest one that the reader may see, and behind the last one of all.
type bounds struct {
	oldest, newest, end int64
}

// check returns an error when the log does not hold an offset.
func (b bounds) check(offset int64) error {
	if offset < b.oldest {
		return fmt.Errorf("offset %d: %w: the oldest is %d", offset, ErrOffsetOutOfRange, b.oldest)
	}
	if offset > b.end {
		return fmt.Errorf("offset %d: %w: the log ends at %d", offset, ErrOffsetOutOfRange, b.end)
	}
	return nil
}
