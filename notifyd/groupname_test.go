package notifyd

import (
	"testing"

	"notifymirror/notifyd/store"
)

// A failover may lose a group; its id is given again then, to the same name or to another.
func TestAGroupWhoseIDIsGivenAgainBeginsAnew(t *testing.T) {
	side := newTestSide()
	version := int64(0)
	declare := func(names map[int32]string) {
		version++
		side.registry.take(side.registry.load(), side.viewer.view(&store.Registry{Version: version, GroupNames: names}, nil))
	}
	over := func(dropped <-chan struct{}) bool {
		select {
		case <-dropped:
			return true
		default:
			return false
		}
	}
	g := side.hub.group(7)
	declare(map[int32]string{7: "g"})
	_, first := g.follow(side.declared)
	if _, again := g.follow(side.declared); again != first || over(first) {
		t.Fatal("a group that stays declared is dropped")
	}
	declare(nil)
	if name, _ := g.follow(side.declared); name != "" || !over(first) {
		t.Error("the group that was lost is not dropped")
	}
	declare(map[int32]string{7: "g"})
	_, second := g.follow(side.declared)
	if over(second) {
		t.Error("the group that is declared again is taken for the one that was dropped")
	}
	declare(map[int32]string{7: "other"}) // this broker did not see the version between
	if name, third := g.follow(side.declared); name != "other" || !over(second) || over(third) {
		t.Error("who attached to the group that was lost gets what is another's")
	}
}
