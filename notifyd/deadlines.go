package notifyd

import "container/heap"

// deadlines holds deliveries in flight by the end of their ack waits, which differ from
// subscription to subscription. What is done is taken out: each holds its message.
type deadlines struct{ byEnd flightHeap }

// notPlaced is the place of a delivery that was taken out.
const notPlaced = -1

type flightHeap []*flight

func (h flightHeap) Len() int           { return len(h) }
func (h flightHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h flightHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *flightHeap) Push(x any) {
	f := x.(*flight)
	f.place = len(*h)
	*h = append(*h, f)
}
func (h *flightHeap) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	f.place = notPlaced
	(*h)[last] = nil
	*h = (*h)[:last]
	return f
}

// add takes a delivery, whose deadline stays as it is.
func (d *deadlines) add(f *flight) { heap.Push(&d.byEnd, f) }

// remove takes a delivery out that was added, if it is still in.
func (d *deadlines) remove(f *flight) {
	if f.place != notPlaced {
		heap.Remove(&d.byEnd, f.place)
	}
}

// over takes out a delivery whose deadline has come, or returns nil.
func (d *deadlines) over(now int64) *flight {
	if len(d.byEnd) == 0 || d.byEnd[0].deadline > now {
		return nil
	}
	return heap.Pop(&d.byEnd).(*flight)
}
