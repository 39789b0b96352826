package mirror

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// errCut is what a cutter's connections end with.
var errCut = errors.New("connection cut: stopping")

// A cutter is a dialer whose connections can be cut, which ends the calls that wait on
// them: sarama's calls take no context, and one that waits cannot be closed.
type cutter struct {
	next dialer
	dead atomic.Bool

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// newCutter dials through next; nil: directly, and for so long at most.
func newCutter(next dialer, timeout time.Duration) *cutter {
	if next == nil {
		next = &net.Dialer{Timeout: timeout}
	}
	return &cutter{next: next, open: make(map[net.Conn]struct{})}
}

// Dial implements dialer.
func (c *cutter) Dial(network, address string) (net.Conn, error) {
	if c.dead.Load() {
		return nil, errCut
	}
	conn, err := c.next.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return nil, errors.Join(errCut, conn.Close())
	}
	c.open[conn] = struct{}{}
	return &cutConn{Conn: conn, of: c}, nil
}

// cut closes what is open; new connections can be made.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close() // whoever uses it gets the error
	}
	clear(c.open)
}

// end closes what is open, for good.
func (c *cutter) end() {
	c.dead.Store(true)
	c.cut()
}

// cutConn is forgotten when it is closed.
type cutConn struct {
	net.Conn
	of *cutter
}

// Close implements net.Conn.
func (c *cutConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
