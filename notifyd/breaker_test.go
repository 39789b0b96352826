package notifyd

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = int64(1_000_000)

func TestAGroupThatFailsThroughoutIsDownAndOneProbeTellsWhenItIsBack(t *testing.T) {
	b := &breaker{}
	now := second
	for i := 0; b.admits(now) == admitAll; i++ {
		b.failed(now)
		now += second / 10
		if i > 100 {
			t.Fatal("it does not open")
		}
	}
	opened := now
	for pause := time.Second; pause < time.Minute; pause *= 2 {
		for b.admits(now) == admitNone {
			now += second / 10
		}
		b.probe(now + 5*second)
		if b.admits(now) != admitNone {
			t.Fatal("a second probe beside the first")
		}
		b.failed(now)
	}
	if gone := now - opened; gone < 50*second || gone > 70*second {
		t.Errorf("six probes took %d s", gone/second)
	}
	for b.admits(now) == admitNone {
		now += second / 10
	}
	b.probe(now + 5*second)
	if now += 6 * second; b.admits(now) != admitProbe {
		t.Error("a probe that was lost is waited for without end")
	}
	if !b.succeeded() || b.admits(now) != admitAll {
		t.Error("a probe that succeeded does not close it")
	}
}

func TestAGroupOfWhichAPartWorksIsNeverDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &breaker{}
		share := rapid.IntRange(2, 6).Draw(t, "one in so many works")
		step := rapid.Int64Range(1, second).Draw(t, "between outcomes")
		for i := range 1000 {
			if i%share == 0 {
				b.succeeded()
			} else {
				b.failed(int64(i) * step)
			}
			if b.admits(int64(i)*step) != admitAll {
				t.Fatalf("open after %d outcomes", i)
			}
		}
	})
}

func TestAnInstanceThatDiesWithAllItHadDoesNotTakeTheGroupDown(t *testing.T) {
	b := &breaker{}
	for i := range int64(10_000) {
		b.succeeded()
		if i == 5000 {
			for range 1000 {
				b.failed(i * 1000)
			}
		}
		if b.admits(i*1000) != admitAll {
			t.Fatalf("open %d ms after", i-5000)
		}
	}
}

// Whatever the outcomes, an open breaker admits at most one delivery a second.
func TestADownGroupCostsAtMostOneAttemptASecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &breaker{}
		now := second
		for !b.open {
			b.failed(now)
			now += second / 4
		}
		last := int64(0)
		for range 200 {
			now += rapid.Int64Range(0, 2*second).Draw(t, "wait")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if b.admits(now) == admitProbe {
					if now-last < second {
						t.Fatalf("probes %d us apart", now-last)
					}
					last = now
					b.probe(now + rapid.Int64Range(second, 10*second).Draw(t, "ack wait"))
				}
			case 1:
				b.failed(now)
			}
			if b.admits(now) == admitAll {
				t.Fatal("closed without a success")
			}
		}
	})
}

// drained runs a ramp for some seconds against a group that acknowledges capacity messages a
// second well, and what is above it late.
func drained(r *ramp, now *int64, seconds int, capacity float64) (perSecond []int) {
	for range seconds {
		sum := 0
		for range 100 {
			*now += second / 100
			n := r.take(*now, 1_000_000)
			sum += n
			for i := range n {
				r.acked(float64(i) > capacity/100)
			}
		}
		perSecond = append(perSecond, sum)
	}
	return perSecond
}

func TestADrainDoublesEachSecondUpToWhatTheGroupCanTake(t *testing.T) {
	now := second
	r := newRamp(now)
	rates := drained(r, &now, 9, 1e9)
	if rates[0] > 1250 || rates[8] < 100_000 {
		t.Errorf("rates %v", rates)
	}
	rates = drained(r, &now, 60, 5000)
	total := 0
	for _, n := range rates[20:] {
		total += n
		if n > 12_000 {
			t.Errorf("%d in a second, the group takes 5000", n)
		}
	}
	if mean := total / 40; mean < 2500 {
		t.Errorf("%d a second, the group takes 5000", mean)
	}
}

func TestADrainIsPacedWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := second
		r := newRamp(now)
		for range 300 {
			now += rapid.Int64Range(0, 3*second).Draw(t, "wait")
			rate := r.rate
			n := r.take(now, rapid.IntRange(0, 10_000).Draw(t, "most"))
			if float64(n) > 2*rate*rampBurst.Seconds()+1 {
				t.Fatalf("%d at once at a rate of %f", n, rate)
			}
			for range min(n, 50) {
				switch rapid.IntRange(0, 3).Draw(t, "end") {
				case 0:
					r.fail()
				case 1:
					r.giveBack(1)
				default:
					r.acked(rapid.Bool().Draw(t, "slow"))
				}
			}
			if r.rate < rampLeast || r.rate > rampMost {
				t.Fatalf("rate %f", r.rate)
			}
		}
	})
}
