package notifyd

import "slices"

// attach adds a stream.
func (g *pushGroup) attach(name, peer string, credit int) *instance {
	return g.join(&instance{name: name, peer: peer, transport: transportStream, credit: credit})
}

// join adds an instance, which gets what waits.
func (g *pushGroup) join(inst *instance) *instance {
	inst.wake = make(chan struct{}, 1)
	now := g.clock.now()
	g.mu.Lock()
	if len(g.instances) == 0 {
		g.ramp = newRamp(now)
		g.breaker.hope(now)
	}
	g.instances = append(g.instances, inst)
	g.mu.Unlock()
	g.pump()
	return inst
}

// detach takes an instance out; its deliveries in flight have failed. What only waited is
// deferred when it was the last one.
func (g *pushGroup) detach(inst *instance) {
	g.mu.Lock()
	inst.gone = true
	for i, x := range g.instances {
		if x == inst {
			g.instances = append(g.instances[:i], g.instances[i+1:]...)
			break
		}
	}
	var lost, waiting []*flight
	for _, f := range g.flights {
		switch {
		case f.inst != inst:
			continue
		case f.taken:
			lost = append(lost, f)
			g.end(f)
		default:
			waiting = append(waiting, f)
			g.vanish(f)
		}
	}
	inst.outbox = nil
	inst.forgetCopies()
	if len(g.instances) == 0 {
		g.aloneAt = g.clock.now()
		waiting = append(waiting, g.stop()...)
	}
	g.mu.Unlock()
	for _, f := range lost {
		f.from.failed(f, failure{err: failedStreamEnded, kind: kindConnect})
	}
	deferAll(waiting)
	g.pump()
}

// setCredit changes an instance's window.
func (g *pushGroup) setCredit(inst *instance, credit int) {
	g.mu.Lock()
	inst.credit = credit
	g.mu.Unlock()
	g.pump()
}

// follow ends the streams of a group that was dropped. A server that was promoted without the latest group gives its id
// again, to the same name or to another: then the group begins anew. It returns the name in force, empty when there
// is none, and what is closed when that is over. The registry is loaded under the lock, so that no older copy is followed after a newer one.
func (g *pushGroup) follow(declared *registry) (name string, dropped <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if name = declared.load().GroupNames[g.id]; name != g.name {
		if g.name != "" {
			close(g.dropped)
		}
		g.name, g.dropped = name, make(chan struct{})
	}
	return name, g.dropped
}

// dropFrom forgets everything that came from a source which is over, and returns what was given to an
// instance and is in flight.
func (g *pushGroup) dropFrom(from source) (flying []*flight) {
	g.mu.Lock()
	for _, f := range g.flights {
		if f.from == from {
			g.vanish(f)
			flying = append(flying, f)
		}
	}
	other := func(f *flight) bool { return f.from == from }
	g.waiting = slices.DeleteFunc(slices.Clone(g.waiting), other)
	g.retries = slices.DeleteFunc(slices.Clone(g.retries), other)
	g.mu.Unlock()
	g.pump()
	return flying
}
