package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff grows a delay from min to max; zero tries so far gives about min.
type backoff struct {
	min, max time.Duration
	tries    int
}

// next returns the delay before the next try: a random part of at least half of
// min doubled once per try, so that many clients do not come back at one instant.
// r is random in [0, 1).
func (b *backoff) next(r float64) time.Duration {
	d := b.max
	if b.tries < 30 {
		d = min(b.max, b.min<<b.tries)
	}
	b.tries++
	return d/2 + time.Duration(r*float64(d/2))
}

func (b *backoff) reset() { b.tries = 0 }

// wait sleeps for the next delay, or until ctx ends or poke receives.
func (b *backoff) wait(ctx context.Context, poke <-chan struct{}) {
	t := time.NewTimer(b.next(rand.Float64()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-poke:
	case <-ctx.Done():
	}
}
