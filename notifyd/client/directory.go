package client

import (
	"slices"
	"sync"
	"time"
)

// directory knows the addresses of the cluster's brokers: those that brokers listed
// last, then the configured ones, and where the next call begins. Brokers are listed
// again every refresh, and soon after one has failed, but never before any has
// answered: a program that makes one call pays for no list.
type directory struct {
	configured []string
	refresh    time.Duration

	mu       sync.Mutex
	listed   []string
	first    string // where the next call begins
	answered bool   // some broker has answered
	due      time.Time
}

// order returns all addresses, the one to begin with first.
func (d *directory) order() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ring()
}

func (d *directory) ring() []string {
	all := slices.Clone(d.listed)
	for _, addr := range d.configured {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	i := max(0, slices.Index(all, d.first))
	return slices.Concat(all[i:], all[:i])
}

// worked notes that addr took a call: the next begins there.
func (d *directory) worked(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first, d.answered = addr, true
}

// failed notes that addr did not do what it should: the next call begins with the
// address behind it, and brokers are listed before.
func (d *directory) failed(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = addr
	if ring := d.ring(); ring[0] == addr && len(ring) > 1 {
		d.first = ring[1]
	}
	d.due = time.Time{}
}

// take reports whether the caller should list brokers; only one caller is told to
// within refresh.
func (d *directory) take(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.answered || now.Before(d.due) {
		return false
	}
	d.due = now.Add(d.refresh)
	return true
}

// set takes a list made at now; an empty one says nothing.
func (d *directory) set(addrs []string, now time.Time) {
	if len(addrs) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed, d.due = slices.Clone(addrs), now.Add(d.refresh)
}
