package canal

import (
	"errors"
	"io"
	"testing"
)

func TestAStreamGivesAllItHasBeforeItsError(t *testing.T) {
	s := &stream{items: make(chan item, queued), ended: make(chan error, 1), sink: &sink{}}
	for i := range 30 {
		s.items <- item{&txn{gtid: gtid{seq: uint64(i)}}}
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
