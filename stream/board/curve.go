package board

import "time"

// maxPoints is the most points of a curve.
const maxPoints = 600

// A curve counts messages by the second of their time, or by steps of some seconds, over
// the last while. Messages may come in any order.
type curve struct {
	step  int64 // seconds
	slots []slot
}

// slot is one step that begins at a Unix time.
type slot struct{ at, count int64 }

func newCurve(span time.Duration) *curve {
	seconds := int64(span / time.Second)
	step := max(1, (seconds+maxPoints-1)/maxPoints)
	return &curve{step: step, slots: make([]slot, seconds/step+1)} // one more for the step under way
}

func (c *curve) add(t time.Time) {
	at := t.Unix() - t.Unix()%c.step
	if at < 0 {
		return // long past
	}
	s := &c.slots[at/c.step%int64(len(c.slots))]
	switch {
	case s.at == at:
		s.count++
	case s.at < at:
		*s = slot{at, 1}
	} // older than the curve reaches
}

// points are the counts of whole steps up to now, the oldest first, and the Unix time at
// which the first begins.
func (c *curve) points(now time.Time) (from int64, counts []int64) {
	n := int64(len(c.slots)) - 1
	end := now.Unix() - now.Unix()%c.step
	from = end - n*c.step
	counts = make([]int64, n)
	for i := range n {
		at := from + i*c.step
		if s := c.slots[at/c.step%int64(len(c.slots))]; s.at == at {
			counts[i] = s.count
		}
	}
	return from, counts
}

// rateSpan is over how many seconds the rate of the moment is an average.
const rateSpan = 5

// rate is messages per second over the last whole steps.
func (c *curve) rate(now time.Time) float64 {
	_, counts := c.points(now)
	n := max(1, min(int(rateSpan/c.step), len(counts)))
	var sum int64
	for _, count := range counts[len(counts)-n:] {
		sum += count
	}
	return float64(sum) / float64(int64(n)*c.step)
}
