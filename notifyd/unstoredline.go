package notifyd

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"notifymirror/notifyd/shard"
)

// unstoredSweep is how often all that waits is looked at, for what nobody wants any more.
const unstoredSweep = time.Second

// owed is a delivery that waits.
type owed struct {
	pos     shard.Pos
	attempt int   // the next one
	due     int64 // microseconds
	err     string
}

// An owedHeap is a line, the delivery that is due first in front.
type owedHeap []owed

func (h owedHeap) Len() int { return len(h) }
func (h owedHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].due, h[j].due), cmp.Compare(h[i].pos, h[j].pos)) < 0
}
func (h owedHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *owedHeap) Push(x any)   { *h = append(*h, x.(owed)) }
func (h *owedHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// due reports whether the first one is.
func (h owedHeap) due(now int64) bool { return len(h) > 0 && h[0].due <= now }

// again offers deliveries of a group that are due, as far as it has room.
func (u *unstored) again(group int32) {
	now := u.clock.now()
	u.mu.Lock()
	most := 0
	if w := u.waiting[group]; w != nil && w.due(now) {
		most = min(len(*w), drainRows)
	}
	u.mu.Unlock()
	if most == 0 {
		return
	}
	g := u.hub.group(group)
	room := g.reserve(most)
	if room == 0 {
		return
	}
	fs := u.due(group, now, room)
	g.giveBack(room - len(fs))
	g.offer(fs)
}

// due takes up to most deliveries of a group that are due out of the line.
func (u *unstored) due(group int32, now int64, most int) (fs []*flight) {
	v := u.declared.load()
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.waiting[group]
	for w != nil && len(fs) < most && w.due(now) {
		next := heap.Pop(w).(owed)
		h := u.held[next.pos]
		switch {
		case !u.owes(next.pos, group): // acknowledged late
		case outlived(v, h, group, now):
			u.finish(next.pos, group, next.end(deadExpired))
		default:
			f := u.flight(v, h, group, next.pos, next.attempt)
			f.retry = true
			fs = append(fs, f)
		}
	}
	if w != nil && len(*w) == 0 {
		delete(u.waiting, group)
	}
	return fs
}

// outlived reports whether a delivery is not wanted any more. What is replayed is wanted whatever its message says.
func outlived(v *view, h *heldMessage, group int32, now int64) bool {
	m := h.msg
	return h.since == 0 && m.ExpiresAt != 0 && m.ExpiresAt <= now || v.policy(m.Topic, group).retry.expired(now, max(m.BornAt, h.since))
}

// end is how a delivery ends that is not made any more.
func (x owed) end(reason string) end { return end{reason, x.attempt - 1, x.err} }

// sweep drops what waits and is too old, or of a group that was dropped: the room is for others, also while nobody
// takes anything of the group.
func (u *unstored) sweep() {
	v, now := u.declared.load(), u.clock.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for group, w := range u.waiting {
		gone := v.GroupNames[group] == ""
		*w = slices.DeleteFunc(*w, func(x owed) bool {
			switch {
			case !u.owes(x.pos, group): // acknowledged late
			case gone:
				u.finish(x.pos, group, x.end(droppedGroup))
			case outlived(v, u.held[x.pos], group, now):
				u.finish(x.pos, group, x.end(deadExpired))
			default:
				return false
			}
			return true
		})
		heap.Init(w)
		if len(*w) == 0 {
			delete(u.waiting, group)
		}
	}
}

// wait puts a delivery into the line. The lock is held.
func (u *unstored) wait(group int32, x owed) {
	w := u.waiting[group]
	if w == nil {
		w = &owedHeap{}
		u.waiting[group] = w
	}
	heap.Push(w, x)
}
