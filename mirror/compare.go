package mirror

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"time"

	"github.com/google/uuid"
)

// This file compares what was committed with what is in the mirror. It is pure.
//
// Both sides are counted by the minute of the commit: how many ids, and their sum, which does
// not depend on their order. Only minutes that differ are looked into id by id.

// A tally is how many ids there are, and their sum modulo 2^128.
type tally struct {
	n         uint64
	high, low uint64
}

func (t *tally) add(id uuid.UUID) {
	var carry uint64
	t.n++
	t.low, carry = bits.Add64(t.low, binary.BigEndian.Uint64(id[8:]), 0)
	t.high, _ = bits.Add64(t.high, binary.BigEndian.Uint64(id[:8]), carry)
}

func (t *tally) plus(o tally) {
	var carry uint64
	t.n += o.n
	t.low, carry = bits.Add64(t.low, o.low, 0)
	t.high, _ = bits.Add64(t.high, o.high, carry)
}

// hash is the sum as 32 hex digits.
func (t tally) hash() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], t.high)
	binary.BigEndian.PutUint64(b[8:], t.low)
	return hex.EncodeToString(b[:])
}

// A minuteTally is what both sides have of one minute; the mirror's by generation, since each
// may have copied it again.
type minuteTally struct {
	committed tally
	mirrored  map[uint64]tally
}

// all is what the mirror has, of all generations.
func (m *minuteTally) all() (t tally) {
	for _, g := range m.mirrored {
		t.plus(g)
	}
	return t
}

// equal tells whether the mirror has what was committed: in all its generations together, or
// in each of them.
func (m *minuteTally) equal() bool {
	if m.all() == m.committed {
		return true
	}
	for _, g := range m.mirrored {
		if g != m.committed {
			return false
		}
	}
	return len(m.mirrored) > 0
}

// A tallies counts by minutes since 1970 UTC.
type tallies map[int64]*minuteTally

func (t tallies) of(minute int64) *minuteTally {
	m := t[minute]
	if m == nil {
		m = &minuteTally{mirrored: map[uint64]tally{}}
		t[minute] = m
	}
	return m
}

func (t tallies) commit(s sighting) { t.of(s.minute).committed.add(s.id) }

func (t tallies) mirror(s sighting) {
	m := t.of(s.minute)
	g := m.mirrored[s.generation]
	g.add(s.id)
	m.mirrored[s.generation] = g
}

// before forgets the minutes before one.
func (t tallies) before(minute int64) {
	for m := range t {
		if m < minute {
			delete(t, m)
		}
	}
}

// differing are the minutes that are not equal, in order.
func (t tallies) differing() (minutes []int64) {
	for minute, m := range t {
		if !m.equal() {
			minutes = append(minutes, minute)
		}
	}
	slices.Sort(minutes)
	return minutes
}

func minuteOf(t time.Time) int64    { return t.Unix() / 60 }
func timeOf(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// A sighting is a message in the binlog, or a record of one in the mirror.
type sighting struct {
	minute int64
	id     uuid.UUID
	place  int32 // number of its topic, or of its topic's partition
	// of a record
	generation, seq uint64
	offset          int64
}

// compare orders by minute, id, generation and place in the log.
func (s sighting) compare(o sighting) int {
	return cmp.Or(s.compareMessage(o), cmp.Compare(s.generation, o.generation),
		cmp.Compare(s.place, o.place), cmp.Compare(s.offset, o.offset))
}

// compareMessage is 0 for sightings of the same message in the same minute.
func (s sighting) compareMessage(o sighting) int {
	return cmp.Or(cmp.Compare(s.minute, o.minute), bytes.Compare(s.id[:], o.id[:]))
}

// findings are the messages that one side has and the other has not.
type findings struct {
	missing  []sighting // in the binlog
	repeated []sighting // in the mirror: every record of a generation but the first
	foreign  []sighting // in the mirror
}

// look compares what both sides have of the same minutes; it sorts the lists. A message that
// several generations have is not repeated.
func look(committed, mirrored []sighting) (f findings) {
	slices.SortFunc(committed, sighting.compare)
	slices.SortFunc(mirrored, sighting.compare)
	for len(mirrored) > 0 {
		m := mirrored[0]
		for len(committed) > 0 && committed[0].compareMessage(m) < 0 {
			f.missing, committed = append(f.missing, committed[0]), committed[1:]
		}
		n := 1
		for n < len(mirrored) && mirrored[n].compareMessage(m) == 0 {
			n++
		}
		known := len(committed) > 0 && committed[0].compareMessage(m) == 0
		if known {
			committed = committed[1:]
		}
		for i, s := range mirrored[:n] {
			switch {
			case !known:
				f.foreign = append(f.foreign, s)
			case i > 0 && s.generation == mirrored[i-1].generation:
				f.repeated = append(f.repeated, s)
			}
		}
		mirrored = mirrored[n:]
	}
	f.missing = append(f.missing, committed...)
	return f
}

// unmoved takes out what is both missing and foreign: a record with another time than that of
// its commit, as a backfill makes them. It returns how many there were.
func (f *findings) unmoved() (moved int) {
	elsewhere := make(map[uuid.UUID]bool, len(f.foreign))
	for _, s := range f.foreign {
		elsewhere[s.id] = true
	}
	found := map[uuid.UUID]bool{}
	f.missing = slices.DeleteFunc(f.missing, func(s sighting) bool {
		if elsewhere[s.id] {
			found[s.id] = true
		}
		return elsewhere[s.id]
	})
	f.foreign = slices.DeleteFunc(f.foreign, func(s sighting) bool { return found[s.id] })
	return len(found)
}

func (f *findings) add(o findings) {
	f.missing, f.repeated, f.foreign = append(f.missing, o.missing...), append(f.repeated, o.repeated...), append(f.foreign, o.foreign...)
}

func (f *findings) len() int { return len(f.missing) + len(f.repeated) + len(f.foreign) }
