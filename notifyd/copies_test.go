package notifyd

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// Whatever an instance does, it has no more under way than its credit, its account of copies
// is right, and each copy that it does not miss is acknowledged once.
func TestCopiesStayWithinCreditAndMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := newTestSide()
		v := side.viewer.view(&store.Registry{Version: 1, GroupNames: map[int32]string{1: "g"},
			Subscriptions: []store.Subscription{{GroupID: 1, Topic: "t", Settings: store.SubscriptionSettings{Broadcast: true, AckWait: 1e6, RetryMin: 1, RetryMax: 1, MaxAttempts: 3}}}}, nil)
		side.registry.take(side.registry.load(), v)
		o := newOwner(side, 0, store.Taken{Epoch: 1, Version: 1}, v, nil, nil)
		g := o.hub.group(1)
		credit := rapid.IntRange(1, 3).Draw(t, "credit")
		inst := g.attach("i", "p", credit)
		held := map[shard.Pos]int{} // bytes of copies that are neither over nor missed
		var received []*flight
		pos, most := shard.Pos(0), 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"publish", "publish", "receive", "ack", "nack", "wait"}).Draw(t, "step") {
			case "publish":
				pos++
				before := inst.copyBytes
				o.broadcast([]shard.Stored{{Pos: pos, Msg: &message.Message{ID: uuid.New(), Topic: "t", Body: make([]byte, rapid.SampledFrom([]int{1, 6 << 20}).Draw(t, "size"))}}})
				if inst.copyBytes > before {
					held[pos] = inst.copyBytes - before
				}
				most = max(most, inst.copyBytes)
			case "receive":
				received = append(received, g.take(inst, 2, 1<<30)...)
			case "ack", "nack":
				if len(received) == 0 {
					continue
				}
				f := received[0]
				received = received[1:]
				tok, err := decodeToken(f.token)
				if err != nil || !tok.copy {
					t.Fatalf("token %+v, %v", tok, err)
				}
				got := g.finishCopy(inst, tok, tok.attempt)
				if got == nil {
					continue // out of time
				}
				if _, ok := held[f.pos]; !ok {
					t.Fatalf("copy %d is over already", f.pos)
				}
				if rapid.Bool().Draw(t, "good") {
					got.from.(*copies).gone(got)
					delete(held, f.pos)
				} else if got.from.failed(got, failure{err: "nack"}); got.attempt == 3 {
					delete(held, f.pos)
				}
				g.pump()
			case "wait":
				for _, f := range g.flights {
					if f.taken && f.attempt == 3 && f.deadline <= g.clock.now()+2e6 {
						delete(held, f.pos)
					}
				}
				g.clock.set(g.clock.now()+2e6, time.Now())
				g.expire(5e6)
			}
			sum := 0
			for _, n := range held {
				sum += n
			}
			if inst.copyBytes != sum || inst.inFlight < 0 || inst.inFlight > credit || most > maxCopyBytes {
				t.Fatalf("%d bytes in the account, %d held, at most %d; %d in flight, credit %d", inst.copyBytes, sum, most, inst.inFlight, credit)
			}
		}
		g.detach(inst)
		if len(g.flights)+len(inst.copies)+len(inst.resting)+len(g.waiting) != 0 {
			t.Fatal("something is left of an instance that is gone")
		}
	})
}
