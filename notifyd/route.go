package notifyd

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
)

// A sink takes publishes: an owned shard, or the way to another broker.
type sink interface {
	// put reports false when it is over.
	put(p *publish) bool
}

// unkeyedRun is how many unkeyed messages in a row go to one sink: publishers that wait for
// each answer share a commit then, instead of making one in every shard.
const unkeyedRun = 32

// A route is one set of sinks. Keyed messages go by their key, so one key keeps to one sink
// while the set is the same. Unkeyed ones go round, in runs.
type route struct {
	sinks []sink
	turn  atomic.Uint64
	open  atomic.Int64  // publishes not answered, plus one while it is the current route
	empty chan struct{} // closed when open is zero
	ready chan struct{} // closed when the route before is empty
}

func newRoute(sinks []sink) *route {
	r := &route{sinks: sinks, empty: make(chan struct{}), ready: make(chan struct{})}
	r.open.Store(1)
	return r
}

func (r *route) release() {
	if r.open.Add(-1) == 0 {
		close(r.empty)
	}
}

// pick chooses the sink of a message, or nil.
func (r *route) pick(topic, key string) sink {
	n := uint64(len(r.sinks))
	switch {
	case n == 0:
		return nil
	case key == "":
		return r.sinks[r.turn.Add(1)/unkeyedRun%n]
	}
	h := fnv.New64a()
	h.Write([]byte(topic))
	h.Write([]byte{0})
	h.Write([]byte(key))
	return r.sinks[h.Sum64()%n]
}

// A router holds the current route. A new one begins to take messages only when everything
// on the one before is answered, so that no key overtakes itself from sink to sink.
type router struct {
	mu      sync.RWMutex
	current *route
}

func newRouter() *router {
	r := newRoute(nil)
	close(r.ready)
	return &router{current: r}
}

// set changes the sinks. ctx ends the wait for the route before.
func (r *router) set(ctx context.Context, sinks []sink) {
	next := newRoute(sinks)
	r.mu.Lock()
	before := r.current
	r.current = next
	r.mu.Unlock()
	before.release()
	go func() {
		select {
		case <-before.ready:
			select {
			case <-before.empty:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		close(next.ready)
	}()
}

// enter holds the current route, once it is ready; call release when the publish is answered.
func (r *router) enter(ctx context.Context) (*route, error) {
	r.mu.RLock()
	cur := r.current
	cur.open.Add(1)
	r.mu.RUnlock()
	select {
	case <-cur.ready:
		return cur, nil
	case <-ctx.Done():
		cur.release()
		return nil, ctx.Err()
	}
}
