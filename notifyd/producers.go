package notifyd

import (
	"slices"
	"sync"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// Producers are the attached instances of producer groups, who can be asked about halves.
type producers struct {
	mu     sync.Mutex
	groups map[string]*producerGroup
}

type producerGroup struct {
	instances []*producer
	turn      int
}

// A producer is one attached stream. Its fields belong to the lock of producers.
type producer struct {
	group  string
	name   string
	outbox []*notifyv1.Check
	wake   chan struct{} // capacity 1
}

func newProducers() *producers { return &producers{groups: map[string]*producerGroup{}} }

func (ps *producers) attach(group, name string) *producer {
	p := &producer{group: group, name: name, wake: make(chan struct{}, 1)}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	g := ps.groups[group]
	if g == nil {
		g = &producerGroup{}
		ps.groups[group] = g
	}
	g.instances = append(g.instances, p)
	return p
}

// detach takes an instance out and returns the checks that it was not sent. What it was asked and has
// not answered is asked again at the next check.
func (ps *producers) detach(p *producer) (unsent []*notifyv1.Check) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	g := ps.groups[p.group]
	for i, x := range g.instances {
		if x == p {
			g.instances = append(g.instances[:i], g.instances[i+1:]...)
			break
		}
	}
	if len(g.instances) == 0 {
		delete(ps.groups, p.group)
	}
	unsent, p.outbox = p.outbox, nil
	return unsent
}

// present are the groups with an instance here.
func (ps *producers) present() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]string, 0, len(ps.groups))
	for g := range ps.groups {
		out = append(out, g)
	}
	return out
}

// maxOutbox is how many checks may wait for one instance: one that does not read them is not asked.
const maxOutbox = 200

// room is how many checks the instances of a group can be given now.
func (ps *producers) room(group string) (n int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if g := ps.groups[group]; g != nil {
		for _, p := range g.instances {
			n += max(0, maxOutbox-len(p.outbox))
		}
	}
	return n
}

// count is how many instances of a group are attached here.
func (ps *producers) count(group string) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if g := ps.groups[group]; g != nil {
		return len(g.instances)
	}
	return 0
}

// ask gives a check to an instance of the group, in turn. It reports false when nobody is
// here who takes it.
func (ps *producers) ask(group string, c *notifyv1.Check) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	g := ps.groups[group]
	if g == nil {
		return false
	}
	for range g.instances {
		g.turn = (g.turn + 1) % len(g.instances)
		p := g.instances[g.turn]
		if len(p.outbox) < maxOutbox {
			p.outbox = append(p.outbox, c)
			wake(p.wake)
			return true
		}
	}
	return false
}

// take returns the checks of the next frame.
func (ps *producers) take(p *producer) []*notifyv1.Check {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n, bytes := 0, 0
	for ; n < len(p.outbox) && n < frameDeliveries; n++ {
		size := len(p.outbox[n].GetMessage().GetBody())
		if n > 0 && bytes+size > frameBytes {
			break
		}
		bytes += size
	}
	out := slices.Clone(p.outbox[:n])
	clear(p.outbox[:n]) // each holds its message
	p.outbox = p.outbox[n:]
	if len(p.outbox) > 0 {
		wake(p.wake)
	}
	return out
}
