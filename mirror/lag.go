package mirror

import (
	"sync/atomic"
	"time"
)

// lag knows the latest instant for which everything committed before it is in Kafka. It
// moves to a transaction's commit time when the transaction is settled and nothing was read
// behind it, and to the time of a heartbeat that comes when everything read is settled. So it
// stands still, and the lag grows, while the stream is cut off.
type lag struct {
	reads    atomic.Uint64
	caughtUp atomic.Int64 // microseconds since 1970, 0: not known yet
}

// read counts a transaction read, and number is the count so far. One goroutine calls both.
func (l *lag) read()          { l.reads.Add(1) }
func (l *lag) number() uint64 { return l.reads.Load() }

// settled says that everything up to the transaction of that number is in Kafka. instant
// is its commit time, or the time of a heartbeat that came behind it.
func (l *lag) settled(number uint64, instant time.Time) {
	if number == l.reads.Load() {
		l.start(instant)
	}
}

// start says that everything committed before that instant is in Kafka.
func (l *lag) start(instant time.Time) {
	if us := instant.UnixMicro(); us > l.caughtUp.Load() {
		l.caughtUp.Store(us)
	}
}

// reset forgets what is known.
func (l *lag) reset() { l.caughtUp.Store(0) }

// behind is the lag; 0 before anything is known.
func (l *lag) behind(now time.Time) time.Duration {
	us := l.caughtUp.Load()
	if us == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMicro(us)))
}
