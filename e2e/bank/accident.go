package bank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// A Point is a place in the story at which a process can die.
type Point string

// The points, in the order of the story. The process dies by SIGKILL where nothing else is said.
const (
	// APrepared: A has prepared the message and not touched the money.
	APrepared Point = "a.prepared"
	// ALate: the same, and A lives on, but only after a check has found nothing.
	ALate Point = "a.late"
	// ADebited: A has taken the money in a transaction that is not committed.
	ADebited Point = "a.debited"
	// AHolds: the same, and A lives on, but commits only after a check has begun.
	AHolds Point = "a.holds"
	// ACommitted: A's transaction is committed, the message is not.
	ACommitted Point = "a.committed"
	// BCrediting: B has given the money in a transaction that is not committed.
	BCrediting Point = "b.crediting"
	// BCredited: B's transaction is committed, the delivery is not acknowledged.
	BCredited Point = "b.credited"
	// BSilent: the same, and B lives on, but its acknowledgement is lost.
	BSilent Point = "b.silent"
	// BRefusing: B has refused in a transaction that is not committed.
	BRefusing Point = "b.refusing"
	// BRefused: B has refused and sent the refund, the delivery is not acknowledged.
	BRefused Point = "b.refused"
	// AUndoing: A gives the money back in a transaction that is not committed.
	AUndoing Point = "a.undoing"
	// AUndone: A has given it back, the delivery is not acknowledged.
	AUndone Point = "a.undone"
)

// due reports whether the accident planned for a transfer is at this point and did not happen
// yet. It will not be due again.
func (b *bank) due(ctx context.Context, t Transfer, at Point) (bool, error) {
	if t.Accident != at {
		return false, nil
	}
	_, err := b.db.ExecContext(ctx, "INSERT INTO accident (order_id, point) VALUES (?, ?)", t.Order, at)
	if err = known(err); errors.Is(err, errKnown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("accident: %w", err)
	}
	return true, nil
}

// mayWait lets this process wait for a condition if the transfer's accident is due; for so long
// that a check should have come, and no longer.
func (b *bank) mayWait(ctx context.Context, t Transfer, at Point, until func(context.Context) (bool, error)) error {
	due, err := b.due(ctx, t, at)
	if err != nil || !due {
		return err
	}
	limit := time.NewTimer(3 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if enough, err := until(ctx); err != nil || enough {
			return err
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mayDie kills this process if the transfer's accident is due.
func (b *bank) mayDie(ctx context.Context, t Transfer, at Point) error {
	due, err := b.due(ctx, t, at)
	if err != nil || !due {
		return err
	}
	b.log.Info("accident", "order", t.Order, "point", at)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {} // until the signal arrives
}
