package stage

import (
	"net"
	"sync"
	"testing"
)

// Line is a way to a server over TCP that can be cut as a cable is: connections stay open on
// both sides, and nothing goes through, not even that the other side has closed, until the
// line is whole again. Then what was sent meanwhile arrives.
type Line struct {
	// Addr is the host:port of this end.
	Addr string

	target string
	over   chan struct{}  // closed at the end of the test
	pumps  sync.WaitGroup // and whoever accepts

	mu    sync.Mutex
	whole chan struct{} // closed while the line is whole
	conns []net.Conn
}

// NewLine is a whole line to target, until the test ends.
func NewLine(t testing.TB, target string) *Line {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{Addr: ln.Addr().String(), target: target, over: make(chan struct{}), whole: make(chan struct{})}
	close(l.whole)
	l.pumps.Go(func() { l.accept(ln) })
	t.Cleanup(func() {
		close(l.over)
		_ = ln.Close()
		l.mu.Lock()
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.pumps.Wait()
	})
	return l
}

// Cut cuts the line. It must be whole.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = make(chan struct{})
}

// Mend makes the line whole again. It must be cut.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.whole)
}

// pass returns when the line is whole; false at the end of the test.
func (l *Line) pass() bool {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-l.over:
		return false
	}
}

func (l *Line) accept(ln net.Listener) {
	for {
		near, err := ln.Accept()
		if err != nil {
			return // the test is over
		}
		l.keep(near)
		l.pumps.Go(func() { l.connect(near) })
	}
}

// keep has a connection closed at the end of the test.
func (l *Line) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	select {
	case <-l.over:
		_ = c.Close()
	default:
	}
}

func (l *Line) connect(near net.Conn) {
	defer near.Close()
	if !l.pass() {
		return
	}
	far, err := net.Dial("tcp", l.target)
	if err != nil {
		return // the server is down, and near is told so
	}
	defer far.Close()
	l.keep(far)
	l.pumps.Go(func() { l.pump(near, far) })
	l.pump(far, near)
}

// pump passes on what comes from one side, and that it has ended.
func (l *Line) pump(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}
