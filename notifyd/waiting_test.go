package notifyd

import (
	"context"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

func TestCheckDelaysDoubleUpToTheLongest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := checkDelay{first: rapid.Int64Range(1, 1e9).Draw(t, "first")}
		d.max = rapid.Int64Range(d.first, 1e12).Draw(t, "max")
		want := d.first
		for n := range 60 {
			if got := d.asked(n); got != want {
				t.Fatalf("behind check %d: %d, want %d", n, got, want)
			}
			want = min(2*want, d.max)
		}
	})
}

func TestAHalfThatCannotBeAskedAboutIsTriedSeldomerTheOlderItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := checkDelay{first: rapid.Int64Range(1e3, 1e9).Draw(t, "first"), max: 1e15}
		tries, at := 0, d.first
		const end = int64(1e13)
		for ; at < end; tries++ {
			delay := d.notAsked(at)
			if delay < d.first || delay > d.max || delay < at {
				t.Fatalf("%d old: tried again after %d", at, delay)
			}
			at += delay
		}
		if most := bits.Len64(uint64(end / d.first)); tries > most {
			t.Fatalf("%d tries, want at most %d", tries, most)
		}
	})
}

func TestChecksGiveWayToABusyStoreUpToALimit(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: checkPeriod, 9 * time.Millisecond: checkPeriod, 20 * time.Millisecond: time.Second, time.Hour: checkPatience,
	} {
		if got := checkPause(took); got != want {
			t.Errorf("behind a look of %s: %s, want %s", took, got, want)
		}
	}
}

func TestNeverMoreCallbacksRunThanThereAreSlots(t *testing.T) {
	c := newCallbacks(nil)
	var running, most, ran atomic.Int64
	var owners sync.WaitGroup
	for range 32 {
		owners.Go(func() {
			for range 50 {
				n := c.take(5)
				c.give(n - n/2) // fewer were due
				for range n / 2 {
					c.start(t.Context(), func(context.Context) {
						now := running.Add(1)
						for {
							old := most.Load()
							if now <= old || most.CompareAndSwap(old, now) {
								break
							}
						}
						ran.Add(1)
						running.Add(-1)
					})
				}
			}
		})
	}
	owners.Wait()
	c.all.Wait()
	if most.Load() > callbackWorkers || ran.Load() == 0 {
		t.Errorf("%d at once of %d", most.Load(), ran.Load())
	}
	if n := c.take(1000); n != callbackWorkers {
		t.Errorf("%d slots are free at the end, want %d", n, callbackWorkers)
	}
}

func TestWhyAHalfWaitsIsSaidInWords(t *testing.T) {
	half := func(change func(*store.Half)) store.Half {
		h := store.Half{Msg: &message.Message{}, Group: "shop", Checks: 3, NextCheckAt: 2e6}
		change(&h)
		return h
	}
	for want, h := range map[string]store.Half{
		`producer group "shop" was asked 3 of 15 times and gave no decision; the next check is at 1970-01-01T00:00:02Z`: half(func(*store.Half) {}),
		`parked: producer group "shop" was asked 15 of 15 times`:                                                        half(func(h *store.Half) { h.Checks, h.Parked = 15, true }),
		`nobody has decided it, and producer group "shop" was not asked yet; the next check is due`:                     half(func(h *store.Half) { h.Checks, h.NextCheckAt = 0, 0 }),
		`http://x was asked 3 of 15 times and gave no decision; the last check: status 500; the next`:                   half(func(h *store.Half) { h.CheckURL, h.LastError = "http://x", "status 500" }),
	} {
		if got := whyUndecided(h, 15, 1, 1e6); !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if got := whyUndecided(half(func(*store.Half) {}), 15, 0, 1e6); !strings.Contains(got, "no instance of it is attached to this broker") {
		t.Error(got)
	}
}

// The age is never more than the first row's own, and too small by a period at most.
func TestTheAgeOfTheFirstRowIsKnownToAPeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s seqAge
		born := map[int64]int64{} // seq: when it came
		var rows []int64
		next := int64(1)
		for now := int64(10); now < 3000; now += 10 {
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				born[next] = now - rapid.Int64Range(0, 9).Draw(t, "before")
				rows = append(rows, next)
				next++
			}
			for gone := rapid.IntRange(0, 4).Draw(t, "go"); gone > 0 && len(rows) > 0; gone-- {
				rows = append(rows[:0:0], append(rows[:gone%len(rows)], rows[gone%len(rows)+1:]...)...)
			}
			if len(rows) == 0 {
				if since := s.see(now, 0, 0); since != 0 {
					t.Fatalf("no row, since %d", since)
				}
				continue
			}
			since := s.see(now, rows[0], rows[len(rows)-1])
			if since < born[rows[0]] {
				t.Fatalf("row %d came at %d, known since %d", rows[0], born[rows[0]], since)
			}
		}
	})
	var s seqAge
	for now := int64(1); now <= 100*maxSeqSeen; now++ {
		s.see(now, 1, now)
		if len(s.seen) > maxSeqSeen {
			t.Fatalf("%d sightings are kept", len(s.seen))
		}
	}
	if since := s.see(1e9, 1, 1e9); since != 1 {
		t.Errorf("the first row is there since 1, known since %d", since)
	}
}
