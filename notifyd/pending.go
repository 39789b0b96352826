package notifyd

import (
	"context"
	"time"
)

// pendingShare bounds the time spent counting pending rows for those who list groups: a count is
// handed out again for this many times as long as it took.
const pendingShare = 20

// pendingCounts are the pending rows of all groups, in the shards owned here, as they were counted
// last for somebody who asked.
type pendingCounts struct {
	turn  chan struct{} // has room for who counts
	rows  map[int32]pendingCount
	until time.Time // as long as the rows are good enough
}

// pendingCount is how many rows wait for a group, at least when cut.
type pendingCount struct {
	rows uint64
	cut  bool
}

func newPendingCounts() *pendingCounts { return &pendingCounts{turn: make(chan struct{}, 1)} }

// of returns the rows by group. Who comes while they are counted waits, and counts none itself.
func (p *pendingCounts) of(ctx context.Context, stores []*keeper) (map[int32]pendingCount, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	if began.Before(p.until) {
		return p.rows, nil
	}
	rows := map[int32]pendingCount{}
	for _, k := range stores {
		for _, o := range k.owned() {
			if err := o.countPending(ctx, rows); err != nil {
				return nil, err
			}
		}
	}
	p.rows, p.until = rows, time.Now().Add(pendingShare*time.Since(began))
	return rows, nil
}

// countPending adds what waits in this shard; groups for which nothing waits cost nothing.
func (o *owner) countPending(ctx context.Context, rows map[int32]pendingCount) error {
	groups, err := o.st.PendingGroups(ctx, o.no)
	if err != nil {
		return err
	}
	for _, g := range groups {
		n, err := o.st.CountPending(ctx, o.no, g, countLimit)
		if err != nil {
			return err
		}
		c := rows[g]
		rows[g] = pendingCount{c.rows + uint64(n), c.cut || n == countLimit}
	}
	return nil
}
