package notifyd

import (
	"container/heap"
	"slices"
)

// deadlines holds deliveries in flight by the end of their ack waits, which differ from
// subscription to subscription. Those that are done leave when their time comes, or in trim.
type deadlines struct{ byEnd flightHeap }

type flightHeap []*flight

func (h flightHeap) Len() int           { return len(h) }
func (h flightHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h flightHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *flightHeap) Push(x any)        { *h = append(*h, x.(*flight)) }
func (h *flightHeap) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return f
}

// add takes a delivery, whose deadline stays as it is.
func (d *deadlines) add(f *flight) { heap.Push(&d.byEnd, f) }

// over takes out a delivery that is not done and whose deadline has come, or returns nil.
func (d *deadlines) over(now int64) *flight {
	for len(d.byEnd) > 0 && d.byEnd[0].deadline <= now {
		if f := heap.Pop(&d.byEnd).(*flight); !f.done {
			return f
		}
	}
	return nil
}

// trim takes out what is done when that is more than half. live is how many are not.
func (d *deadlines) trim(live int) {
	if len(d.byEnd) > 2*live+1000 {
		d.byEnd = slices.DeleteFunc(d.byEnd, func(f *flight) bool { return f.done })
		heap.Init(&d.byEnd)
	}
}
