package notifyd

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

// pass lets the clock of a group move on.
func pass(g *pushGroup, d time.Duration) { g.clock.set(g.clock.now()+d.Microseconds(), time.Now()) }

// Whatever comes and goes: a retry is pushed only when no first attempt waits, retries leave a quarter of
// each instance's credit to first attempts, and nobody is given more than his credit.
func TestFirstAttemptsGoBeforeRetries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, src := newTestGroup()
		credit := rapid.IntRange(4, 40).Draw(t, "credit")
		inst := g.attach("a", "", credit)
		pos, assigned := shard.Pos(0), 0
		offer := func(n int, retry bool) {
			var fs []*flight
			for range n {
				pos++
				fs = append(fs, &flight{from: src, pos: pos, attempt: 1, retry: retry, msg: &message.Message{}, ackWait: ackWaitOfTests})
			}
			g.offer(fs)
		}
		var taken []*flight
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				offer(rapid.IntRange(1, credit).Draw(t, "first attempts"), false)
			case 1:
				before := inst.free() - len(g.waiting) - len(g.retries) - g.reserved
				n := g.reserve(rapid.IntRange(1, 500).Draw(t, "due"))
				if n > 0 && before-n < credit/4 {
					t.Fatalf("%d retries leave %d of a credit of %d", n, before-n, credit)
				}
				offer(n, true)
			case 2:
				taken = append(taken, g.take(inst, 100, 1<<20)...)
			case 3:
				for _, f := range taken[:min(len(taken), 3)] {
					if g.finish(f.key(), 0) != nil {
						g.heard(f, alive)
					}
				}
				taken = taken[min(len(taken), 3):]
				g.pump()
			case 4:
				pass(g, 50*time.Millisecond)
			}
			retries := 0
			for _, f := range g.flights {
				if f.retry {
					retries++
				}
			}
			if len(g.waiting) > 0 && retries > assigned {
				t.Fatal("a retry was pushed while a first attempt waits")
			}
			if assigned = retries; inst.inFlight > credit {
				t.Fatalf("%d in flight, the credit is %d", inst.inFlight, credit)
			}
		}
	})
}

// From closed through open and half-open to the ramp, in virtual time.
func TestAGroupThatWasDownComesBackThroughOneProbeAndThenTheRamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, src := newTestGroup()
		inst := g.attach("a", "", 10_000)
		// push makes attempts of n due rows, as far as the group lets them be read, and returns them.
		next := shard.Pos(0)
		push := func(n int) []*flight {
			var fs []*flight
			for range g.reserve(n) {
				next++
				fs = append(fs, &flight{from: src, pos: next, attempt: 1, retry: true, msg: &message.Message{}, ackWait: ackWaitOfTests})
			}
			g.offer(fs)
			return g.take(inst, 10_000, 1<<20)
		}
		end := func(fs []*flight, e ending) (last turn) {
			for _, f := range fs {
				g.finish(f.key(), 0)
				if x := g.heard(f, e); x != noTurn {
					last = x
				}
			}
			return last
		}
		for i := 0; !g.isDown(); i++ {
			end(push(20), lost)
			if pass(g, 100*time.Millisecond); i > 1000 {
				t.Fatal("a group that fails throughout is not down")
			}
		}
		failures := rapid.IntRange(0, 4).Draw(t, "probes that fail")
		probes, waited := 0, time.Duration(0)
		for g.isDown() {
			fs := push(500)
			if len(fs) > 1 {
				t.Fatalf("%d attempts of a group that is down", len(fs))
			}
			if len(fs) == 1 {
				if again := push(500); len(again) > 0 {
					t.Fatal("a second probe beside the first")
				}
				how := refused
				if probes++; probes > failures {
					how = alive
				}
				if back := end(fs, how) == cameBack; back != (how == alive) {
					t.Fatalf("probe %d: back %v", probes, back)
				}
			}
			step := time.Duration(rapid.IntRange(10, 900).Draw(t, "wait")) * time.Millisecond
			pass(g, step)
			if waited += step; waited > time.Duration(probes+2)*2*breakerMaxPause {
				t.Fatal("no probe comes")
			}
		}
		second, most := 0, 0
		for range 50 {
			pass(g, 20*time.Millisecond)
			fs := push(500)
			end(fs, alive)
			second, most = second+len(fs), max(most, len(fs))
		}
		if second > 2.2*rampStart || most > 2*rampStart*int(rampBurst)/int(time.Second)+1 || second < rampStart/2 {
			t.Fatalf("%d in the first second, %d at once; the ramp begins with %.0f a second", second, most, rampStart)
		}
	})
}
