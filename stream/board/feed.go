package board

import (
	"context"
	"sync"
)

// A feed holds the latest frame, for any number of viewers. One that is slow gets the
// latest when it asks again; what it missed is gone, and nobody waits for it.
type feed struct {
	mu      sync.Mutex
	number  uint64
	latest  []byte
	changed chan struct{} // closed when there is a later one
}

func newFeed() *feed { return &feed{changed: make(chan struct{})} }

// set replaces the latest frame.
func (f *feed) set(frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	f.latest = frame
	close(f.changed)
	f.changed = make(chan struct{})
}

// next is the latest frame behind the one with a number, when there is one; ok is false
// when ctx ends before.
func (f *feed) next(ctx context.Context, after uint64) (frame []byte, number uint64, ok bool) {
	for {
		f.mu.Lock()
		frame, number, changed := f.latest, f.number, f.changed
		f.mu.Unlock()
		if number > after {
			return frame, number, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, false
		}
	}
}
