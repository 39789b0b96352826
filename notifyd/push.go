package notifyd

import (
	"cmp"
	"slices"
	"sync"
)

// maxWaiting is how many deliveries of a group wait in memory for credit, beyond four times
// the group's whole credit; more become pending rows at once.
const maxWaiting = 1000

// A pushGroup spreads a group's deliveries over its instances, round robin, as far as their
// credit goes. No lock is held while a source is called.
type pushGroup struct {
	id    int32
	clock *clock
	yield *yield // of all groups

	mu        sync.Mutex
	name      string        // by which it is declared; empty: it is not
	dropped   chan struct{} // closed: nothing is declared by that name and id any more
	instances []*instance
	aloneAt   int64 // when the last instance left; 0: none has been here
	turn      int
	waiting   []*flight // for credit, oldest first: first attempts,
	retries   []*flight // and retries, which go behind them
	reserved  int       // retries that sources may offer yet
	breaker   breaker
	ramp      *ramp
	flights   map[flightKey]*flight
	deadlines deadlines // of flights
}

func newPushGroup(id int32, clock *clock, yield *yield) *pushGroup {
	return &pushGroup{id: id, clock: clock, yield: yield, flights: map[flightKey]*flight{}, ramp: newRamp(clock.now())}
}

func deferAll(fs []*flight) {
	for _, part := range runs(fs) {
		part[0].from.deferred(part)
	}
}

// runs cuts a list into runs of one source.
func runs(fs []*flight) [][]*flight {
	var out [][]*flight
	start := 0
	for i := range fs {
		if i > start && fs[i].from != fs[start].from {
			out = append(out, fs[start:i])
			start = i
		}
	}
	if start < len(fs) {
		out = append(out, fs[start:])
	}
	return out
}

// stop empties the queues. The lock is held.
func (g *pushGroup) stop() []*flight {
	all := append(g.waiting, g.retries...)
	g.waiting, g.retries = nil, nil
	return all
}

// room is how many more deliveries may wait now. The lock is held.
func (g *pushGroup) room(now int64) int {
	queued := len(g.waiting) + len(g.retries)
	admits := g.breaker.admits(now)
	switch {
	case len(g.instances) == 0 || admits == admitNone:
		return 0
	case admits == admitProbe:
		return max(0, 1-queued)
	}
	room := maxWaiting - queued
	for _, i := range g.instances {
		room += 4 * i.credit
	}
	return max(0, room)
}

// offer queues deliveries of one source, in order: first attempts, or retries.
func (g *pushGroup) offer(fs []*flight) {
	now := g.clock.now()
	g.mu.Lock()
	for _, f := range fs {
		if f.retry {
			g.reserved = max(0, g.reserved-1)
		}
	}
	room := min(g.room(now), len(fs))
	for _, f := range fs[:room] {
		f.queuedAt = now
		if f.retry {
			g.retries = append(g.retries, f)
		} else {
			g.waiting = append(g.waiting, f)
		}
	}
	g.mu.Unlock()
	deferAll(fs[room:])
	g.pump()
}

// pump pushes what waits as far as the credit goes.
func (g *pushGroup) pump() {
	for {
		now := g.clock.now()
		g.mu.Lock()
		assigned := g.assign(now)
		g.mu.Unlock()
		if len(assigned) == 0 {
			return
		}
		for _, part := range runs(assigned) {
			g.launch(part, part[0].from.sent(part))
		}
	}
}

// assign gives waiting deliveries to instances with credit: copies to their own, the others
// in turn. The lock is held.
func (g *pushGroup) assign(now int64) []*flight {
	return append(g.assignCopies(now), g.assignShared(now)...)
}

func (g *pushGroup) assignShared(now int64) []*flight {
	switch g.breaker.admits(now) {
	case admitNone:
		return nil
	case admitProbe:
		assigned := g.assignFrom(&g.waiting, now, 1)
		if len(assigned) == 0 {
			assigned = g.assignFrom(&g.retries, now, 1)
		}
		for _, f := range assigned {
			f.probe = true
			g.breaker.probe(f.deadline)
		}
		return assigned
	}
	assigned := g.assignFrom(&g.waiting, now, len(g.waiting))
	if len(g.waiting) > 0 {
		return assigned
	}
	return append(assigned, g.assignFrom(&g.retries, now, len(g.retries))...)
}

// assignFrom takes up to most from the front of a queue.
func (g *pushGroup) assignFrom(queue *[]*flight, now int64, most int) []*flight {
	n := 0
	for ; n < most && n < len(*queue); n++ {
		inst := g.next()
		if inst == nil {
			break
		}
		g.assignTo(inst, (*queue)[n], now)
	}
	return cut(queue, n)
}

