package notifyd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A keeper holds the broker's shards in one store: it renews leases, takes free shards up to
// its share, hands over what is above it, and takes a shard again when an outcome is unknown.
type keeper struct {
	*side
	self    store.Broker
	changed func(context.Context) // the set of owners changed
	looked  chan struct{}         // closed after the first look at the leases

	mu      sync.Mutex
	owners  map[int]*owner
	leaving map[int]*owner // handing over: renewed, but nothing comes to them any more
	leases  []shard.Lease
	known   map[int]int64 // the highest epoch of each shard that was ever seen
	live    []store.Broker
	away    bool
	stop    bool // nothing is taken any more

	registryTrouble trouble // of balance

	group errgroup.Group // running owners
}

func newKeeper(s *side, self store.Broker, changed func(context.Context)) *keeper {
	return &keeper{side: s, self: self, changed: changed, looked: make(chan struct{}),
		owners: map[int]*owner{}, leaving: map[int]*owner{}, known: map[int]int64{}}
}

// run keeps shards until ctx is done, then hands all of them over. Owners work under work,
// which outlives ctx.
func (k *keeper) run(ctx, work context.Context) error {
	var loops errgroup.Group
	loops.Go(func() error { k.every(ctx, k.renew); return nil })
	loops.Go(func() error {
		first := sync.OnceFunc(func() { close(k.looked) })
		k.every(ctx, func(ctx context.Context) {
			if k.balance(ctx, work) {
				first()
			}
		})
		return nil
	})
	<-ctx.Done()
	loops.Wait()
	k.mu.Lock()
	k.stop = true
	owners := slices.Collect(maps.Keys(k.owners))
	k.mu.Unlock()
	saying, cancel := context.WithTimeout(work, k.leaseTime())
	err := k.st.Farewell(saying, k.self.ID) // the others may take all of them
	cancel()
	renewing, end := context.WithCancel(work)
	loops.Go(func() error { k.every(renewing, k.renew); return nil })
	for _, no := range owners {
		k.handOver(work, no)
	}
	k.group.Wait()
	end()
	loops.Wait()
	return err
}

// start runs an owner until it ends.
func (k *keeper) start(work context.Context, o *owner) {
	k.mu.Lock()
	k.owners[o.no] = o
	stop := k.stop
	k.mu.Unlock()
	if stop {
		defer k.handOver(work, o.no)
	}
	k.group.Go(func() error {
		err := o.run(work)
		k.mu.Lock()
		for _, m := range []map[int]*owner{k.owners, k.leaving} {
			if m[o.no] == o {
				delete(m, o.no)
			}
		}
		k.mu.Unlock()
		k.changed(work)
		k.ended(work, o, err)
		return nil
	})
}

// ended finishes what an owner left: it gives the lease back, or takes the shard again.
func (k *keeper) ended(work context.Context, o *owner, err error) {
	log := k.log.With("store", k.st.Name, "shard", o.no, "epoch", o.epoch)
	switch {
	case err == nil:
		ctx, cancel := context.WithTimeout(work, k.leaseTime())
		defer cancel()
		if err := k.st.Release(ctx, o.no, o.epoch, k.self.ID); err != nil {
			log.Warn("lease not released, it runs out by itself", "err", err)
			return
		}
		log.Info("shard released")
	case errors.Is(err, store.ErrFenced):
		log.Warn("shard lost to another owner")
	case work.Err() != nil:
	default:
		log.Warn("outcome of a transaction unknown, taking the shard again", "err", err)
		k.retake(work, o)
	}
	if d := o.doubt; d != nil { // the broker ends first
		failBatch(d.batch, resultUnknown(d.cause))
	}
}

// owned returns the owners by shard.
func (k *keeper) owned() []*owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.Collect(maps.Values(k.owners))
	slices.SortFunc(out, func(a, b *owner) int { return a.no - b.no })
	return out
}

// owner returns the owner of a shard, or nil.
func (k *keeper) owner(no int) *owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.owners[no]
}

// stopping reports whether the broker hands everything over.
func (k *keeper) stopping() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stop
}
