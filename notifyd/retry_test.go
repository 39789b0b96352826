package notifyd

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A delivery that failed has one of three ends: due again later, at the time asked for or
// after the backoff; or dead, for the first reason that holds.
func TestAFailedDeliveryIsDueAgainOrDeadForItsReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := retryPolicy{min: time.Second, max: time.Minute, attempts: rapid.IntRange(1, 9).Draw(t, "attempts"),
			age: time.Duration(rapid.IntRange(0, 200).Draw(t, "age")) * time.Second}
		f := failure{err: "x", delay: time.Duration(rapid.IntRange(0, 100).Draw(t, "delay")) * time.Second, reject: rapid.IntRange(0, 4).Draw(t, "reject") == 0}
		attempt := rapid.IntRange(1, 10).Draw(t, "attempt")
		const now = 1_000_000_000
		since := now - rapid.Int64Range(0, 200_000_000).Draw(t, "old")
		at, dead := p.next(now, since, attempt, f, 7)
		pause := p.after(attempt, 7)
		if f.delay > 0 {
			pause = f.delay
		}
		due := now + pause.Microseconds()
		want := ""
		switch {
		case f.reject:
			want = deadRejected
		case attempt >= p.attempts:
			want = deadMaxAttempts
		case p.age > 0 && due >= since+p.age.Microseconds():
			want = deadExpired
		}
		if dead != want || dead == "" && at != due {
			t.Fatalf("due at %d, dead %q; want %d, %q", at, dead, due, want)
		}
	})
}
