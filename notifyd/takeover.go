package notifyd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// balance looks at all leases and makes the next moves. It reports false when the store
// cannot be read, which renew logs.
func (k *keeper) balance(ctx, work context.Context) bool {
	look, cancel := context.WithTimeout(ctx, k.leaseTime())
	defer cancel()
	asked := time.Now()
	leases, now, err := k.st.Leases(look)
	if err != nil {
		return false
	}
	live, err := k.st.Brokers(look, k.leaseTime())
	if err != nil {
		return false
	}
	k.clock.set(now, asked)
	if err := k.readRegistry(look); err != nil {
		k.registryTrouble.on(func() { k.log.Error("registry cannot be taken, no shard is", "store", k.st.Name, "err", err) })
		return false
	}
	k.registryTrouble.off()
	names := make([]string, len(live))
	for i, b := range live {
		names[i] = b.ID
	}
	k.mu.Lock()
	k.leases, k.live = leases, live
	for _, l := range leases {
		k.known[l.Shard] = max(k.known[l.Shard], l.Epoch)
		if o := k.owners[l.Shard]; o != nil && l.Void {
			o.lose() // its writers' server is not the primary any more
		}
	}
	held := slices.Collect(maps.Keys(k.owners))
	k.mu.Unlock()
	moves := shard.Balance(k.self.ID, leases, names, held, now)
	if k.takeAll(ctx, work, moves.Take) {
		k.changed(work)
	}
	if moves.Release >= 0 {
		k.handOver(work, moves.Release)
	}
	return true
}

// takersAtOnce bounds the takeovers that run side by side. Each holds one connection of the
// store's pool.
const takersAtOnce = 8

// takeAll takes shards side by side, and reports whether it got one: where the owner before
// left a transaction open, a takeover waits for a second until it kills it.
func (k *keeper) takeAll(ctx, work context.Context, shards []int) bool {
	var all errgroup.Group
	all.SetLimit(takersAtOnce)
	var taken atomic.Bool
	for _, no := range shards {
		if ctx.Err() != nil {
			break
		}
		all.Go(func() error {
			o, err := k.take(ctx, work, no, 0)
			switch {
			case err == nil:
				k.start(work, o)
				taken.Store(true)
			case !errors.Is(err, store.ErrNotFree):
				k.metrics.storeErrors.WithLabelValues(k.st.Name, "takeover").Inc()
				k.log.Warn("shard cannot be taken", "store", k.st.Name, "shard", no, "err", err)
			}
			return nil
		})
	}
	all.Wait()
	return taken.Load()
}

// take makes this broker the shard's owner. retake is its own epoch, or 0.
func (k *keeper) take(ctx, work context.Context, no int, retake int64) (_ *owner, err error) {
	inserts, err := k.st.NewWriter(ctx)
	if err != nil {
		return nil, err
	}
	settles, err := k.st.NewWriter(ctx)
	if err != nil {
		inserts.Close()
		return nil, err
	}
	defer func() {
		if err != nil {
			inserts.Close()
			settles.Close()
		}
	}()
	asked := time.Now()
	k.mu.Lock()
	known := k.known[no]
	k.mu.Unlock()
	t, err := k.st.Take(ctx, store.Take{Shard: no, Owner: k.self.ID, Lease: k.leaseTime(), Retake: retake, Known: known,
		Connections: []store.Connection{inserts.Connection(), settles.Connection()}})
	if err != nil {
		return nil, err
	}
	if !k.registry.load().inForce(t.Version, t.Server) || t.Moved {
		if err := k.refreshRegistry(ctx, t.Moved); err != nil {
			return nil, err
		}
	}
	o := newOwner(k.side, no, t, k.registry.load(), inserts, settles)
	o.renewed(asked, k.leaseTime())
	k.metrics.takeovers.WithLabelValues(k.st.Name).Inc()
	k.log.Info("shard taken", "store", k.st.Name, "shard", no, "epoch", t.Epoch, "failover", t.Moved)
	return o, nil
}

// handOver asks the owner of a shard to release it.
func (k *keeper) handOver(ctx context.Context, no int) {
	k.mu.Lock()
	o := k.owners[no]
	delete(k.owners, no)
	if o != nil {
		k.leaving[no] = o
	}
	k.mu.Unlock()
	if o == nil {
		return
	}
	k.changed(ctx)
	o.release()
}

// peers are the addresses of other live brokers that own shards.
func (k *keeper) peers() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	owns := map[string]bool{}
	for _, l := range k.leases {
		owns[l.Owner] = !l.Free(k.clock.now()) || owns[l.Owner]
	}
	var out []string
	for _, b := range k.live {
		if owns[b.ID] && b.ID != k.self.ID {
			out = append(out, b.Address)
		}
	}
	return out
}
