package notifyd

import (
	"sync"
	"sync/atomic"
	"time"
)

// A clock tells microseconds since 1970 UTC by this machine's monotonic clock: a wall clock
// that jumps here changes nothing. That of a store is set by every reading of the store's own.
type clock struct {
	start  time.Time
	offset atomic.Int64 // microseconds at start

	mu   sync.Mutex
	last time.Time // when the reading that counts was made
}

func newClock(now time.Time) *clock {
	c := &clock{start: now}
	c.offset.Store(now.UnixMicro())
	return c
}

// set takes a reading of a store's clock that was made at an instant of this machine's, unless a
// later one was taken. Where the instant is that before the transaction, the clock here is ahead
// by what the reading took to be made, and never behind by what the transaction took to commit.
func (c *clock) set(store int64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.Before(c.last) {
		return
	}
	c.last = at
	c.offset.Store(store - at.Sub(c.start).Microseconds())
}

// now is the time by the last reading.
func (c *clock) now() int64 { return c.offset.Load() + time.Since(c.start).Microseconds() }
