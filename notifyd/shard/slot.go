package shard

import "errors"

// ErrSlotOpen is returned when an insert begins before the outcome of the previous one is known.
var ErrSlotOpen = errors.New("insert slot is open: the outcome of the previous insert is not known")

// A Slot gives positions to the inserts of one epoch of one shard, one insert at a time.
// Its numbers have no gap: those of an insert that was rolled back are given again.
//
// An insert whose outcome cannot be learned leaves the slot open for good: the shard
// must be taken again, which begins a new epoch and a new slot.
type Slot struct {
	epoch int64
	used  int64
	open  int64
}

// NewSlot begins at n = 1 of the epoch.
func NewSlot(epoch int64) *Slot { return &Slot{epoch: epoch} }

// Begin opens an insert of rows messages (at least one) and returns the first position;
// the others follow it by one.
func (s *Slot) Begin(rows int) (Pos, error) {
	if s.open > 0 {
		return 0, ErrSlotOpen
	}
	s.open = int64(rows)
	return At(s.epoch, s.used+1), nil
}

// Commit closes the open insert: its positions are used.
func (s *Slot) Commit() {
	s.used += s.open
	s.open = 0
}

// Rollback closes the open insert: its positions will be given again.
func (s *Slot) Rollback() { s.open = 0 }

// Last is the last position committed in this epoch, or the epoch's start.
func (s *Slot) Last() Pos { return At(s.epoch, s.used) }
