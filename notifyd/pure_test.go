package notifyd

import (
	"context"
	"encoding/hex"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

func TestRetriesBackOffBetweenMinAndMaxAndSpread(t *testing.T) {
	p := retryPolicy{min: time.Second, max: time.Minute, attempts: 500}
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 100).Draw(t, "attempt")
		seed := rapid.Uint64().Draw(t, "seed")
		d := p.after(attempt, seed)
		base := p.min
		for range attempt - 1 {
			base = min(2*base, p.max)
		}
		if d < base || d > base+base/4 {
			t.Fatalf("attempt %d waits %v, want %v to %v", attempt, d, base, base+base/4)
		}
	})
	seen := map[time.Duration]bool{}
	for i := range 100 {
		id := uuid.UUID{15: byte(i)}
		seen[p.after(5, retrySeed(id, 1, 5))] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 deliveries of one outage come back at %d instants", len(seen))
	}
}

func TestTokenKeepsItsFields(t *testing.T) {
	in := token{
		store: uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"), shard: 7, pos: shard.At(3, 258),
		id: uuid.MustParse("01020304-0506-7708-890a-0b0c0d0e0f10"), group: 9, attempt: 2,
	}
	const golden = "01" + "00112233445566778899aabbccddeeff" + "0007" + "0000030000000102" +
		"0102030405067708890a0b0c0d0e0f10" + "00000009" + "00000002"
	if got := hex.EncodeToString(in.encode()); got != golden {
		t.Errorf("token %s, want %s", got, golden)
	}
	for version, of := range map[byte]struct{ copy, unstored bool }{1: {}, 2: {copy: true}, 3: {unstored: true}} {
		x := in
		x.copy, x.unstored = of.copy, of.unstored
		if out, err := decodeToken(x.encode()); err != nil || out != x || x.encode()[0] != version {
			t.Errorf("decoded %+v, %v", out, err)
		}
	}
	for _, bad := range [][]byte{nil, in.encode()[1:], append(in.encode(), 0), slices.Concat([]byte{4}, in.encode()[1:])} {
		if _, err := decodeToken(bad); err == nil {
			t.Errorf("%x was taken for a token", bad)
		}
	}
}

func publishOf(size int, l *line) *publish {
	return newPublish(store.Item{Msg: &message.Message{ID: uuid.New(), Body: make([]byte, size)}}, l)
}

func TestABatchClosesAt500RowsOr1MiB(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newBatchQueue()
		var in []*publish
		for range rapid.IntRange(0, 1200).Draw(t, "messages") {
			p := publishOf(rapid.SampledFrom([]int{0, 100, 5000, 300_000, 3 << 20}).Draw(t, "size"), nil)
			in = append(in, p)
			q.put(p)
		}
		var out []*publish
		for len(out) < len(in) {
			batch, _ := q.take()
			bytes := 0
			for _, p := range batch {
				bytes += p.size
			}
			if len(batch) == 0 || len(batch) > maxBatchRows || len(batch) > 1 && bytes > maxBatchBytes {
				t.Fatalf("a batch of %d messages and %d bytes", len(batch), bytes)
			}
			out = append(out, batch...)
		}
		if !slices.Equal(in, out) {
			t.Fatal("the order changed")
		}
	})
}

func TestBehindAFailureEverythingOfTheStreamFails(t *testing.T) {
	q := newBatchQueue()
	broken, other := &line{}, &line{}
	first, second, alone := publishOf(1, broken), publishOf(1, broken), publishOf(1, other)
	q.put(second)
	q.put(alone)
	first.fail(shardMoved())
	batch, _ := q.take()
	if len(batch) != 1 || batch[0] != alone {
		t.Fatalf("batch %v, want only the other stream's message", batch)
	}
	<-second.done
	if second.err.detail.Reason != notifyv1.Reason_REASON_BEHIND_FAILURE {
		t.Errorf("got %v", second.err)
	}
}

func TestARefusalForGoodLeavesTheStreamWhole(t *testing.T) {
	l := &line{}
	publishOf(1, l).fail(unknownTopic("t"))
	if l.broken.Load() {
		t.Error("the stream broke")
	}
	publishOf(1, l).fail(resultUnknown(context.Canceled))
	if !l.broken.Load() {
		t.Error("the stream goes on behind an unknown result")
	}
}

