package canal

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

func TestAStreamGivesAllItHasBeforeItsError(t *testing.T) {
	s := &stream{items: make(chan item, queued), ended: make(chan error, 1), sink: &sink{}}
	for i := range 30 {
		s.items <- item{txn: &txn{gtid: gtid{seq: uint64(i)}}}
	}
	s.ended <- io.EOF
	for i := range 30 {
		if it, err := s.next(t.Context()); err != nil || it.txn.gtid.seq != uint64(i) {
			t.Fatalf("item %d: %v, %v", i, it, err)
		}
	}
	for range 2 {
		if _, err := s.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("then %v", err)
		}
	}
}

// The first event can come before the goroutine that asked for the binlog goes on.
func TestTheTimeForSearchingEndsWithTheFirstEvent(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	w := &wire{bytes: new(atomic.Uint64), idle: 20 * time.Millisecond, seek: time.Hour, conn: near}
	c := &wireConn{Conn: near, wire: w}
	w.streaming()
	w.seeking()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestAReadThatRunsWhenTheSearchBeginsGetsItsTime(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	w := &wire{bytes: new(atomic.Uint64), idle: time.Hour, seek: 20 * time.Millisecond, conn: near}
	c := &wireConn{Conn: near, wire: w}
	read := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	w.seeking()
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
