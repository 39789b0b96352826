package notifyd_test

import (
	"net"
	"sync"
	"testing"
)

// A gate relays connections to an address that may change, and can be told to stand still or to cut them:
// what a frozen or killed process looks like to those at the other end.
type gate struct {
	addr string
	l    net.Listener
	all  sync.WaitGroup

	mu    sync.Mutex
	to    string // empty: connections are refused
	conns map[net.Conn]bool
	thaw  chan struct{} // not nil: frozen until it is closed
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), l: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		g.open("")
		g.l.Close()
		g.cut()
		g.unfreeze()
		g.all.Wait()
	})
	g.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.all.Go(func() { g.serve(in) })
		}
	})
	return g
}

// open relays new connections to an address; empty: to none.
func (g *gate) open(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = to
}

// cut ends all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

// freeze holds all bytes back until unfreeze.
func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.thaw == nil {
		g.thaw = make(chan struct{})
	}
}

func (g *gate) unfreeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.thaw != nil {
		close(g.thaw)
		g.thaw = nil
	}
}

// keep notes a connection for cut, and returns where it goes.
func (g *gate) keep(c net.Conn) (to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = true
	return g.to
}

func (g *gate) drop(c net.Conn) {
	c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

// wait returns when the gate is not frozen.
func (g *gate) wait() {
	g.mu.Lock()
	thaw := g.thaw
	g.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

func (g *gate) serve(in net.Conn) {
	to := g.keep(in)
	defer g.drop(in)
	g.wait()
	if to == "" {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	g.keep(out)
	defer g.drop(out)
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer in.Close()
		g.relay(in, out)
	}()
	g.relay(out, in)
	out.Close()
	<-back
}

func (g *gate) relay(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		g.wait()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
