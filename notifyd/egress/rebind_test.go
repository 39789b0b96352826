package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A nameServer answers every question for an IPv4 address with the present one.
type nameServer struct {
	conn    net.PacketConn
	address atomic.Pointer[[4]byte]
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

func (s *nameServer) serve() {
	buf := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}
		m.Additionals = nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body: &dnsmessage.AResource{A: *s.address.Load()}}}
		}
		if answer, err := m.Pack(); err == nil {
			_, _ = s.conn.WriteTo(answer, from) // a lost answer is asked for again
		}
	}
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func TestANameThatComesToMeanAnotherAddressIsRefusedAtItsNextDial(t *testing.T) {
	names := startNameServer(t)
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	g := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")})
	g.resolver = names.resolver()
	client := g.Client(5*time.Second, 1)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	url := "http://receiver.example.:" + port
	names.address.Store(&[4]byte{127, 0, 0, 2})
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	client.CloseIdleConnections()
	names.address.Store(&[4]byte{10, 0, 0, 1})
	if _, err := client.Get(url); !errors.Is(err, ErrBlocked) {
		t.Errorf("after the name means 10.0.0.1: %v, want ErrBlocked", err)
	}
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}
