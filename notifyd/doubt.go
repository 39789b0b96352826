package notifyd

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// doubtPatience bounds how long producers wait to learn the outcome of a COMMIT whose
// connection was lost.
const doubtPatience = 30 * time.Second

// retake takes a shard again after a transaction whose outcome is unknown, under a new epoch,
// so that nothing of the old one can still commit; then it reads the range and answers.
func (k *keeper) retake(work context.Context, o *owner) {
	d := o.doubt
	o.doubt = nil
	ctx, cancel := context.WithTimeout(work, doubtPatience)
	defer cancel()
	next, err := k.takeAgain(ctx, work, o)
	if next != nil {
		defer func() {
			k.start(work, next)
			k.changed(work)
		}()
	}
	if d == nil {
		return
	}
	if err != nil {
		failBatch(d.batch, resultUnknown(errors.Join(d.cause, err)))
		return
	}
	present, err := k.st.Present(ctx, o.no, d.first, d.first+shard.Pos(d.rows)-1)
	if err != nil {
		failBatch(d.batch, resultUnknown(errors.Join(d.cause, err)))
		return
	}
	d.resolve(present)
}

// takeAgain tries until the shard is this broker's again, another's, or ctx is done.
func (k *keeper) takeAgain(ctx, work context.Context, o *owner) (*owner, error) {
	for {
		next, err := k.take(ctx, work, o.no, o.epoch)
		if err == nil || errors.Is(err, store.ErrNotFree) || k.stopping() {
			return next, err
		}
		t := time.NewTimer(k.period() / 4)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, err
		case <-t.C:
		}
	}
}

// resolve answers a batch by what the range holds now. The epoch was this broker's own until
// the new one began, and nobody has deleted since: absent means that it was rolled back. What
// was prepared or decided leaves no trace in the range; it can be sent again either way.
func (d *doubt) resolve(present map[shard.Pos]uuid.UUID) {
	there := map[uuid.UUID]bool{}
	for _, id := range present {
		there[id] = true
	}
	var failed []*publish
	for _, p := range d.batch {
		switch m := p.item.Msg; {
		case m == nil || !there[m.ID]:
			failed = append(failed, p)
		case p.replicated:
			p.fail(replicaUnsure(d.cause))
		default:
			p.stored(m.ID, false)
		}
	}
	failBatch(failed, shardMoved())
}
