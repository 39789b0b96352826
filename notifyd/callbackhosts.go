package notifyd

import (
	"fmt"
	"sync"
)

const (
	// callbackShare is how many of the callbacks under way may be to one host, and callbackSilentShare when the last one
	// that ended there had no answer in time: hosts that hang leave slots to the others.
	callbackShare       = callbackWorkers - 4
	callbackSilentShare = 2
	// callbackHostsKept bounds how many silent hosts are remembered.
	callbackHostsKept = 1000
)

// callbackHosts bounds the share of each host in the callbacks under way. The zero value is ready.
type callbackHosts struct {
	mu  sync.Mutex
	all map[string]callbackHost // those with one under way, or silent
}

type callbackHost struct {
	running int
	silent  bool // the last one that ended had no answer
}

func (h callbackHost) share() int {
	if h.silent {
		return callbackSilentShare
	}
	return callbackShare
}

// enter lets a callback to a host begin, or says why it has to wait and whether the host is silent.
func (c *callbackHosts) enter(name string) (cause string, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.all[name]
	if h.running >= h.share() {
		return fmt.Sprintf("not asked: %d callbacks to %s are under way", h.running, name), h.silent
	}
	if c.all == nil {
		c.all = map[string]callbackHost{}
	}
	h.running++
	c.all[name] = h
	return "", false
}

// leave ends one. silent: it had no answer in time.
func (c *callbackHosts) leave(name string, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := callbackHost{c.all[name].running - 1, silent}
	if h.running == 0 && (!silent || len(c.all) > callbackHostsKept) {
		delete(c.all, name)
		return
	}
	c.all[name] = h
}
