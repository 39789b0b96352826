package notifyd

import (
	"sync"
	"testing"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// The renewal finds a lease gone while the look at all leases finds it void.
func TestAShardMayBeLostTwiceAtOnce(t *testing.T) {
	o := newTestOwner(shard.At(1, 1))
	for range 50_000 {
		o := newOwner(o.side, 0, store.Taken{Epoch: 1, Version: 1}, o.registry.load(), nil, nil)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { <-begin; o.lose() })
		}
		close(begin)
		all.Wait()
		<-o.lost
	}
}
