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

// readRegistry takes the registry in force if it is newer than the copy here. What the main
// store declares is brought into another store first.
func (s *side) readRegistry(ctx context.Context) error {
	known := int64(-1)
	if v := s.registry.load(); v != nil {
		known = v.Version
	}
	if s.leader != "" {
		if v := s.declared.load(); v.Version > known {
			if err := s.st.FollowRegistry(ctx, s.leader, v.Registry); err != nil {
				return err
			}
		}
	}
	version, err := s.st.RegistryVersion(ctx)
	if err != nil || known >= version {
		return err
	}
	r, err := s.st.Registry(ctx)
	if err != nil {
		return err
	}
	s.registry.offer(s.viewer.view(r, s.registry.load()))
	return nil
}
