package notifyd

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// Rows come, become free again and are read in pages of any size. A drain that waits has left no row behind that is due
// and free.
func TestADrainLeavesNoDueRowBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, now := newDrain(), int64(10)
		rows := map[shard.Pos]int64{} // when each is due
		busy := map[shard.Pos]bool{}
		page := func() {
			cursor := d.page()
			due := dueBehind(rows, cursor, now)
			most := rapid.IntRange(1, 3).Draw(t, "most")
			more := len(due) >= most
			for _, c := range due[:min(most, len(due))] {
				d.cursor = c
				if !busy[c.Pos] {
					busy[c.Pos], d.found = true, true
				}
			}
			switch {
			case more:
				d.goOn()
			case !d.end():
				if later := dueBehind(rows, store.Cursor{NextAt: now, Pos: 1 << 40}, never); len(later) > 0 {
					d.hint(later[0].NextAt)
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"come", "free", "page", "page", "wait"}).Draw(t, "step") {
			case "come":
				pos := shard.Pos(rapid.IntRange(1, 9).Draw(t, "pos"))
				if !busy[pos] {
					rows[pos] = now + rapid.Int64Range(-9, 9).Draw(t, "in")
					d.hint(rows[pos])
				}
			case "free":
				pos := shard.Pos(rapid.IntRange(1, 9).Draw(t, "pos"))
				if busy[pos] {
					delete(busy, pos)
					d.hint(0)
				}
			case "page":
				if d.next <= now {
					page()
				}
			case "wait":
				now++
			}
		}
		for n := 0; d.next <= now; n++ {
			if n > 100 {
				t.Fatal("the drain does not come to rest")
			}
			page()
		}
		for pos, next := range rows {
			if next <= now && !busy[pos] || next > now && d.next > next {
				t.Fatalf("row %d, due at %d, is left behind at %d; the drain waits until %d", pos, next, now, d.next)
			}
		}
	})
}

// dueBehind are the rows that are due at now, behind a cursor, in order.
func dueBehind(rows map[shard.Pos]int64, after store.Cursor, now int64) (due []store.Cursor) {
	order := func(a, b store.Cursor) int { return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), cmp.Compare(a.Pos, b.Pos)) }
	for pos, next := range rows {
		if c := (store.Cursor{NextAt: next, Pos: pos}); next <= now && order(c, after) > 0 {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, order)
	return due
}
