package notifyd

import (
	"slices"
	"testing"
	"time"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

const ackWaitOfTests = int64(5e6)

// flightsOf makes n first attempts.
func flightsOf(src source, n int) []*flight {
	fs := make([]*flight, n)
	for i := range fs {
		fs[i] = &flight{from: src, pos: shard.Pos(i + 1), attempt: 1, msg: &message.Message{}, ackWait: ackWaitOfTests}
	}
	return fs
}

// newTestGroup is a group with its source and the clock of both.
func newTestGroup() (*pushGroup, *ledgerless) {
	clock := newClock(time.Now())
	return newPushGroup(1, clock, newYield(clock.now())), &ledgerless{end: map[*flight]string{}}
}

func TestAnInstanceThatIsStuckLeavesTheDrainToTheOthers(t *testing.T) {
	g, src := newTestGroup()
	g.attach("stuck", "", 1000)
	g.offer(flightsOf(src, 1000))
	g.attach("live", "", 8)
	if n := g.reserve(100); n != 6 {
		t.Errorf("%d retries may go to an instance with credit for 8, want 6", n)
	}
	g.instances[0].credit = 0 // paused: its free credit is below nothing
	g.giveBack(6)
	if n := g.reserve(100); n != 6 {
		t.Errorf("%d retries beside an instance that is paused, want 6", n)
	}
}

func TestCreditIsReservedForOneSourceOnly(t *testing.T) {
	g, src := newTestGroup()
	g.attach("a", "", 8)
	if n := g.reserve(4); n != 4 {
		t.Fatalf("%d reserved, want 4", n)
	}
	if n := g.reserve(100); n != 2 {
		t.Errorf("%d reserved by another source, want the 2 that are left", n)
	}
	g.giveBack(2)
	fs := flightsOf(src, 4)
	for _, f := range fs {
		f.retry = true
	}
	g.offer(fs)
	if g.reserved != 0 {
		t.Errorf("%d stay reserved", g.reserved)
	}
	if n := g.reserve(100); n != 2 {
		t.Errorf("%d reserved beside 4 in flight, want 2", n)
	}
}

func TestADrainTakesNoMoreThanTheLiveFlowLeavesIt(t *testing.T) {
	g, _ := newTestGroup()
	g.attach("a", "", 1000)
	g.yield.rate, g.yield.tokens = yieldLeast, 1
	if n := g.reserve(100); n > 6 {
		t.Errorf("%d retries, want 1, and what a moment adds", n)
	}
	if g.ramp.tokens < 3 {
		t.Errorf("what the live flow took from the drain is missing in the group's own pace: %.1f", g.ramp.tokens)
	}
}

func TestAnInstanceThatAttachesGetsWhatWaits(t *testing.T) {
	g, src := newTestGroup()
	g.attach("busy", "", 1)
	g.offer(flightsOf(src, 2))
	if got := g.take(g.attach("new", "", 1), 10, 1000); len(got) != 1 {
		t.Errorf("the new instance gets %d deliveries, want the one that waits", len(got))
	}
}

func TestADeliveryThatEndsIsKeptNoLonger(t *testing.T) {
	g, src := newTestGroup()
	g.attach("a", "", 10)
	fs := flightsOf(src, 10)
	g.offer(fs)
	for _, f := range fs {
		g.finish(f.key(), 0)
	}
	if n := len(g.deadlines.byEnd); n != 0 {
		t.Errorf("%d deliveries that ended are kept until their deadlines", n)
	}
}

// openBreaker takes the group down and lets a probe go.
func openBreaker(g *pushGroup) {
	g.breaker.open, g.breaker.pause = true, breakerPause
	g.breaker.hope(g.clock.now())
}

func TestAProbeOfWhichNothingWillBeHeardMakesWayForAnother(t *testing.T) {
	for name, end := range map[string]func(*pushGroup, *ledgerless){
		"refused by its source": func(g *pushGroup, src *ledgerless) {
			src.refuse = true
			g.offer(flightsOf(src, 1))
		},
		"its shard is gone": func(g *pushGroup, src *ledgerless) {
			g.offer(flightsOf(src, 1))
			g.dropFrom(src)
		},
		"its stream ends before": func(g *pushGroup, src *ledgerless) {
			other := g.attach("other", "", 1)
			g.offer(flightsOf(src, 1))
			for _, f := range g.flights {
				if f.inst == other {
					g.detach(other)
					return
				}
			}
			g.detach(g.instances[0])
		},
		"never read by its stream": func(g *pushGroup, src *ledgerless) {
			g.offer(flightsOf(src, 1))
			for _, f := range g.flights {
				g.breaker.end += ackWaitOfTests
				f.deadline = g.clock.now()
			}
			g.expire(settleAfter.Microseconds())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, src := newTestGroup()
			g.attach("a", "", 1)
			openBreaker(g)
			end(g, src)
			if g.breaker.admits(g.clock.now()) != admitProbe {
				t.Error("no other probe may go")
			}
		})
	}
}