type countingSink struct{ n int }

func (s *countingSink) put(*publish) bool { s.n++; return true }

func TestUnkeyedMessagesShareShardsInRunsAndSpreadEvenly(t *testing.T) {
	sinks := []sink{&countingSink{}, &countingSink{}, &countingSink{}}
	r := newRoute(sinks)
	var last sink
	changes := 0
	const rounds = 10
	for range rounds * unkeyedRun * len(sinks) {
		s := r.pick("t", "")
		if s != last {
			changes++
		}
		s.put(nil)
		last = s
	}
	if most := rounds*len(sinks) + 1; changes > most {
		t.Errorf("%d changes of the shard, want at most %d", changes, most)
	}
	for i, s := range sinks {
		if n := s.(*countingSink).n; n < (rounds-1)*unkeyedRun || n > (rounds+1)*unkeyedRun {
			t.Errorf("shard %d got %d messages, want about %d", i, n, rounds*unkeyedRun)
		}
	}
}

func TestANewRouteWaitsForWhatWasRoutedByTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter()
		r.set(t.Context(), []sink{&countingSink{}})
		old, err := r.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.set(t.Context(), []sink{&countingSink{}, &countingSink{}})
		r.set(t.Context(), []sink{&countingSink{}})
		entered := make(chan *route, 1)
		go func() {
			cur, _ := r.enter(t.Context())
			entered <- cur
		}()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("entered while a publish of the old route is open")
		default:
		}
		old.release()
		cur := <-entered
		if len(cur.sinks) != 1 {
			t.Errorf("%d sinks, want the newest route's", len(cur.sinks))
		}
		cur.release()
	})
}

func TestAKeyKeepsToOneSinkAndKeysSpread(t *testing.T) {
	var sinks []sink
	for range 8 {
		sinks = append(sinks, &countingSink{})
	}
	r := newRoute(sinks)
	used := map[sink]bool{}
	for i := range 200 {
		key := string(rune('a'+i%26)) + string(rune('a'+i/26))
		s := r.pick("t", key)
		used[s] = true
		for range 3 {
			if r.pick("t", key) != s {
				t.Fatalf("key %q changed its sink", key)
			}
		}
	}
	if len(used) != 8 {
		t.Errorf("200 keys use %d of 8 sinks", len(used))
	}
}

// A ledgerless source notes what became of each flight.
type ledgerless struct {
	end    map[*flight]string
	refuse bool
}

func (s *ledgerless) note(f *flight, what string) {
	if was, ok := s.end[f]; ok {
		panic("a flight ended twice: " + was + ", " + what)
	}
	s.end[f] = what
}

func (s *ledgerless) sent(fs []*flight) []*flight {
	if s.refuse {
		for _, f := range fs {
			s.note(f, "refused")
		}
		return nil
	}
	return fs
}

func (s *ledgerless) deferred(fs []*flight) {
	for _, f := range fs {
		s.note(f, "deferred")
	}
}

func (s *ledgerless) failed(f *flight, x failure) { s.note(f, x.err) }

