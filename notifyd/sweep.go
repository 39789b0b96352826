package notifyd

import (
	"context"

	"notifymirror/notifyd/shard"
)

// sweepRows are the most rows of one read of a sweep.
const sweepRows = 500

// sweep removes the rows of dropped groups, and reports whether there is more to do at once.
// The reader finds them, the settler removes them as if they were acknowledged: with the last
// row of a message goes the message.
//
// The copy of the registry was in force when it was read, and a settling transaction by an older
// version is refused: no more rows come of a group that the copy does not name.
func (o *owner) sweep(ctx context.Context) (again bool, err error) {
	v := o.registry.load()
	if v.Version == o.swept {
		return false, nil
	}
	groups, err := o.st.GroupsWithRows(ctx, o.no)
	if err != nil {
		return false, err
	}
	left := false
	for _, g := range groups {
		if _, declared := v.GroupNames[g]; declared || g == shard.Delayed {
			continue
		}
		left = true
		rows, err := o.st.RowsOfGroup(ctx, o.no, g, sweepRows)
		if err != nil {
			return false, err
		}
		again = o.forsake(g, rows) || again
	}
	if !left {
		o.swept = v.Version
	}
	return again, nil
}

// forsake hands rows of a dropped group to the settler, except those that it has already. It
// reports whether there were any.
func (o *owner) forsake(group int32, rows []shard.Pos) (any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.drains, group)
	for _, pos := range rows {
		if k := (flightGroup{pos, group}); !o.busy[k] {
			o.busy[k] = true
			o.acks = append(o.acks, shard.Ack{Pos: pos, Group: group})
			any = true
		}
	}
	o.wakeSettler()
	return any
}
