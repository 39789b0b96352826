package notifyd

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// yieldStart is the rate, deliveries a second of all groups, at which draining begins, and yieldLeast the
	// one that it keeps beside any live flow: so little costs nobody anything, and it ends every drain.
	yieldStart = 1000.0
	yieldLeast = 250.0
	// yieldPeriod is how often the rate is judged, by yieldSamples publishes at least; of a flow that
	// is thinner, by what there was in yieldPatience.
	yieldPeriod   = 500 * time.Millisecond
	yieldSamples  = 10
	yieldPatience = 5 * time.Second
	// yieldShare is how much slower than in calm the slowest twentieth of publishes may become, beyond yieldSlack.
	yieldShare = 1.15
	yieldSlack = 200 // microseconds
	// yieldRenew is how often a long drain nearly stops, for two periods, to see again what calm is.
	yieldRenew = time.Minute
	// yieldQueue is how long a group that was refused is waited for.
	yieldQueue = 2 * pacePeriod
)

// A yield makes what is drained give way to what is published. The ramp of a group asks what the group can take; but
// a drain takes processors and disk from everybody, and publishing slows down long before the group does. So all
// drains of a broker share one rate. It grows while publishes take about as long as they do when nothing is drained,
// falls as far as they take longer, and is free when nothing is published.
// Times are microseconds of any one clock. It is safe for concurrent use.
type yield struct {
	mu     sync.Mutex
	rate   float64
	tokens float64
	filled int64    // when tokens were counted
	queue  []queued // groups that were refused

	judged  int64
	seen    delays  // of publishes since then
	drained float64 // deliveries since then
	busy    bool    // some were taken since then, and perhaps given back
	calm    float64 // what the slowest twentieth of publishes takes while hardly anything is drained; 0: not known
	before  float64 // what it took in the last period; 0: nothing was published
	learned int64   // when calm was seen last
	resume  float64 // the rate to go on with once calm was seen; 0: it is not being looked for
	still   bool    // hardly anything was drained in the last period, for the first time
	ceiling float64 // the rate at which the live flow suffered last; 0: it has not
}

func newYield(now int64) *yield {
	return &yield{rate: yieldStart, tokens: yieldStart * rampBurst.Seconds(), filled: now, judged: now}
}

// published notes how long a publish has taken, from its arrival to its COMMIT.
func (y *yield) published(now, took int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.judge(now)
	y.seen.add(took)
}

// take lets up to most deliveries of a group be drained and returns how many. Groups that were refused come first, in
// turn: one that wants little at a time, and often, would leave nothing for one that wants a burst.
func (y *yield) take(now int64, group int32, most int) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.judge(now)
	y.tokens = min(y.tokens+y.rate*float64(max(0, now-y.filled))/1e6, burst(y.rate))
	y.filled = now
	n := whole(y.tokens, y.rate, most)
	if most > 0 && !y.inTurn(now, group, n > 0) {
		return 0
	}
	y.tokens -= float64(n)
	y.drained += float64(n)
	y.busy = y.busy || n > 0
	return n
}

// inTurn reports whether a group may take what there is. One that may not, or for which there is not enough, queues up
// until it has got something, or has not asked for yieldQueue.
func (y *yield) inTurn(now int64, group int32, enough bool) bool {
	y.queue = slices.DeleteFunc(y.queue, func(q queued) bool { return q.group != group && q.asked+yieldQueue.Microseconds() < now })
	at := slices.IndexFunc(y.queue, func(q queued) bool { return q.group == group })
	switch {
	case enough && (at == 0 || len(y.queue) == 0):
		y.queue = y.queue[at+1:]
		return true
	case at < 0:
		y.queue = append(y.queue, queued{group, now})
	default:
		y.queue[at].asked = now
	}
	return false
}

// queued is a group that was refused, and when it asked last.
type queued struct {
	group int32
	asked int64
}

// giveBack returns what was taken and not used.
func (y *yield) giveBack(n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.tokens += float64(n)
	y.drained = max(0, y.drained-float64(n)) // it may be of the period before
}

// judge changes the rate once a period.
func (y *yield) judge(now int64) {
	span := now - y.judged
	if span < yieldPeriod.Microseconds() || y.seen.n > 0 && y.seen.n < yieldSamples && span < yieldPatience.Microseconds() {
		return
	}
	drained := y.drained * 1e6 / float64(span)
	slow := y.seen.slowest()
	y.calm = min(y.calm, max(slow, y.before)) // without the drain it is no slower than beside it
	y.before = slow
	switch {
	case y.seen.n == 0: // and what is published next may be another flow
		y.rate, y.calm, y.ceiling, y.resume = min(rampMost, y.rate*1.5), 0, 0, 0
	case !y.busy:
		y.learn(now, slow, 8)
		y.rate, y.ceiling, y.resume = yieldStart, 0, 0
	case drained <= 1.2*yieldLeast: // it is not the drain that makes them slow, or only what is left of it
		if y.still = !y.still; !y.still {
			y.learn(now, slow, 2)
			y.calm = min(y.calm, slow)
			y.rate, y.resume = max(1.25*y.rate, y.resume), 0
		}
	case y.resume > 0: // on the way down
	case y.calm == 0:
		y.rate, y.resume = yieldLeast, yieldStart
	case now > y.learned+yieldRenew.Microseconds():
		y.rate, y.resume = yieldLeast, y.rate
	case slow > y.limit():
		y.ceiling = min(y.rate, drained)
		y.rate = max(yieldLeast, y.ceiling*min(0.8, max(0.3, y.limit()/slow)))
	default:
		y.grow(drained)
	}
	if y.rate <= yieldLeast {
		y.ceiling = 0
	}
	y.still = y.still && drained <= 1.2*yieldLeast
	y.judged, y.drained, y.busy, y.seen = now, 0, false, delays{}
}

// grow raises the rate beside a live flow, not far above what is really drained. Where the flow suffered
// before, it creeps: going beyond that once a minute is how it notices that there is more room.
func (y *yield) grow(drained float64) {
	factor := 1.25
	if y.ceiling > 0 && y.rate > 0.8*y.ceiling {
		factor = 1.005
	}
	y.rate = max(y.rate, min(rampMost, factor*y.rate, 2*drained+yieldStart))
}

// limit is what the slowest twentieth of publishes may take.
func (y *yield) limit() float64 { return y.calm*yieldShare + yieldSlack }

// learn moves what is known of calm a part of the way to what was seen.
func (y *yield) learn(now int64, slow, part float64) {
	if y.calm == 0 {
		y.calm = slow
	}
	y.calm += (slow - y.calm) / part
	y.learned = now
}

// delaySteps of delays double them.
const delaySteps = 16

// delays counts delays by their size, in steps of 4 %, from 64 us to more than a minute.
type delays struct {
	n     int
	steps [20 * delaySteps]int
}

func (d *delays) add(us int64) {
	step := int(delaySteps * (math.Log2(float64(max(us, 1))) - 6))
	d.steps[min(max(step, 0), len(d.steps)-1)]++
	d.n++
}

// slowest is the delay that a twentieth is above, in microseconds; 0 without any.
func (d *delays) slowest() float64 {
	left := d.n / 20
	for step := len(d.steps) - 1; step >= 0 && d.n > 0; step-- {
		if left -= d.steps[step]; left < 0 {
			return math.Exp2(float64(step)/delaySteps + 6)
		}
	}
	return 0
}