// A leaver is a source during whose sent an instance leaves.
type leaver struct {
	*ledgerless
	leave func()
}

func (l *leaver) sent(fs []*flight) []*flight {
	l.leave()
	return fs
}

func TestADeliveryOfAStreamThatEndsBeforeItWasSentWasNoAttempt(t *testing.T) {
	g, src := newTestGroup()
	inst := g.attach("a", "", 1)
	f := flightsOf(&leaver{src, func() { g.detach(inst) }}, 1)
	g.offer(f)
	if got := src.end[f[0]]; got != "deferred" {
		t.Errorf("the delivery ended as %q, want deferred", got)
	}
}

// Of a stream that does not read, the broker keeps places and no messages: those are in no account any more.
func TestAnInstanceThatDoesNotReadKeepsNoMessages(t *testing.T) {
	g, src := newTestGroup()
	inst := g.attach("stuck", "", 10)
	fs := flightsOf(src, 10)
	g.offer(fs)
	for _, f := range fs {
		f.deadline = 0
	}
	g.expire(settleAfter.Microseconds())
	for _, f := range inst.outbox {
		if f != nil {
			t.Fatal("a delivery that ended is kept")
		}
	}
	if n := inst.free(); n != 0 {
		t.Errorf("credit for %d more before it has read", n)
	}
	if got := g.take(inst, 100, 1<<20); len(got) != 0 || inst.free() != 10 {
		t.Errorf("%d deliveries that ended are sent, credit for %d then", len(got), inst.free())
	}
	g.offer(flightsOf(src, 4))
	whole := inst.outbox
	if g.take(inst, 100, 1<<20); whole[0] != nil || whole[3] != nil {
		t.Error("what was taken is kept by the outbox")
	}
}

// A client of gRPC takes 4 MiB at once unless it was told otherwise.
func TestAFrameIsNoLargerThanItsLimitUnlessOneMessageIs(t *testing.T) {
	g, src := newTestGroup()
	inst := g.attach("a", "", 10)
	fs := flightsOf(src, 5)
	for i, size := range []int{3, 6, 2, 12, 1} {
		fs[i].size = size
	}
	g.offer(fs)
	var got []int
	for range fs {
		got = append(got, len(g.take(inst, 10, 10)))
	}
	if want := []int{2, 1, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("frames of %v deliveries, want %v", got, want)
	}
}

// The flight of a delivery over HTTP is as long as its request, and a grace.
func TestARequestThatWouldOutliveItsDeliveryIsNotBegun(t *testing.T) {
	g, src := newTestGroup()
	inst := g.join(&instance{transport: transportWebhook, wait: 5e6, credit: 3})
	fs := flightsOf(src, 2)
	g.offer(fs)
	fs[0].deadline -= webhookStart.Microseconds() + 1e5
	if got := g.take(inst, 100, 1<<20); len(got) != 1 || got[0] != fs[1] || src.end[fs[0]] != "deferred" || inst.free() != 2 {
		t.Errorf("%d requests begin, the late one is %q, credit for %d more", len(got), src.end[fs[0]], inst.free())
	}
}
