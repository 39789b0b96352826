package notifyd

import "notifymirror/notifyd/shard"

// extend begins the ack wait of a delivery in flight anew. One that is over stays so.
func (b *Broker) extend(raw []byte) error {
	t, o, err := b.settler(raw)
	if err == nil && t.unstored {
		if u := b.holder(t); u != nil {
			u.extend(t)
		}
		return nil
	}
	if err != nil || o == nil {
		return err
	}
	if f := b.hub.group(t.group).extend(flightKey{o, t.pos}, t.attempt); f != nil {
		o.extended(f)
	}
	return nil
}

// extend gives a flight its whole wait again, and returns it when it is in flight.
func (g *pushGroup) extend(k flightKey, attempt int) *flight {
	now := g.clock.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.flights[k]
	if f == nil || f.attempt != attempt {
		return nil
	}
	f.until = now + f.wait
	return f
}

// extended notes the new end of a delivery's ack wait, for the pending row that its message may
// get while it runs. When that row is there or being written already, the delivery is its attempt from now on: the
// row is not read while it runs, and keeps its time for an owner that takes over. A row that was read before
// has an attempt of its own.
func (o *owner) extended(f *flight) {
	ackBy := o.clock.now() + f.wait
	o.mu.Lock()
	defer o.mu.Unlock()
	f.ackBy = ackBy
	k := flightGroup{f.pos, f.group}
	if !f.over && !f.retry && o.ledger.Extend(f.pos, f.group, ackBy) == shard.Settled && !o.busy[k] {
		f.retry, o.busy[k] = true, true
	}
}
