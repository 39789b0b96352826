package notifyd

import (
	"context"
	"sync"
	"time"
)

// A hub holds the groups that this broker pushes to.
type hub struct {
	clock *clock
	yield *yield

	mu     sync.RWMutex
	groups map[int32]*pushGroup
}

func newHub(clock *clock) *hub {
	return &hub{clock: clock, yield: newYield(clock.now()), groups: map[int32]*pushGroup{}}
}

// group returns the group's push side, made at first use.
func (h *hub) group(id int32) *pushGroup {
	h.mu.RLock()
	g := h.groups[id]
	h.mu.RUnlock()
	if g != nil {
		return g
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if g = h.groups[id]; g == nil {
		g = newPushGroup(id, h.clock, h.yield)
		h.groups[id] = g
	}
	return g
}

func (h *hub) all() []*pushGroup {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*pushGroup, 0, len(h.groups))
	for _, g := range h.groups {
		out = append(out, g)
	}
	return out
}

// offer spreads deliveries of one source over their groups.
func (h *hub) offer(fs []*flight) {
	byGroup := map[int32][]*flight{}
	for _, f := range fs {
		byGroup[f.group] = append(byGroup[f.group], f)
	}
	for id, part := range byGroup {
		h.group(id).offer(part)
	}
}

// drop forgets what came from a source that is over, and returns what was given to an instance and is in flight.
func (h *hub) drop(from source) (flying []*flight) {
	for _, g := range h.all() {
		flying = append(flying, g.dropFrom(from)...)
	}
	return flying
}

// expirePeriod is how often ack waits are looked at.
const expirePeriod = 50 * time.Millisecond

// run ends ack waits, and the streams of dropped groups, until ctx is done.
func (h *hub) run(ctx context.Context, settleAfter time.Duration, declared *registry) {
	t := time.NewTicker(expirePeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for _, g := range h.all() {
				g.expire(settleAfter.Microseconds())
				g.follow(declared)
			}
		}
	}
}
