package notifyd

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDeliveriesEndAtTheirOwnDeadlinesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d deadlines
		live := map[*flight]bool{}
		for now := range rapid.Int64Range(1, 40).Draw(t, "until") {
			for range rapid.IntRange(0, 3).Draw(t, "new") {
				f := &flight{deadline: now + rapid.Int64Range(0, 30).Draw(t, "wait")}
				d.add(f)
				live[f] = true
			}
			for f := range live {
				if rapid.IntRange(0, 9).Draw(t, "done") == 0 {
					d.remove(f)
					d.remove(f)
					delete(live, f)
				}
			}
			if len(d.byEnd) != len(live) {
				t.Fatalf("%d are kept, %d live", len(d.byEnd), len(live))
			}
			last := int64(0)
			for f := d.over(now); f != nil; f = d.over(now) {
				if !live[f] || f.deadline > now || f.deadline < last {
					t.Fatalf("at %d over with deadline %d, live %v, behind %d", now, f.deadline, live[f], last)
				}
				last = f.deadline
				delete(live, f)
			}
			for f := range live {
				if f.deadline <= now {
					t.Fatalf("deadline %d is not over at %d", f.deadline, now)
				}
			}
		}
	})
}
