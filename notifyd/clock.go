package notifyd

import (
	"sync/atomic"
	"time"
)

// A storeClock tells the store's time between readings of it, by this machine's monotonic
// clock: a wall clock that jumps here changes nothing.
type storeClock struct {
	start  time.Time
	offset atomic.Int64 // store's microseconds at start
}

func newStoreClock(now time.Time) *storeClock {
	c := &storeClock{start: now}
	c.offset.Store(now.UnixMicro())
	return c
}

// set takes a reading of the store's clock, microseconds since 1970 UTC.
func (c *storeClock) set(store int64) { c.offset.Store(store - time.Since(c.start).Microseconds()) }

// now is the store's time, microseconds since 1970 UTC.
func (c *storeClock) now() int64 { return c.offset.Load() + time.Since(c.start).Microseconds() }
