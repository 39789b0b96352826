package notifyd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A keeper holds the broker's shards in one store: it renews leases, takes free shards up to
// its share, hands over what is above it, and takes a shard again when an outcome is unknown.
type keeper struct {
	*core
	st      *store.Store
	self    store.Broker
	changed func(context.Context) // the set of owners changed
	looked  chan struct{}         // closed after the first look at the leases

	mu     sync.Mutex
	owners map[int]*owner
	leases []shard.Lease
	live   []store.Broker
	away   bool
	stop   bool

	group errgroup.Group // running owners
}

func newKeeper(c *core, st *store.Store, self store.Broker, changed func(context.Context)) *keeper {
	return &keeper{core: c, st: st, self: self, changed: changed, looked: make(chan struct{}), owners: map[int]*owner{}}
}

func (k *keeper) leaseTime() time.Duration { return time.Duration(k.cfg.LeaseTime) }

// period is how often leases are renewed and looked at: five times within a lease.
func (k *keeper) period() time.Duration { return k.leaseTime() / 5 }

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
	owners := slices.Collect(maps.Values(k.owners))
	k.mu.Unlock()
	renewing, end := context.WithCancel(work)
	loops.Go(func() error { k.every(renewing, k.renew); return nil })
	for _, o := range owners {
		o.release()
	}
	k.group.Wait()
	end()
	loops.Wait()
	return k.st.Farewell(work, k.self.ID)
}

// every calls f at once and then each period.
func (k *keeper) every(ctx context.Context, f func(context.Context)) {
	t := time.NewTicker(k.period())
	defer t.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// renew prolongs the leases and says that the broker lives. It never waits for a takeover.
func (k *keeper) renew(ctx context.Context) {
	held := map[int]int64{}
	k.mu.Lock()
	for no, o := range k.owners {
		held[no] = o.epoch
	}
	owners := maps.Clone(k.owners)
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.leaseTime())
	defer cancel()
	asked := time.Now()
	kept, err := k.st.Renew(ctx, k.self.ID, held, k.leaseTime())
	for _, no := range kept {
		owners[no].renewed(asked, k.leaseTime())
	}
	if err == nil {
		err = k.st.Heartbeat(ctx, k.self)
	}
	k.reached(ctx, err)
}

// reached notes whether the store answers, with one log line per change.
func (k *keeper) reached(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	k.mu.Lock()
	was := k.away
	k.away = err != nil
	k.mu.Unlock()
	switch {
	case err != nil && !was:
		k.metrics.storeUp.WithLabelValues(k.st.Name).Set(0)
		k.log.Error("store away", "store", k.st.Name, "err", err)
	case err == nil:
		k.metrics.storeUp.WithLabelValues(k.st.Name).Set(1)
		if was {
			k.log.Info("store is back", "store", k.st.Name)
		}
	}
}

// balance looks at all leases and makes the next moves. It reports false when the store
// cannot be read, which renew logs.
func (k *keeper) balance(ctx, work context.Context) bool {
	look, cancel := context.WithTimeout(ctx, k.leaseTime())
	defer cancel()
	leases, now, err := k.st.Leases(look)
	if err != nil {
		return false
	}
	live, err := k.st.Brokers(look, k.leaseTime())
	if err != nil {
		return false
	}
	k.clock.set(now)
	if err := k.readRegistry(look); err != nil {
		return false
	}
	names := make([]string, len(live))
	for i, b := range live {
		names[i] = b.ID
	}
	k.mu.Lock()
	k.leases, k.live = leases, live
	held := slices.Collect(maps.Keys(k.owners))
	k.mu.Unlock()
	moves := shard.Balance(k.self.ID, leases, names, held, now)
	taken := false
	for _, no := range moves.Take {
		if ctx.Err() != nil {
			break
		}
		o, err := k.take(ctx, work, no, 0)
		if err == nil {
			k.start(work, o)
			taken = true
		} else if !errors.Is(err, store.ErrNotFree) {
			k.metrics.storeErrors.WithLabelValues(k.st.Name, "takeover").Inc()
			k.log.Warn("shard cannot be taken", "store", k.st.Name, "shard", no, "err", err)
		}
	}
	if taken {
		k.changed(work)
	}
	if moves.Release >= 0 {
		k.handOver(work, moves.Release)
	}
	return true
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
	t, err := k.st.Take(ctx, store.Take{Shard: no, Owner: k.self.ID, Lease: k.leaseTime(), Retake: retake,
		Connections: []store.Connection{inserts.Connection(), settles.Connection()}})
	if err != nil {
		return nil, err
	}
	if k.registry.load().Version < t.Version {
		if err := k.readRegistry(ctx); err != nil {
			return nil, err
		}
	}
	o := newOwner(k.core, k.st, no, t, k.registry.load(), inserts, settles)
	o.renewed(asked, k.leaseTime())
	k.metrics.takeovers.WithLabelValues(k.st.Name).Inc()
	k.log.Info("shard taken", "store", k.st.Name, "shard", no, "epoch", t.Epoch)
	return o, nil
}

// readRegistry takes the registry in force if it is newer than the broker's copy.
func (k *keeper) readRegistry(ctx context.Context) error {
	version, err := k.st.RegistryVersion(ctx)
	if err != nil || k.registry.load().Version >= version {
		return err
	}
	r, err := k.st.Registry(ctx)
	if err != nil {
		return err
	}
	k.registry.offer(newView(r))
	return nil
}

// start runs an owner until it ends.
func (k *keeper) start(work context.Context, o *owner) {
	k.mu.Lock()
	k.owners[o.no] = o
	stop := k.stop
	k.mu.Unlock()
	if stop {
		o.release()
	}
	k.group.Go(func() error {
		err := o.run(work)
		k.mu.Lock()
		if k.owners[o.no] == o {
			delete(k.owners, o.no)
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
		if err := k.st.Release(work, o.no, o.epoch, k.self.ID); err != nil {
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

// handOver asks the owner of a shard to release it.
func (k *keeper) handOver(ctx context.Context, no int) {
	k.mu.Lock()
	o := k.owners[no]
	delete(k.owners, no) // no new messages
	k.mu.Unlock()
	if o == nil {
		return
	}
	k.changed(ctx)
	o.release()
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

func (k *keeper) isAway() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away
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
