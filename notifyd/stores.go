package notifyd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/store"
)

// A storeSet holds the keepers of the stores opened so far, the main one first.
type storeSet struct {
	mu      sync.Mutex // of those who add
	current atomic.Pointer[storeList]
}

type storeList struct {
	keepers []*keeper
	byID    map[uuid.UUID]*keeper
}

func newStoreSet() *storeSet {
	s := &storeSet{}
	s.current.Store(&storeList{byID: map[uuid.UUID]*keeper{}})
	return s
}

// all returns the keepers; the list is never changed.
func (s *storeSet) all() []*keeper { return s.current.Load().keepers }

// byID returns the keeper of a store, or nil.
func (s *storeSet) byID(id uuid.UUID) *keeper { return s.current.Load().byID[id] }

// byName returns the keeper of a store by its name in the configuration, or nil.
func (s *storeSet) byName(name string) *keeper {
	for _, k := range s.all() {
		if k.st.Name == name {
			return k
		}
	}
	return nil
}

// add refuses a store that is there under another name.
func (s *storeSet) add(k *keeper) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	if twin := old.byID[k.storeID]; twin != nil {
		return fmt.Errorf("stores %s and %s are the same store: remove one from the configuration", twin.st.Name, k.st.Name)
	}
	next := &storeList{keepers: append(slices.Clone(old.keepers), k), byID: maps.Clone(old.byID)}
	next.byID[k.storeID] = k
	s.current.Store(next)
	return nil
}

// openMain opens the store that messages are published into and that declares what is declared.
func (b *Broker) openMain(ctx context.Context, self store.Broker) (err error) {
	name, address := b.cfg.mainStore()
	st, err := store.Open(ctx, name, address)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			st.Close()
		}
	}()
	leader, err := st.Leader(ctx)
	if err == nil && leader != "" {
		err = fmt.Errorf("it is an outbox-only store of the cluster whose main store is %s: give it that role, or name another store", leader)
	}
	s := newSide(b.core, st, "", time.Now())
	if err == nil {
		err = s.readRegistry(ctx)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	b.main = newKeeper(s, self, b.reroute)
	return b.stores.add(b.main)
}

// runOutboxStores opens the outbox-only stores and keeps their shards until ctx is done. One that is away
// is tried again: it holds nothing else up.
func (b *Broker) runOutboxStores(ctx, work context.Context, self store.Broker) error {
	var all errgroup.Group
	for _, name := range b.cfg.outboxStores() {
		all.Go(func() error { return b.runOutboxStore(ctx, work, self, name) })
	}
	return all.Wait()
}

func (b *Broker) runOutboxStore(ctx, work context.Context, self store.Broker, name string) error {
	var opening trouble
	retry := time.NewTicker(time.Duration(b.cfg.LeaseTime) / 5)
	defer retry.Stop()
	for {
		k, err := b.openOutboxStore(ctx, self, name)
		if err == nil {
			defer k.st.Close()
			return k.run(ctx, work)
		}
		if ctx.Err() == nil {
			b.metrics.storeUp.WithLabelValues(name).Set(0)
			opening.on(func() {
				b.log.Error("outbox-only store cannot be used yet and is tried again", "store", name, "err", err)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		}
	}
}

func (b *Broker) openOutboxStore(ctx context.Context, self store.Broker, name string) (*keeper, error) {
	st, err := store.Open(ctx, name, b.cfg.Stores[name].DSN)
	if err != nil {
		return nil, err
	}
	k := newKeeper(newSide(b.core, st, b.main.st.StoreID, time.Now()), self, func(context.Context) {})
	if err = k.readRegistry(ctx); err == nil {
		err = b.stores.add(k)
	}
	if err != nil {
		st.Close()
		return nil, err
	}
	return k, nil
}

// spreadPatience bounds how long a registry change waits for a store besides the main one.
const spreadPatience = 5 * time.Second

// spread brings what was declared into force in every store, and names those where that
// cannot be done now: there it comes into force when they are back.
func (b *Broker) spread(ctx context.Context) (away []string) {
	ctx, cancel := context.WithTimeout(ctx, spreadPatience)
	defer cancel()
	var mu sync.Mutex
	var all errgroup.Group
	for _, name := range b.cfg.outboxStores() {
		all.Go(func() error {
			err := errors.New("not open")
			if k := b.stores.byName(name); k != nil {
				err = k.readRegistry(ctx)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				away = append(away, name)
			}
			return nil
		})
	}
	all.Wait()
	slices.Sort(away)
	return away
}
