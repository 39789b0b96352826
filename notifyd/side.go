package notifyd

import (
	"context"
	"time"

	"github.com/google/uuid"

	"notifymirror/notifyd/store"
)

// A side is the broker's side of one store: what its keeper and its owners share.
type side struct {
	*core
	st       *store.Store
	storeID  uuid.UUID
	leader   string // id of the store whose registry is copied into this one; empty: the main store
	clock    *clock
	registry *registry // what is in force in this store, as far as it was read
}

func newSide(c *core, st *store.Store, leader string, now time.Time) *side {
	s := &side{core: c, st: st, storeID: uuid.MustParse(st.StoreID), leader: leader, clock: newClock(now), registry: &registry{}}
	if leader == "" {
		s.registry = c.declared
	}
	return s
}

// readRegistry makes the copy here what is in force in the store, which follows what the main
// store declares. The error says why it does not.
func (s *side) readRegistry(ctx context.Context) error { return s.refreshRegistry(ctx, false) }

// refreshRegistry is readRegistry. anew reads it also when it has the version that is known at this server: it may have
// been the primary before, and another between.
func (s *side) refreshRegistry(ctx context.Context, anew bool) error {
	version, server, err := s.st.RegistryVersion(ctx)
	if err == nil && s.leader != "" {
		version, err = s.followMain(ctx, version)
	}
	known := s.registry.load()
	if err != nil || known.inForce(version, server) && !anew {
		return err
	}
	r, err := s.st.Registry(ctx)
	if err != nil {
		return err
	}
	if known != nil && r.Version < known.Version {
		s.log.Error("registry went back: the store was restored, or another server took its place, without the latest changes",
			"store", s.st.Name, "version", r.Version, "before", known.Version)
	}
	s.registry.take(known, s.viewer.view(r, known))
	return nil
}

// followMain brings the main store's registry into this one, which has the version, and returns the one in force then.
func (s *side) followMain(ctx context.Context, version int64) (int64, error) {
	v := s.declared.load()
	if v.Version == version {
		return version, nil
	}
	return v.Version, s.st.FollowRegistry(ctx, s.leader, v.Registry)
}
