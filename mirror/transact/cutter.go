package transact

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// errCut is what a Cutter's connections end with.
var errCut = errors.New("connection cut: stopping")

// A Dialer opens connections to Kafka; tests put faults into it.
type Dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// A Cutter is a Dialer whose connections can be cut, which ends the calls that wait on
// them: sarama's calls take no context, and one that waits cannot be closed.
type Cutter struct {
	next Dialer
	dead atomic.Bool

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// NewCutter dials through next; nil: directly, and for timeout at most.
func NewCutter(next Dialer, timeout time.Duration) *Cutter {
	if next == nil {
		next = &net.Dialer{Timeout: timeout}
	}
	return &Cutter{next: next, open: make(map[net.Conn]struct{})}
}

// Dial implements Dialer.
func (c *Cutter) Dial(network, address string) (net.Conn, error) {
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

// Cut closes what is open; new connections can be made.
func (c *Cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close() // whoever uses it gets the error
	}
	clear(c.open)
}

// End closes what is open, for good.
func (c *Cutter) End() {
	c.dead.Store(true)
	c.Cut()
}

// Ended tells whether End was called.
func (c *Cutter) Ended() bool { return c.dead.Load() }

// cutConn is forgotten when it is closed.
type cutConn struct {
	net.Conn
	of *Cutter
}

// Close implements net.Conn.
func (c *cutConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