// Whatever consumers do, every delivery offered ends once, or waits, or is in flight at an
// instance that had the credit for it.
func TestEveryDeliveryOfAGroupHasOneEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock(time.Now())
		g := newPushGroup(1, clock, newYield(clock.now()))
		src := &ledgerless{end: map[*flight]string{}}
		var instances []*instance
		var offered, received []*flight
		steps := map[string]func(*rapid.T){
			"attach": func(t *rapid.T) {
				wait := rapid.Int64Range(1, 9).Draw(t, "seconds to acknowledge") * 1e6
				instances = append(instances, g.join(&instance{wait: wait, credit: rapid.IntRange(1, 3).Draw(t, "credit")}))
				g.pump()
			},
			"detach": func(t *rapid.T) {
				if len(instances) > 0 {
					g.detach(instances[0])
					instances = instances[1:]
				}
			},
			"offer": func(t *rapid.T) {
				src.refuse = rapid.IntRange(0, 5).Draw(t, "refuse") == 0
				var fs []*flight
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					f := &flight{from: src, pos: shard.Pos(len(offered) + 1), attempt: 1, msg: &message.Message{}, ackWait: rapid.Int64Range(1, 8).Draw(t, "ack wait") * 1e6}
					offered = append(offered, f)
					fs = append(fs, f)
				}
				g.offer(fs)
				src.refuse = false
			},
			"receive": func(t *rapid.T) {
				for _, i := range instances {
					received = append(received, g.take(i, 2, 1<<20)...)
				}
			},
			"ack": func(t *rapid.T) {
				if len(received) > 0 {
					f := received[0]
					received = received[1:]
					if got := g.finish(f.key(), 0); got != nil {
						src.note(got, "acked")
					}
					g.pump()
				}
			},
			"wait": func(t *rapid.T) {
				clock.set(clock.now()+rapid.Int64Range(1, 4).Draw(t, "seconds")*1e6, time.Now())
				now := clock.now()
				g.expire((5 * time.Second).Microseconds())
				for _, f := range g.flights {
					if f.deadline <= now {
						t.Fatalf("delivery %d is in flight behind its deadline", f.pos)
					}
				}
			},
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"attach", "detach", "offer", "offer", "receive", "ack", "ack", "wait"}).Draw(t, "step")
			steps[name](t)
			for _, i := range instances {
				if i.inFlight < 0 || i.inFlight > i.credit || len(i.outbox) > i.credit {
					t.Fatalf("%d in flight, %d not sent, credit %d", i.inFlight, len(i.outbox), i.credit)
				}
			}
		}
		alive := len(g.flights)
		for _, f := range offered {
			_, ended := src.end[f]
			if inFlight := g.flights[f.key()] == f; inFlight && ended {
				t.Fatalf("delivery %d is in flight and ended: %s", f.pos, src.end[f])
			}
		}
		if len(src.end)+alive+len(g.waiting) > len(offered) {
			t.Fatalf("%d ended, %d in flight, %d wait; %d offered", len(src.end), alive, len(g.waiting), len(offered))
		}
		for len(instances) > 0 {
			steps["detach"](t)
		}
		if len(g.flights)+len(g.waiting) != 0 {
			t.Fatal("something is left without an instance")
		}
	})
}

// newTestSide is the side of a store that is never connected to.
func newTestSide() *side {
	c := &core{cfg: Config{MaxAttempts: DefaultMaxAttempts}, metrics: newMetrics(prometheus.NewRegistry()), declared: &registry{}, hub: newHub(newClock(time.Now()))}
	c.bodies = newBodyCache(bodyCacheBytes, c.metrics)
	c.viewer = newViewer(c)
	return newSide(c, &store.Store{Name: "a", Info: schema.Info{StoreID: uuid.NewString()}}, "", time.Now())
}

// newTestOwner owns a shard of that side. Group 1 subscribes to topic t.
func newTestOwner(settled shard.Pos) *owner {
	side := newTestSide()
	v := side.viewer.view(&store.Registry{Version: 1, Subscriptions: []store.Subscription{{GroupID: 1, Topic: "t"}}}, nil)
	side.registry.take(side.registry.load(), v)
	return newOwner(side, 0, store.Taken{Epoch: 1, Version: 1, Settled: settled}, v, nil, nil)
}

func TestARowWrittenDuringAReadIsNotDeliveredAgain(t *testing.T) {
	side := newTestSide()
	v := side.viewer.view(&store.Registry{Version: 1}, nil)
	side.registry.take(side.registry.load(), v)
	o := newOwner(side, 0, store.Taken{Epoch: 1, Version: 1, Settled: shard.At(1, 5)}, v, nil, nil)
	row := store.Due{Pos: shard.At(1, 1), Msg: &message.Message{ID: uuid.New()}}
	d := newDrain()
	if n := len(o.retries(d, 1, 0, []store.Due{row})); n != 1 {
		t.Fatalf("%d deliveries of a due row, want 1", n)
	}
	// A read begins; then the delivery is acknowledged and its row deleted; then the read ends.
	o.ack(row.Pos, 1)
	s := o.settlement(settleBatch)
	o.settled(s)
	if n := len(o.retries(d, 1, 0, []store.Due{row})); n != 0 {
		t.Error("a read that began before the commit delivered the row again")
	}
	o.mu.Lock()
	o.forgetWritten()
	o.mu.Unlock()
	if len(o.busy) != 0 {
		t.Errorf("%d rows stay busy for ever", len(o.busy))
	}
}

