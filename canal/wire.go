package canal

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
)

// A wire makes and holds the network connection of one stream, so that it can be closed
// whatever go-mysql is doing, and dead ones be noticed.
type wire struct {
	bytes *atomic.Uint64
	idle  time.Duration // that a read may take
	seek  time.Duration // instead, while the server searches for the position
	login time.Duration // instead, before it was asked to

	mu    sync.Mutex
	conn  net.Conn
	down  bool
	phase phase
}

// A phase of a connection; it only goes up.
type phase uint8

const (
	greeting phase = iota
	searching
	flowing
)

var errCut = errors.New("connection closed by us")

// dialer is for go-mysql; ctx ends the connection, too.
func (w *wire) dialer(ctx context.Context) client.Dialer {
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		dialing, cancel := context.WithCancel(dialing)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		var d net.Dialer
		conn, err := d.DialContext(dialing, network, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down {
			return nil, errors.Join(errCut, conn.Close())
		}
		w.conn = conn
		context.AfterFunc(ctx, w.cut)
		return &wireConn{Conn: conn, wire: w}, nil
	}
}

// seeking: the server was asked to search. A read may be running already, and gets the
// longer time; or the first event may have come, and then there is nothing to wait for.
func (w *wire) seeking() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase < searching {
		w.phase = searching
		w.conn.SetReadDeadline(time.Now().Add(w.seek)) // fails only when closed
	}
}

// streaming: the first transaction or heartbeat has come, and one must come each period.
func (w *wire) streaming() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = flowing
}

// expect sets the deadline of the next read.
func (w *wire) expect() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.idle
	switch w.phase {
	case greeting:
		d = w.login
	case searching:
		d = w.seek
	}
	return w.conn.SetReadDeadline(time.Now().Add(d))
}

// cut closes the connection and lets no other be made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	if w.conn != nil {
		w.conn.Close() // nobody reads it any more
	}
}

// A wireConn counts bytes and bounds each read.
type wireConn struct {
	net.Conn
	wire *wire
}

func (c *wireConn) Read(b []byte) (int, error) {
	if err := c.wire.expect(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	c.wire.bytes.Add(uint64(n))
	return n, err
}

// SetReadDeadline does nothing: Read sets its own. go-mysql's Close wants one to end its
// goroutine, which cut has ended, and takes a failure for a reason to write to what that
// goroutine still uses.
func (c *wireConn) SetReadDeadline(time.Time) error { return nil }
