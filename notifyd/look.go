package notifyd

import (
	"slices"

	"notifymirror/notifyd/shard"
)

// A sight is what the owner of a shard has in memory about one message. Times are by the store's clock.
type sight struct {
	look   shard.Look
	place  shard.Place
	groups map[int32]groupSight
}

// A groupSight is what the owner's broker knows of one group, and of its delivery of one message.
type groupSight struct {
	instances, credit, inFlight int
	aloneAt                     int64 // when the last instance left; 0: none has been here
	down                        bool
	downAt, probeAt             int64
	failures                    int // in a row
	line                        int // place among those that wait for credit, from 1; 0: it does not
	flight                      *flightSight

	settler settlerSight
}

// A flightSight is an attempt under way.
type flightSight struct {
	instance, peer, transport string
	attempt                   int
	sentAt, ackBy             int64
	taken                     bool // by the instance's stream
}

// A settlerSight is what the settler is about to write of a settled delivery.
type settlerSight struct {
	acked, dying, busy bool
	fail               *shard.PendingRow
}

// look tells what this owner knows of a position. It is asked before rows are read: an outcome
// leaves memory when its row is written.
func (o *owner) look(pos shard.Pos) (s sight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.look, s.place = o.ledger.Look(pos)
	return s
}

// lookAt adds what is known of groups.
func (s *sight) lookAt(o *owner, pos shard.Pos, groups []int32) {
	s.groups = map[int32]groupSight{}
	for _, id := range groups {
		g := o.hub.group(id).look(flightKey{o, pos}, o.clock.now())
		g.settler = o.lookSettler(pos, id)
		s.groups[id] = g
	}
}

func (o *owner) lookSettler(pos shard.Pos, group int32) (s settlerSight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := flightGroup{pos, group}
	s.busy, s.dying = o.busy[k], o.dying[k]
	s.acked = slices.Contains(o.acks, shard.Ack{Pos: pos, Group: group})
	for _, r := range o.fails {
		if r.Pos == pos && r.Group == group {
			s.fail = &r
		}
	}
	return s
}

// look tells how the group is, and what it has of a delivery. now is by the clock of the delivery's
// store, which the times in the answer follow.
func (g *pushGroup) look(k flightKey, now int64) (s groupSight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shift := now - g.clock.now()
	s.instances = len(g.instances)
	for _, i := range g.instances {
		s.credit += i.credit
		s.inFlight += i.credit - max(0, i.free())
	}
	if g.aloneAt != 0 {
		s.aloneAt = g.aloneAt + shift
	}
	s.down, s.failures = g.breaker.open, g.breaker.inARow
	s.downAt, s.probeAt = g.breaker.opened+shift, g.breaker.next+shift
	if f := g.flights[k]; f != nil {
		s.flight = &flightSight{instance: f.inst.name, peer: f.inst.peer, transport: f.inst.transport, attempt: f.attempt,
			sentAt: f.deadline - f.wait + shift, ackBy: max(f.deadline, f.until) + shift, taken: f.taken}
	}
	for i, f := range slices.Concat(g.waiting, g.retries) {
		if f.key() == k {
			s.line = i + 1
			break
		}
	}
	return s
}
