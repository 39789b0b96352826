package notifyd_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
)

// A cutter relays connections to the store and, when armed, cuts the next one that sends the
// COMMIT of an insert.
type cutter struct {
	addr  string
	to    string
	armed atomic.Int32 // cutBefore, cutAfter
	cuts  atomic.Int32
	// bodies counts statements that read bodies of messages.
	bodies atomic.Int32
	onCut  func() // called before the broker notices
}

const (
	cutBefore = 1 // the store never sees COMMIT
	cutAfter  = 2 // the store commits, the answer is lost
)

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String(), to: to}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.relay(in) })
		}
	})
	return c
}

func (c *cutter) relay(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer out.Close()
	var mute atomic.Bool // answers are lost from here on
	go func() {
		defer in.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := out.Read(buf)
			if mute.Load() && c.onCut != nil {
				c.onCut()
			}
			if err != nil || mute.Load() {
				return
			}
			if _, err := in.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	inserting := false
	buf := make([]byte, 4<<20)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		sent := buf[:n]
		if bytes.Contains(sent, []byte(".body, ")) && bytes.Contains(sent, []byte(" message_")) {
			c.bodies.Add(1)
		}
		inserting = inserting || bytes.Contains(sent, []byte("INSERT INTO message_"))
		if inserting && bytes.Contains(sent, []byte("COMMIT")) { // alone, or in one packet with the insert
			inserting = false
			switch c.armed.Swap(0) {
			case cutBefore:
				c.cuts.Add(1)
				return
			case cutAfter:
				c.cuts.Add(1)
				mute.Store(true)
			}
		}
		if _, err := out.Write(sent); err != nil {
			return
		}
	}
}

// behind returns the stage with its store behind a cutter.
func behind(t *testing.T) (*stage, *cutter) {
	s := newStage(t)
	cfg, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cut := newCutter(t, cfg.Addr)
	cfg.Net, cfg.Addr = "tcp", cut.addr
	s.dsn = cfg.FormatDSN()
	return s, cut
}

func TestAConnectionCutAtCommitIsAnsweredByWhatTheStoreHolds(t *testing.T) {
	s, cut := behind(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")

	cut.onCut = func() {
		for end := time.Now().Add(20 * time.Second); s.rows("message") == 0 && time.Now().Before(end); {
		}
	}
	cut.armed.Store(cutAfter) // committed: the first try is answered with success
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("committed")})
	if cut.cuts.Load() != 1 {
		t.Fatal("the connection was not cut")
	}
	if n := s.rows("message"); n != 1 {
		t.Fatalf("%d rows after a cut behind COMMIT, want 1", n)
	}

	cut.armed.Store(cutBefore) // rolled back: the client's retry stores it, once
	second := s.publish(c, client.Message{Topic: "orders", Body: []byte("rolled back")})
	if cut.cuts.Load() != 2 {
		t.Fatal("the connection was not cut")
	}
	if n := s.rows("message"); n != 2 {
		t.Fatalf("%d rows after a cut before COMMIT, want 2", n)
	}
	r := s.consume(c, "g", nil)
	s.until("both delivered and gone", func() bool { return r.count() == 2 && s.rows("message")+s.rows("pending") == 0 })
	if r.got[id] == 0 || r.got[second] == 0 {
		t.Errorf("delivered %v, want %s and %s", r.got, id, second)
	}
}

func TestAnOutcomeThatCannotBeLearnedIsUnknownNotFailed(t *testing.T) {
	s, cut := behind(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.LeaseTime = notifyd.Duration(1e9) })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	// Another owner takes the shards in the moment of the cut: absent rows prove nothing.
	cut.onCut = func() {
		for _, q := range []string{"UPDATE epoch SET epoch = epoch + 1", "UPDATE lease SET owner = 'thief', epoch = epoch + 1"} {
			if _, err := s.db.Exec(q); err != nil {
				t.Error(err)
			}
		}
	}
	cut.armed.Store(cutAfter)
	_, err := c.Publish(t.Context(), client.Message{Topic: "orders", Body: []byte("y")}, client.PublishOptions{NoDedup: true})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonResultUnknown {
		t.Fatalf("Publish = %v, want result unknown", err)
	}
}