func (g *pushGroup) assignTo(inst *instance, f *flight, now int64) {
	f.inst, f.wait = inst, cmp.Or(inst.wait, f.ackWait)
	f.deadline = now + f.wait
	inst.inFlight++
	g.flights[f.key()] = f
	g.deadlines.add(f)
}

func (g *pushGroup) next() *instance {
	for range g.instances {
		g.turn = (g.turn + 1) % len(g.instances)
		if inst := g.instances[g.turn]; inst.free() > 0 {
			return inst
		}
	}
	return nil
}

// launch puts the deliveries that may go into the outboxes and gives the credit of the others back.
func (g *pushGroup) launch(assigned, ok []*flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := 0
	for _, f := range assigned {
		switch {
		case i < len(ok) && ok[i] == f:
			i++
			if f.done { // detached meanwhile
				continue
			}
			f.inst.outbox = append(f.inst.outbox, f)
			f.queued = true
			wake(f.inst.wake)
		case !f.done:
			g.vanish(f)
		}
	}
}

// vanish ends a flight of which nothing will be heard: another probe may go at once. The lock is held.
func (g *pushGroup) vanish(f *flight) {
	g.end(f)
	if f.probe {
		g.breaker.unheard()
	}
}

// end takes a flight out and frees its credit. The lock is held.
func (g *pushGroup) end(f *flight) {
	f.done = true
	g.deadlines.remove(f)
	f.inst.inFlight--
	if f.queued {
		f.inst.stale++
	}
	if g.flights[f.key()] == f {
		delete(g.flights, f.key())
	}
}

// finish takes the flight of a token out when it is in flight. attempt 0 means any.
func (g *pushGroup) finish(k flightKey, attempt int) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.flights[k]
	if f == nil || attempt != 0 && f.attempt != attempt {
		return nil
	}
	g.end(f)
	return f
}

// expire fails the deliveries whose ack wait is over and drops waiting ones that are
// settled by now. settleAfter is in microseconds.
func (g *pushGroup) expire(settleAfter int64) {
	now := g.clock.now()
	var late, unsent []*flight
	g.mu.Lock()
	for f := g.deadlines.over(now); f != nil; f = g.deadlines.over(now) {
		if f.until > now {
			f.deadline = f.until
			g.deadlines.add(f)
			continue
		}
		if f.taken {
			late = append(late, f)
			g.end(f)
		} else {
			unsent = append(unsent, f)
			g.vanish(f)
		}
	}
	woken := g.wakeCopies(now)
	for len(g.waiting) > 0 && g.waiting[0].queuedAt+settleAfter <= now {
		if _, ok := g.waiting[0].from.(*unstored); ok { // which settles nothing
			unsent = append(unsent, g.waiting[0])
		}
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	if len(unsent) > 0 {
		for _, inst := range g.instances {
			inst.forgetEnded()
		}
	}
	g.mu.Unlock()
	for _, f := range late {
		f.from.failed(f, failure{err: failedNoAck, kind: kindTimeout})
	}
	deferAll(unsent)
	if len(late)+len(unsent) > 0 || woken {
		g.pump()
	}
}

// take empties an instance's outbox, up to most deliveries and bytes of messages, or one that is larger.
func (g *pushGroup) take(inst *instance, most, bytes int) []*flight {
	g.mu.Lock()
	live, late := g.unload(inst, most, bytes, g.clock.now())
	g.mu.Unlock()
	if len(late) > 0 {
		deferAll(late)
		g.pump()
	}
	return live
}

// unload empties an outbox. Of an endpoint's, what is late is not begun: its request would outlive its flight, and
// the message would be sent again beside it. The lock is held.
func (g *pushGroup) unload(inst *instance, most, bytes int, now int64) (live, late []*flight) {
	n, size := 0, 0
	for ; n < len(inst.outbox) && n < most; n++ {
		if f := inst.outbox[n]; f != nil {
			if size > 0 && size+f.size > bytes {
				break
			}
			size += f.size
		}
	}
	live = make([]*flight, 0, n)
	for _, f := range cut(&inst.outbox, n) {
		if f == nil || f.done {
			inst.stale--
			continue
		}
		f.queued = false
		if inst.transport == transportWebhook && f.deadline-f.wait+webhookStart.Microseconds() < now {
			g.vanish(f)
			late = append(late, f)
			continue
		}
		f.taken = true
		live = append(live, f)
	}
	if len(inst.outbox) > 0 {
		wake(inst.wake)
	}
	return live, late
}

// cut takes n deliveries from the front of a queue, which keeps none of them: each holds its message.
func cut(queue *[]*flight, n int) []*flight {
	out := slices.Clone((*queue)[:n])
	clear((*queue)[:n])
	*queue = (*queue)[n:]
	return out
}

// wake signals a channel of capacity 1.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
