package stage

import (
	"testing"
	"time"
)

// Eventually asks until the condition returns nil, and returns how long that took. It ends
// the test when limit has passed first; what and the last error are then told.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return time.Since(began)
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-t.Context().Done():
			t.Fatalf("%s: the test is over: %v", what, err)
		case <-tick.C:
		}
	}
}
