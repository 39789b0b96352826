package notifyd

import "slices"

// reserve lets up to most retries be read, and returns how many; each is then offered or given
// back. While the group is down that is one now and then. Otherwise its ramp and the live flow pace them, and a
// quarter of each instance's credit stays free for first attempts.
func (g *pushGroup) reserve(most int) int {
	now := g.clock.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	queued := len(g.waiting) + len(g.retries) + g.reserved
	free, spare := -queued, -queued
	for _, i := range g.instances {
		free += max(0, i.free())
		spare += max(0, i.free()-i.credit/4)
	}
	n := 0
	switch g.breaker.admits(now) {
	case admitProbe:
		n = max(0, min(most, free, 1-queued))
	case admitAll:
		asked := g.ramp.take(now, max(0, min(most, spare)))
		n = g.yield.take(now, g.id, asked)
		g.ramp.giveBack(asked - n)
	}
	g.reserved += n
	return n
}

// giveBack returns what was reserved and not offered.
func (g *pushGroup) giveBack(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reserved -= n
	g.ramp.giveBack(n)
	g.yield.giveBack(n)
}

// An ending is what the end of an attempt says about its group.
type ending int

const (
	alive   ending = iota // it decided: acknowledged, or rejected for good
	refused               // it asked for another attempt
	lost                  // nothing was heard in time
)

// A turn is a change of a group's state.
type turn int

const (
	noTurn turn = iota
	wentDown
	cameBack
)

// heard takes the end of an attempt and reports what it changed. When the group went down, what waits
// is deferred: it becomes pending rows without an attempt.
func (g *pushGroup) heard(f *flight, e ending) turn {
	now := g.clock.now()
	g.mu.Lock()
	if e == alive {
		g.ramp.acked(now-(f.deadline-f.wait) > f.wait/4)
		back := g.breaker.succeeded()
		if back {
			g.ramp = newRamp(now)
		}
		g.mu.Unlock()
		if back {
			return cameBack
		}
		return noTurn
	}
	if e == lost {
		g.ramp.fail()
	}
	down := g.breaker.failed(now)
	var waiting []*flight
	if down {
		waiting = g.stop()
	}
	g.mu.Unlock()
	deferAll(waiting)
	if down {
		return wentDown
	}
	return noTurn
}

// isUp reports whether the group takes deliveries.
func (g *pushGroup) isUp() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.breaker.open && len(g.instances) > 0
}

// isDown reports whether the group's breaker is open.
func (g *pushGroup) isDown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.open
}

// unheard are the kinds of failures after which nobody has said a word about the message.
var unheard = [...]string{kindTimeout, kindConnect, kindTLS, kindBlocked, kindBroken}

func endingOf(x failure) ending {
	switch {
	case x.reject:
		return alive
	case slices.Contains(unheard[:], x.kind):
		return lost
	}
	return refused
}

// heardEarly notes an acknowledgement that is void, and comes again: its group lives.
func (o *owner) heardEarly(f *flight) {
	o.heard(f, alive, "")
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.retry {
		o.putBack(f)
	}
	o.count()
}

// heard tells the group how an attempt ended, with one log line per change of its state.
func (c *core) heard(f *flight, e ending, err string) {
	switch c.hub.group(f.group).heard(f, e) {
	case wentDown:
		c.log.Warn("group is down: its messages wait, one probe tells when it is back",
			"group", c.declared.load().GroupNames[f.group], "topic", f.msg.Topic, "err", err)
	case cameBack:
		c.log.Info("group is back", "group", c.declared.load().GroupNames[f.group])
	}
}
