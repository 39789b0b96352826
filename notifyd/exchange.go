package notifyd

import (
	"slices"
	"sync/atomic"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A view is one version of the registry with the exchange made from it. It is never changed.
type view struct {
	*store.Registry
	groupsOf map[string][]int32 // by topic
}

func newView(r *store.Registry) *view {
	v := &view{Registry: r, groupsOf: map[string][]int32{}}
	for _, s := range r.Subscriptions {
		v.groupsOf[s.Topic] = append(v.groupsOf[s.Topic], s.GroupID)
	}
	return v
}

// exchange names the groups that get a message: all that subscribe to its topic.
func (v *view) exchange(m *message.Message) []int32 { return v.groupsOf[m.Topic] }

// topicsOf are the topics that a group gets, sorted.
func (v *view) topicsOf(group int32) []string {
	var out []string
	for _, s := range v.Subscriptions {
		if s.GroupID == group {
			out = append(out, s.Topic)
		}
	}
	slices.Sort(out)
	return out
}

// A registry is the broker's copy of the newest version it has seen.
type registry struct {
	current atomic.Pointer[view]
	changed chan struct{} // of capacity 1, or nil: there is a newer one
}

func (r *registry) load() *view { return r.current.Load() }

// offer takes a version if it is newer than the present one.
func (r *registry) offer(v *view) {
	for {
		old := r.current.Load()
		if old != nil && old.Version >= v.Version {
			return
		}
		if r.current.CompareAndSwap(old, v) {
			wake(r.changed)
			return
		}
	}
}

var _ shard.Exchange = (*view)(nil).exchange
