package mirror

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheOneThatWasActiveLastIsElected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) candidate {
			return candidate{rapid.StringMatching("[a-z]{1,3}").Draw(t, "member"), rapid.Int32Range(0, 4).Draw(t, "claim")}
		}), 1, 6, func(c candidate) string { return c.member }).Draw(t, "candidates")
		chosen := elect(all)
		for _, c := range all {
			if c.claim > chosen.claim {
				t.Fatalf("%+v was chosen before %+v", chosen, c)
			}
		}
		if again := elect(rapid.Permutation(all).Draw(t, "another order")); again != chosen {
			t.Fatalf("in another order %+v is chosen, not %+v", again, chosen)
		}
	})
}

// A model of the group: members come, go, and are stopped for so long that the group
// forgets them. There is at most one that the group takes for the active one, and it stays
// the active one for as long as it is there.
func TestOthersThatComeAndGoNeverDisturbTheActiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type canald struct {
			seat  seat
			known bool // to the group
		}
		all := map[string]*canald{}
		var generation int32
		share := func() {
			generation++
			var candidates []candidate
			for name, c := range all {
				if c.known {
					candidates = append(candidates, candidate{name, c.seat.claim()})
				}
			}
			if len(candidates) == 0 {
				return
			}
			chosen := elect(candidates).member
			for name, c := range all {
				if c.known {
					c.seat = seat{generation: generation, active: name == chosen, holder: chosen}
				}
			}
		}
		active := func() (names []string) {
			for name, c := range all {
				if c.known && c.seat.active {
					names = append(names, name)
				}
			}
			return names
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := active()
			names := []string{fmt.Sprintf("%02d", (i*7)%40)}
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
			name := rapid.SampledFrom(names).Draw(t, "who")
			c := all[name]
			switch {
			case c == nil:
				all[name] = &canald{known: true}
			case !c.known: // resumed: its next heartbeat tells that it is forgotten
				c.seat, c.known = outside, true
			case rapid.Bool().Draw(t, "for good"):
				delete(all, name)
			default:
				c.known = false // and still believes in its seat
			}
			share()
			after := active()
			if len(after) > 1 {
				t.Fatalf("active are %v", after)
			}
			if len(before) == 1 && all[before[0]] != nil && all[before[0]].known && !slices.Equal(before, after) {
				t.Fatalf("%s did %s; active was %v, is %v", name, "something", before, after)
			}
		}
	})
}

func TestASeatThatIsNotConfirmedIsGivenUp(t *testing.T) {
	start := time.UnixMicro(0)
	s := seat{generation: 3, active: true, holder: "a", confirmed: start}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {12 * time.Second, true}, {12*time.Second + 1, false}} {
		if got := s.after(start.Add(c.after), 12*time.Second); got.active != c.want || got != s && got != outside {
			t.Errorf("after %s: %s", c.after, got)
		}
	}
	if s.heard(start.Add(time.Minute)).after(start.Add(time.Minute+time.Second), 12*time.Second) != s.heard(start.Add(time.Minute)) {
		t.Error("an answer did not help")
	}
	if standby := (seat{generation: 3, confirmed: start}); standby.claim() != 0 || s.claim() != 3 || outside.claim() != 0 {
		t.Error("claims")
	}
}
