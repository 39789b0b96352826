package notifyd

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

func TestTheBodyCacheIsBoundedAndForgetsTheOldestAndWhatHasNoRows(t *testing.T) {
	size := (&message.Message{}).Size()
	c := newBodyCache(3*size, newMetrics(prometheus.NewRegistry()))
	key := func(pos shard.Pos) bodyKey { return bodyKey{pos: pos} }
	holds := func(want ...shard.Pos) {
		t.Helper()
		n := 0
		for pos := shard.Pos(1); pos < 10; pos++ {
			if c.get(key(pos)) != nil {
				if n >= len(want) || want[n] != pos {
					t.Fatalf("position %d is there, want %v", pos, want)
				}
				n++
			}
		}
		if n != len(want) || c.bytes != n*size || c.order.Len() != n {
			t.Fatalf("%d entries of %d bytes, want %v", n, c.bytes, want)
		}
	}
	for pos := shard.Pos(1); pos <= 4; pos++ {
		c.put(key(pos), &message.Message{}, 2)
	}
	c.put(key(2), &message.Message{}, 1) // there already: it keeps its place and its rows
	holds(2, 3, 4)
	c.rowGone(key(2))
	c.rowGone(key(9))
	holds(2, 3, 4)
	c.rowGone(key(2))
	c.drop(key(4))
	holds(3)
	c.put(key(5), &message.Message{Body: make([]byte, 3*size)}, 1) // larger than all
	holds(3)
	c.put(key(6), &message.Message{Body: make([]byte, size)}, 1)
	c.put(key(7), &message.Message{}, 1) // the oldest make room
	if c.get(key(3)) != nil || c.get(key(6)) == nil || c.bytes != 3*size {
		t.Errorf("%d bytes", c.bytes)
	}
}
