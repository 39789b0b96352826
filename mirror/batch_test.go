package mirror

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However records arrive, a batch never exceeds its limits or the smallest limit of its
// topics, unless it is a single record; and it only closes when the next does not fit.
func TestBatchNeverExceedsAnyLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := batch{limits: limits{
			records: rapid.IntRange(1, 10).Draw(t, "records"),
			bytes:   rapid.IntRange(1, 1000).Draw(t, "bytes"),
		}}
		n, size, lowest := 0, 0, 1<<30
		for range 50 {
			s := rapid.IntRange(1, 300).Draw(t, "size")
			limit := rapid.IntRange(s, 2000).Draw(t, "limit")
			fits := b.fits(1, s, limit)
			if want := n == 0 || n < b.records && size+s <= min(b.bytes, lowest, limit); fits != want {
				t.Fatalf("fits %v with %d records of %d bytes, lowest %d, next %d of %d", fits, n, size, lowest, s, limit)
			}
			if !fits {
				b.reset()
				n, size, lowest = 0, 0, 1<<30
			}
			b.add(1, s, limit, time.Time{})
			n, size, lowest = n+1, size+s, min(lowest, limit)
			if b.full() != (n >= b.records || size >= b.bytes) {
				t.Fatalf("full %v with %d records of %d bytes", b.full(), n, size)
			}
		}
	})
}

func TestBatchLingersFromItsFirstRecord(t *testing.T) {
	start := time.Unix(1000, 0)
	b := batch{limits: limits{records: 10, bytes: 1000, linger: 10 * time.Millisecond}}
	b.add(1, 1, 100, start)
	b.add(1, 1, 100, start.Add(8*time.Millisecond))
	for after, want := range map[time.Duration]time.Duration{0: 10, 4: 6, 10: 0, 30: 0} {
		if got := b.wait(start.Add(after * time.Millisecond)); got != want*time.Millisecond {
			t.Errorf("after %d ms it waits %s, not %d ms", after, got, want)
		}
	}
}

// A checkpoint is due every second while only foreign transactions pass, hourly when idle.
func TestWriterWaitsByWhatIsWaiting(t *testing.T) {
	start := time.Unix(1000, 0)
	w := writer{batch: batch{limits: limits{records: 10, bytes: 1000, linger: 10 * time.Millisecond}}, written: start,
		verified: start, lookEvery: 2 * time.Hour}
	if got := w.wait(start.Add(time.Minute)); got != 59*time.Minute {
		t.Errorf("idle: %s", got)
	}
	w.dirty = true
	if got := w.wait(start.Add(400 * time.Millisecond)); got != 600*time.Millisecond {
		t.Errorf("foreign: %s", got)
	}
	w.batch.add(1, 1, 100, start.Add(500*time.Millisecond))
	if got := w.wait(start.Add(503 * time.Millisecond)); got != 7*time.Millisecond {
		t.Errorf("messages: %s", got)
	}
}
