package notifyd

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A road is a machine on which publishes take calm microseconds while less than room deliveries
// a second are drained, and longer the more it is beyond that.
type road struct {
	y       *yield
	now     int64
	calm    float64
	room    float64
	live    int     // publishes a second
	most    float64 // deliveries a second that can be drained at all
	drained float64 // in the second before
}

func newRoad(live int) *road {
	return &road{y: newYield(second), now: second, calm: 5000, room: 4000, live: live, most: 20_000}
}

// run lets time pass, with a pile to drain or without, and returns the rate of draining and the share of
// publishes that took a quarter longer than in calm.
func (r *road) run(seconds int, piled bool) (perSecond float64, late float64) {
	const parts = 100
	sum, slow, published := 0.0, 0, 0
	window := make([]float64, parts/10)
	for i := range seconds * parts {
		r.now += second / parts
		n := 0
		if piled {
			n = r.y.take(r.now, 1, int(r.most/parts))
		}
		window[i%len(window)] = float64(n)
		r.drained = 0
		for _, w := range window {
			r.drained += w * parts / float64(len(window))
		}
		sum += float64(n)
		took := r.calm * max(1, r.drained/r.room)
		for range r.live*(i%parts+1)/parts - r.live*(i%parts)/parts {
			r.y.published(r.now, int64(took))
			published++
			if took > 1.25*r.calm {
				slow++
			}
		}
	}
	return sum / float64(seconds), float64(slow) / max(1, float64(published))
}

func TestADrainTakesWhatTheLiveFlowLeavesAndNoMore(t *testing.T) {
	r := newRoad(500)
	r.run(10, false)
	r.run(10, true)
	rate, late := r.run(120, true)
	if rate < 0.6*r.room || rate > 1.3*r.room {
		t.Errorf("%.0f a second are drained, there is room for %.0f", rate, r.room)
	}
	if late > 0.01 {
		t.Errorf("%.1f %% of publishes are late", 100*late)
	}
}

func TestADrainWithNobodyPublishingIsAsFastAsItCanBe(t *testing.T) {
	r := newRoad(0)
	r.run(10, true)
	if rate, _ := r.run(10, true); rate < 0.95*r.most {
		t.Errorf("%.0f a second, it can be %.0f", rate, r.most)
	}
}

func TestADrainGivesWayToALiveFlowThatBegins(t *testing.T) {
	r := newRoad(500)
	r.run(5, false)
	r.live = 0
	r.run(20, true)
	r.live = 500
	r.run(5, true)
	if rate, late := r.run(60, true); late > 0.01 || rate > 1.3*r.room {
		t.Errorf("%.0f a second beside it, there is room for %.0f; %.1f %% of publishes are late", rate, r.room, 100*late)
	}
}

// What slows publishes down may have nothing to do with the drain. Then it goes on all the same.
func TestADrainOutlivesALiveFlowThatBecomesSlowByItself(t *testing.T) {
	r := newRoad(500)
	r.run(10, false)
	r.run(30, true)
	r.calm *= 4
	r.run(60, true)
	if rate, _ := r.run(60, true); rate < 0.5*r.room {
		t.Errorf("%.0f a second are drained, there is room for %.0f", rate, r.room)
	}
}

// A drain that began beside a slow flow does not go on to slow it when it has become quick.
func TestADrainSeesThatItsLiveFlowHasBecomeQuick(t *testing.T) {
	r := newRoad(500)
	r.calm *= 4
	r.run(10, false)
	r.run(30, true)
	r.calm /= 4
	r.run(90, true)
	if rate, late := r.run(60, true); late > 0.01 || rate < 0.5*r.room {
		t.Errorf("%.0f a second beside it, there is room for %.0f; %.1f %% of publishes are late", rate, r.room, 100*late)
	}
}

// A drain that was alone leaves deletes behind that slow down who publishes first. That is no measure of calm.
func TestADrainDoesNotTakeWhatItHasLeftBehindForCalm(t *testing.T) {
	r := newRoad(0)
	r.run(20, true)
	r.live = 500
	r.calm *= 10
	r.run(2, true)
	r.calm /= 10
	r.run(10, true)
	if rate, late := r.run(20, true); late > 0.02 || rate > 1.3*r.room {
		t.Errorf("%.0f a second beside it, there is room for %.0f; %.1f %% of publishes are late", rate, r.room, 100*late)
	}
}

// Each read costs the store a query, however few rows it is for.
func TestADrainIsReadInWholeBursts(t *testing.T) {
	now := second
	y, r := newYield(now), newRamp(now)
	for name, take := range map[string]func() int{
		"yield": func() int { return y.take(now, 1, 500) },
		"ramp":  func() int { return r.take(now, 500) },
	} {
		reads, rows := 0, 0
		for range 2000 {
			now += second / 2000
			if n := take(); n > 0 {
				reads, rows = reads+1, rows+n
			}
		}
		if most := int(time.Second/rampBurst) + 2; reads > most || rows < int(0.9*rampStart) {
			t.Errorf("%s: %d reads in a second for %d rows, want %d at most", name, reads, rows, most)
		}
	}
}

// A group that takes a delivery or two at a time, at every acknowledgement, leaves room for one with a large credit.
func TestADrainThatWantsLittleDoesNotKeepOthersOut(t *testing.T) {
	now := second
	y := newYield(now)
	little, much := 0, 0
	for i := range 10_000 {
		now += second / 1000
		little += y.take(now, 1, 2)
		if i%20 == 7 {
			much += y.take(now, 2, 500)
		}
		y.published(now, 1000)
	}
	if little < 100 || much < 100 {
		t.Errorf("%d deliveries of the one, %d of the other", little, much)
	}
}

// Whatever is published and drained, the rate keeps its bounds and bursts are short.
func TestAYieldKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := second
		y := newYield(now)
		for range 300 {
			now += rapid.Int64Range(0, second).Draw(t, "wait")
			n := y.take(now, rapid.Int32Range(1, 3).Draw(t, "group"), rapid.IntRange(0, 10_000).Draw(t, "most"))
			if float64(n) > max(1, y.rate*rampBurst.Seconds())+1 {
				t.Fatalf("%d at once at a rate of %f", n, y.rate)
			}
			y.giveBack(rapid.IntRange(0, n).Draw(t, "unused"))
			for range rapid.IntRange(0, 30).Draw(t, "published") {
				y.published(now, rapid.Int64Range(0, 10*second).Draw(t, "took"))
			}
			if y.rate < yieldLeast || y.rate > rampMost {
				t.Fatalf("rate %f", y.rate)
			}
		}
	})
}

func TestTheSlowestTwentiethIsFound(t *testing.T) {
	var d delays
	if d.slowest() != 0 {
		t.Error("none, and one is slow")
	}
	for i := range int64(1000) {
		d.add(i * 100)
	}
	if got := d.slowest(); got < 91_000 || got > 96_000 {
		t.Errorf("%.0f us, want 95,000 or up to a step less", got)
	}
	d.add(-1)
	d.add(1 << 60)
}
