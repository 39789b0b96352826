package notifyd

import (
	"testing"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/store"
)

func TestAVersionIsInForceOnlyAtTheServerThatItWasReadFrom(t *testing.T) {
	v := &view{Registry: &store.Registry{Version: 6, Server: 1}}
	if !v.inForce(6, 1) {
		t.Error("what is known is read again")
	}
	if v.inForce(6, 2) || v.inForce(5, 1) || (*view)(nil).inForce(0, 0) {
		t.Error("another registry is taken for the one that is known")
	}
}

// A broker was cut off while the primary was lost and something else declared at the promoted one.
func TestTheRegistryOfALostPrimaryGivesWayToOneOfTheSameVersion(t *testing.T) {
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), "a", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	side := newTestSide()
	side.st = st
	if err := side.readRegistry(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := side.registry.load()
	if err := side.readRegistry(t.Context()); err != nil || side.registry.load() != v {
		t.Errorf("what is known was read again, %v", err)
	}
	lost := *v.Registry
	lost.Server, lost.GroupNames = lost.Server+1, map[int32]string{7: "lost"}
	side.registry.take(v, side.viewer.view(&lost, v))
	if err := side.readRegistry(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := side.registry.load(); got.Version != v.Version || got.Server != v.Server || len(got.GroupNames) != 0 {
		t.Errorf("version %d of server %d with groups %v is in force here", got.Version, got.Server, got.GroupNames)
	}
}
