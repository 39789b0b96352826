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
	last time.Time // when the last reading that counts was asked for
}

func newClock(now time.Time) *clock {
	c := &clock{start: now}
	c.offset.Store(now.UnixMicro())
	return c
}

// set takes a reading of a store's clock that was asked for at an instant of this machine's and answered just now, unless
// one that was asked for later was taken. It was made at some time in between, so it moves the clock only as far as the
// clock contradicts it: one that took long, because of a lock, a busy pool or a broker that was frozen, says little and changes nothing.
func (c *clock) set(store int64, asked time.Time) {
	answered := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked.Before(c.last) {
		return
	}
	c.last = asked
	least, most := store-answered.Sub(c.start).Microseconds(), store-asked.Sub(c.start).Microseconds()
	c.offset.Store(min(max(c.offset.Load(), least), most))
}

// now is the time by the readings so far.
func (c *clock) now() int64 { return c.offset.Load() + time.Since(c.start).Microseconds() }