func TestAShardThatCannotSettleLeavesTheOthersTheirShareOfMemory(t *testing.T) {
	stuck := newTestOwner(shard.EpochStart(1))
	stuck.cfg.DeliveryMemory = 4 << 20
	live := newOwner(stuck.side, 1, store.Taken{Epoch: 1, Version: 1, Settled: shard.EpochStart(1)}, stuck.registry.load(), nil, nil)
	take := func(o *owner, n int) (taken int) {
		for i := range n {
			m := &message.Message{ID: uuid.New(), Topic: "t", Body: make([]byte, 64<<10)}
			taken += len(o.committed(store.Fence{Now: 1}, []shard.Stored{{Pos: shard.At(1, int64(i+1)), Msg: m}}).deliveries)
		}
		return taken
	}
	if n := take(stuck, 100); n < 64 || n > 66 {
		t.Errorf("the stuck shard keeps %d messages of 64 KiB in 4 MiB", n)
	}
	if n := take(live, 100); n < 15 || n > 17 {
		t.Errorf("the other keeps %d of them, want what 1 MiB holds", n)
	}
}

func TestRetriesUnderWayCountAsDeliveryMemory(t *testing.T) {
	o := newTestOwner(shard.EpochStart(1))
	o.cfg.DeliveryMemory = 1 << 20
	o.renewed(time.Now(), time.Minute)
	o.hub.group(1).attach("a", "", 100)
	o.hint(1, 0)
	d := o.drains[1]
	size := 0
	read := func(pos shard.Pos, n int) []*flight {
		var due []store.Due
		for i := range n {
			m := &message.Message{ID: uuid.New(), Topic: "t", Body: make([]byte, 300<<10)}
			size = m.Size()
			due = append(due, store.Due{Pos: pos + shard.Pos(i), NextAt: 1, Msg: m})
		}
		return o.retries(d, 1, 1, due)
	}
	fs := read(shard.At(0, 1), 4)
	if got := o.unsettledBytes.Load(); got != int64(4*size) {
		t.Fatalf("%d bytes are counted of 4 retries of %d", got, size)
	}
	if n := o.drainable(1); n != 0 {
		t.Errorf("%d more rows are read into a full memory", n)
	}
	o.hint(2, 0)
	if n := o.drainable(2); n != 1 {
		t.Errorf("%d rows of a group that has none are read, want 1", n)
	}
	if n := o.drainable(3); n != 0 {
		t.Errorf("%d rows of a group without rows are read", n)
	}
	o.acks = make([]shard.Ack, drainLead)
	if n := o.drainable(2); n != 0 {
		t.Errorf("%d rows are read while %d outcomes wait for the settler", n, len(o.acks))
	}
	o.acks = nil
	o.deferred(fs[:1])
	o.hub.offer(fs[1:])
	g := o.hub.group(1)
	acked := g.finish(fs[1].key(), 0)
	o.ended(acked, "")
	o.failed(g.finish(fs[2].key(), 0), failure{err: "nack"})
	if got := o.unsettledBytes.Load(); got != int64(size) {
		t.Errorf("%d bytes are counted of one retry of %d", got, size)
	}
	o.renewed(time.Now(), -time.Minute)
	o.sent(fs[3:])
	if got := o.unsettledBytes.Load(); got != 0 || d.held != 0 {
		t.Errorf("%d bytes, %d of the group, stay counted", got, d.held)
	}
}

