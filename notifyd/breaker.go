package notifyd

import "time"

const (
	// breakerMemory is over about how many outcomes failures are weighed.
	breakerMemory = 10
	// breakerShare of failures, kept up for breakerTime, opens the breaker: a group of which one
	// instance works is not down, and neither is one that loses an instance with all it had.
	breakerShare = 0.9
	breakerTime  = time.Second
	// breakerPause is how long it stays open before the first probe; each probe that fails
	// doubles it, up to breakerMaxPause.
	breakerPause    = time.Second
	breakerMaxPause = 30 * time.Second
)

// A breaker says whether a group is worth an attempt. That a group is down is a fact about the
// group and not about its messages: while it is open nothing is pushed and nothing read, and
// no attempt is counted. Then one probe decides. Times are microseconds of any one clock.
type breaker struct {
	failing  float64 // share of failures among the last outcomes
	badSince int64   // failing is above breakerShare since then; 0: it is not
	inARow   int     // failures since the last success

	open   bool
	opened int64 // when
	pause  time.Duration
	next   int64 // open: no probe before
	probes bool  // open: a probe is on its way, until probeEnd at most
	end    int64
}

// An admission is how many deliveries a breaker lets through.
type admission int

const (
	admitNone  admission = iota
	admitProbe           // one
	admitAll
)

// admits says what may be pushed now.
func (b *breaker) admits(now int64) admission {
	switch {
	case !b.open:
		return admitAll
	case now < b.next || b.probes && now < b.end:
		return admitNone
	}
	return admitProbe
}

// probe notes that the one delivery is on its way; when nothing was heard by end, another may go.
func (b *breaker) probe(end int64) { b.probes, b.end = true, end }

// unheard notes that nothing will be heard of the probe: another may go.
func (b *breaker) unheard() { b.probes = false }

// hope lets a probe go now: somebody has come.
func (b *breaker) hope(now int64) { b.next, b.probes = now, false }

// succeeded notes an outcome by which the group lives, and reports whether that closed the breaker.
func (b *breaker) succeeded() (closed bool) {
	b.failing -= b.failing / breakerMemory
	b.inARow = 0
	if b.failing <= breakerShare {
		b.badSince = 0
	}
	if !b.open {
		return false
	}
	*b = breaker{}
	return true
}

// failed notes an attempt without success, and reports whether that opened the breaker.
func (b *breaker) failed(now int64) (opened bool) {
	b.inARow++
	if b.open {
		if b.probes { // and not what was on its way when it opened
			b.pause = min(2*b.pause, breakerMaxPause)
			b.next, b.probes = now+b.pause.Microseconds(), false
		}
		return false
	}
	b.failing += (1 - b.failing) / breakerMemory
	switch {
	case b.failing <= breakerShare:
		return false
	case b.badSince == 0:
		b.badSince = now
		return false
	case now < b.badSince+breakerTime.Microseconds():
		return false
	}
	b.open, b.opened, b.pause = true, now, breakerPause
	b.next = now + breakerPause.Microseconds()
	return true
}
