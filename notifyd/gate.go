package notifyd

import (
	"context"
	"time"
)

const (
	// gateWidth is how many small batches may commit at once. More would each pay for a commit,
	// and make the others' batches smaller still.
	gateWidth = 3
	// gateRows is the size of a batch that does not wait: its commit is worth its price.
	gateRows = 64
	// gatePatience bounds the wait of a small batch, so that shards which wait for locks do
	// not hold up the others.
	gatePatience = 10 * time.Millisecond
)

// A commitGate lets few small batches of a broker commit at once; those that wait grow meanwhile.
// A broker that is not busy never waits.
type commitGate struct{ places chan struct{} }

func newCommitGate() *commitGate { return &commitGate{places: make(chan struct{}, gateWidth)} }

// enter waits for a place, if the batch is small. Call leave when the batch is committed.
func (g *commitGate) enter(ctx context.Context, rows int) (leave func()) {
	if rows == 0 || rows >= gateRows {
		return func() {}
	}
	select {
	case g.places <- struct{}{}:
		return g.leave
	default:
	}
	t := time.NewTimer(gatePatience)
	defer t.Stop()
	select {
	case g.places <- struct{}{}:
		return g.leave
	case <-t.C:
	case <-ctx.Done():
	}
	return func() {}
}

func (g *commitGate) leave() { <-g.places }