func TestAFirstAttemptThatComesTooLateIsADeadLetterUnsent(t *testing.T) {
	o := newTestOwner(shard.EpochStart(1))
	o.renewed(time.Now(), time.Minute)
	inst := o.hub.group(1).attach("a", "", 10)
	now := o.clock.now()
	var stored []shard.Stored
	for i, expires := range []int64{now - 1, now + 3600e6, 0} {
		m := &message.Message{ID: uuid.New(), Topic: "t", ExpiresAt: expires}
		stored = append(stored, shard.Stored{Pos: shard.At(1, int64(i+1)), Msg: m})
	}
	o.exchanged(t.Context(), store.Fence{Version: 1}, o.committed(store.Fence{Now: now}, stored))
	if n := len(o.hub.group(1).take(inst, 10, 1000)); n != 2 {
		t.Errorf("%d deliveries are sent, want the 2 that live", n)
	}
	s := o.settlement(settleBatch)
	if want := []shard.DeadRow{{Pos: shard.At(1, 1), Group: 1, Reason: deadExpired}}; s == nil || !slices.Equal(s.Plan.Dead, want) {
		t.Errorf("settlement %+v, want the dead letter %+v", s, want)
	}
}

func TestADeliveryIsBuriedOnce(t *testing.T) {
	o := newTestOwner(shard.At(1, 1))
	m := &message.Message{ID: uuid.New(), Topic: "t", ExpiresAt: 1}
	f := o.flights([]shard.Delivery{{Pos: shard.At(1, 1), Group: 1, Msg: m}})[0]
	// Its message is settled while it runs; the row that it got expires, then it fails itself.
	due := []store.Due{{Pos: f.pos, NextAt: 1, Attempts: 1, Msg: m}}
	o.retries(newDrain(), 1, 2, due)
	o.bury(f, deadExpired, failedNoAck)
	if len(o.deads) != 1 {
		t.Fatalf("%d dead letters of one delivery", len(o.deads))
	}
	s := o.settlement(settleBatch)
	o.bury(f, deadExpired, failedNoAck)
	o.settled(s)
	if len(o.deads) != 0 {
		t.Errorf("%d dead letters of a delivery that was being buried", len(o.deads))
	}
	o.mu.Lock()
	o.buryRow(shard.DeadRow{Pos: f.pos, Group: 1})
	o.mu.Unlock()
	if len(o.deads) != 1 {
		t.Error("a redriven delivery cannot be buried again")
	}
}

func TestADelayedMessageSettledDuringAReadIsNotExchangedAgain(t *testing.T) {
	side := newTestSide()
	v := side.viewer.view(&store.Registry{Version: 1, Subscriptions: []store.Subscription{{GroupID: 1, Topic: "t"}}}, nil)
	o := newOwner(side, 0, store.Taken{Epoch: 1, Version: 1, Settled: shard.At(1, 5)}, v, nil, nil)
	row := store.Due{Pos: shard.At(1, 1), NextAt: 1, Msg: &message.Message{ID: uuid.New(), Topic: "t", DeliverAt: 1}}
	d := newDrain()
	if n := len(o.takeDue(d, 1, []store.Due{row}).deliveries); n != 1 {
		t.Fatalf("%d deliveries of a due message, want 1", n)
	}
	// A read begins; then the message is settled and its row deleted; then the read ends.
	o.ack(row.Pos, 1)
	o.settled(o.settlement(settleBatch))
	if n := len(o.takeDue(d, 1, []store.Due{row}).deliveries); n != 0 {
		t.Error("a read that began before the commit exchanged the message again")
	}
	o.mu.Lock()
	o.forgetWritten()
	o.mu.Unlock()
	if len(o.busy) != 0 {
		t.Errorf("%d rows stay busy for ever", len(o.busy))
	}
}

func TestAnAckForAMessageNotReadYetIsHandedBack(t *testing.T) {
	side := newTestSide()
	o := newOwner(side, 0, store.Taken{Epoch: 2, Version: 1}, side.viewer.view(&store.Registry{Version: 1}, nil), nil, nil)
	k := newKeeper(side, store.Broker{}, nil)
	k.owners[0] = o
	b := &Broker{core: side.core, stores: newStoreSet(), inMemory: newMemoryTopics(side.core), replays: newReplays()}
	if err := b.stores.add(k); err != nil {
		t.Fatal(err)
	}
	con := &consumer{b: b, group: side.hub.group(1)}
	raw := token{store: o.storeID, pos: shard.At(1, 1), group: 1, attempt: 1}.encode()
	refused, err := con.settle(&notifyv1.SubscribeRequest{Acks: [][]byte{raw}})
	if err != nil || len(refused) != 1 {
		t.Fatalf("settle = %d handed back, %v; want 1", len(refused), err)
	}
}

