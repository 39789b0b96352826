package notifyd

import (
	"hash/fnv"
	"math/bits"
	"time"
)

// A retryPolicy says when a delivery that failed is tried again, and when it is not.
type retryPolicy struct {
	min, max time.Duration
	attempts int           // at most; a broker that crashes may forget the one that was running
	age      time.Duration // 0: any
}

// Reasons of dead letters.
const (
	deadRejected    = "rejected"
	deadMaxAttempts = "max_attempts"
	deadExpired     = "expired"
)

// Kinds of failures, as metrics have them, beside those of package webhook.
const (
	kindNack    = "nack"
	kindTimeout = "timeout"
	kindConnect = "connect"
	kindTLS     = "tls"
	kindBlocked = "blocked_address"
	kindBroken  = "broken"
)

// A failure is how an attempt ended without an acknowledgement.
type failure struct {
	err    string
	kind   string        // as metrics have it; empty: nack
	delay  time.Duration // instead of the backoff, when above 0
	reject bool          // never again
}

// next is when a delivery is due again after failed attempt number attempt, or why it is a
// dead letter. Its age counts from since. Times are microseconds.
func (p retryPolicy) next(now, since int64, attempt int, f failure, seed uint64) (at int64, dead string) {
	at = now + max(f.delay, 0).Microseconds()
	if f.delay <= 0 {
		at = now + p.after(attempt, seed).Microseconds()
	}
	switch {
	case f.reject:
		return 0, deadRejected
	case attempt >= p.attempts:
		return 0, deadMaxAttempts
	case p.expired(at, since):
		return 0, deadExpired
	}
	return at, ""
}

// expired reports whether a delivery whose age counts from since is too old at now.
func (p retryPolicy) expired(now, since int64) bool {
	return p.age > 0 && now >= since+p.age.Microseconds()
}

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
