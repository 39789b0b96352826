package stream

import (
	"slices"
	"sync"
)

// holdings are the partitions read at present.
type holdings struct {
	mu   sync.Mutex
	list []*partition
}

func (h *holdings) add(p *partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, p)
}

func (h *holdings) remove(p *partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(o *partition) bool { return o == p })
}

// whileHeld calls f if the partition is held, and keeps it held meanwhile.
func (h *holdings) whileHeld(p *partition, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.list, p) {
		f()
	}
}

// now is a copy of the list.
func (h *holdings) now() []*partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}