func TestATokenOfAnotherGroupChangesNothing(t *testing.T) {
	o := newTestOwner(shard.At(1, 1))
	k := newKeeper(o.side, store.Broker{}, nil)
	k.owners[0] = o
	b := &Broker{core: o.core, stores: newStoreSet(), inMemory: newMemoryTopics(o.core), replays: newReplays()}
	if err := b.stores.add(k); err != nil {
		t.Fatal(err)
	}
	con := &consumer{b: b, group: o.hub.group(1)}
	raw := token{store: o.storeID, pos: shard.At(1, 1), group: 77, attempt: 1}.encode()
	refused, err := con.settle(&notifyv1.SubscribeRequest{Acks: [][]byte{raw}, Extends: [][]byte{raw}, Nacks: []*notifyv1.Nack{{Token: raw}}})
	if err != nil || len(refused) != 0 {
		t.Errorf("settle = %d handed back, %v", len(refused), err)
	}
	if len(o.acks) != 0 || len(o.hub.all()) != 1 {
		t.Errorf("%d acks, %d groups", len(o.acks), len(o.hub.all()))
	}
}

func TestARefusalThatMayPassBreaksItsStream(t *testing.T) {
	l := &line{}
	refusedPublish(&notifyv1.PublishRequest{}, unknownTopic("t"), l)
	if l.broken.Load() {
		t.Error("a refusal for good broke the stream")
	}
	refusedPublish(&notifyv1.PublishRequest{}, newError(notifyv1.Reason_REASON_STORE_AWAY, "away"), l)
	if !l.broken.Load() {
		t.Error("what is behind may overtake a message that is to be sent again")
	}
}

func TestAProducerThatReadsNoAnswersIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &lineReader{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
		for range maxUnanswered {
			p := publishOf(1, nil)
			p.stored(uuid.New(), false)
			r.queue = append(r.queue, p)
		}
		let := make(chan bool, 1)
		go func() { let <- r.awaitRoom(t.Context()) }()
		synctest.Wait()
		select {
		case <-let:
			t.Fatal("more is accepted than may wait for answers")
		default:
		}
		r.take()
		if !<-let {
			t.Error("nothing is accepted although answers were taken")
		}
	})
}

func TestAProducerThatReadsNoChecksIsNotAsked(t *testing.T) {
	ps := newProducers()
	p := ps.attach("shop", "i")
	check := &notifyv1.Check{Message: &notifyv1.Message{Body: make([]byte, 100<<10)}}
	asked := 0
	for range 2 * maxOutbox {
		if ps.ask("shop", check) {
			asked++
		}
	}
	if asked != maxOutbox {
		t.Errorf("asked %d times, want %d", asked, maxOutbox)
	}
	if n := len(ps.take(p)); n > frameBytes/(100<<10)+1 {
		t.Errorf("%d checks in one frame", n)
	}
	if !ps.ask("shop", check) {
		t.Error("not asked although it has read some")
	}
	left := len(p.outbox)
	if n := len(ps.detach(p)); n != left || left == 0 {
		t.Errorf("%d of the %d checks that it has not read are handed back when it leaves", n, left)
	}
}

func TestFewSmallBatchesCommitAtOnceAndNoneWaitsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCommitGate()
		var leave []func()
		for range gateWidth {
			leave = append(leave, g.enter(t.Context(), 1))
		}
		began := time.Now()
		g.enter(t.Context(), gateRows)()
		if time.Since(began) != 0 {
			t.Error("a full batch waited")
		}
		g.enter(t.Context(), 1)()
		if waited := time.Since(began); waited != gatePatience {
			t.Errorf("a small batch waited %s while none left, want %s", waited, gatePatience)
		}
		leave[0]()
		began = time.Now()
		g.enter(t.Context(), 1)()
		if time.Since(began) != 0 {
			t.Error("a small batch waited although a place was free")
		}
	})
}
