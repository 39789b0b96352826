package notifyd

import (
	"math"
	"time"
)

const (
	// rampStart is the rate, messages a second, at which a group that has come back is given what piled up.
	rampStart = 500.0
	rampLeast = 10.0
	rampMost  = 1e6
	// rampPeriod is how often the rate is doubled or halved.
	rampPeriod = time.Second
	// rampBurst is for how long a rate may be saved up. It is taken whole: rows that are read one by one cost
	// the store a query each.
	rampBurst = 20 * time.Millisecond
	// rampShare of slow acknowledgements, or of failures, halves the rate.
	rampShare = 0.01
)

// A ramp paces what is drained to a group from pending rows: twice as much each second while
// nearly all is acknowledged well within its time, half as much otherwise. Times are
// microseconds of any one clock.
type ramp struct {
	rate   float64
	tokens float64
	filled int64 // when tokens were counted

	judged             int64 // when the rate was changed
	acks, slow, failed int   // since then
}

func newRamp(now int64) *ramp {
	return &ramp{rate: rampStart, tokens: rampStart * rampBurst.Seconds(), filled: now, judged: now}
}

// take lets up to most deliveries go and returns how many.
func (r *ramp) take(now int64, most int) int {
	r.judge(now)
	r.tokens = min(r.tokens+r.rate*float64(max(0, now-r.filled))/1e6, burst(r.rate))
	r.filled = now
	n := whole(r.tokens, r.rate, most)
	r.tokens -= float64(n)
	return n
}

// giveBack returns what was taken and not used.
func (r *ramp) giveBack(n int) { r.tokens += float64(n) }

// acked notes an acknowledgement; slow: it took more than a quarter of its time.
func (r *ramp) acked(slow bool) {
	r.acks++
	if slow {
		r.slow++
	}
}

// fail notes an attempt without one.
func (r *ramp) fail() { r.failed++ }

// judge changes the rate once a period, by what was heard; silence changes nothing.
func (r *ramp) judge(now int64) {
	if now < r.judged+rampPeriod.Microseconds() {
		return
	}
	switch ends := float64(r.acks + r.failed); {
	case ends == 0:
	case float64(r.slow) > rampShare*float64(r.acks) || float64(r.failed) >= rampShare*ends:
		r.rate = max(rampLeast, r.rate/2)
	default:
		r.rate = min(rampMost, r.rate*2)
	}
	r.judged, r.acks, r.slow, r.failed = now, 0, 0, 0
}

// burst is how many of a rate are taken at once, if so many are asked for.
func burst(rate float64) float64 { return max(1, rate*rampBurst.Seconds()) }

// whole is how many of the tokens of a rate are taken when most are asked for: as many as that, or a burst, or none yet.
func whole(tokens, rate float64, most int) int {
	if tokens < min(float64(most), math.Floor(burst(rate))) {
		return 0
	}
	return max(0, min(most, int(tokens)))
}
