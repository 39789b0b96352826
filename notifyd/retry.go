package notifyd

import (
	"hash/fnv"
	"math/bits"
	"time"
)

// A retryPolicy says when a delivery that failed is tried again.
type retryPolicy struct{ min, max time.Duration }

// after is the delay behind failed attempt number attempt (from 1): min doubled with each
// attempt, at most max, then lengthened by up to a quarter so that retries of one outage
// spread. The spread depends on seed alone: the same delivery always gets the same delay.
func (p retryPolicy) after(attempt int, seed uint64) time.Duration {
	d := p.min
	for range max(0, attempt-1) {
		if d >= p.max/2 {
			d = p.max
			break
		}
		d *= 2
	}
	d = min(d, p.max)
	hi, _ := bits.Mul64(seed, uint64(d/4)+1)
	return d + time.Duration(hi)
}

// retrySeed makes the seed of one attempt of one delivery.
func retrySeed(id [16]byte, group int32, attempt int) uint64 {
	h := fnv.New64a()
	h.Write(id[:])
	h.Write([]byte{byte(group), byte(group >> 8), byte(group >> 16), byte(attempt), byte(attempt >> 8)})
	x := h.Sum64() // spread the low bits up, where after looks
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}
