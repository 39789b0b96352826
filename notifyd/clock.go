package notifyd

import (
	"sync/atomic"
	"time"
)

// A clock tells microseconds since 1970 UTC by this machine's monotonic clock: a wall clock
// that jumps here changes nothing. That of a store is set by every reading of the store's own.
type clock struct {
	start  time.Time
	offset atomic.Int64 // microseconds at start
}

func newClock(now time.Time) *clock {
	c := &clock{start: now}
	c.offset.Store(now.UnixMicro())
	return c
}

// set takes a reading of a store's clock.
func (c *clock) set(store int64) { c.offset.Store(store - time.Since(c.start).Microseconds()) }

// now is the time by the last reading.
func (c *clock) now() int64 { return c.offset.Load() + time.Since(c.start).Microseconds() }
