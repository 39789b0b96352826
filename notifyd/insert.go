package notifyd

import (
	"context"
	"errors"
	"time"

	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// pingPeriod keeps idle write connections from the server's idle limit.
const pingPeriod = 15 * time.Second

// insertTries bounds how often a batch that the store refused for a lock is sent.
const insertTries = 10

// insertLoop stores batch after batch, each when the previous one's outcome is known.
func (o *owner) insertLoop(ctx context.Context) error {
	idle := time.NewTicker(pingPeriod)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			o.queue.close()
		case <-o.queue.ready:
		case <-idle.C:
			if err := o.inserts.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		batch, over := o.queue.take()
		if over {
			return nil
		}
		if len(batch) == 0 {
			continue
		}
		if err := o.insert(ctx, batch); err != nil {
			return err
		}
	}
}

// insert stores one batch and answers it. Its error ends the ownership.
func (o *owner) insert(ctx context.Context, batch []*publish) error {
	items := make([]store.Item, len(batch))
	for i, p := range batch {
		items[i] = p.item
	}
	var first shard.Pos
	rows := 0
	in := &store.Insert{Shard: o.no, Epoch: o.epoch, Items: items, Window: time.Duration(o.cfg.DedupWindow).Microseconds(),
		Begin: func(n int) (pos shard.Pos, err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			first, err = o.slot.Begin(n)
			rows = n
			return first, err
		}}
	var fence store.Fence
	var verdicts []store.Verdict
	var err error
	for try := 0; try < insertTries; try++ {
		first, rows, in.Batch = 0, 0, store.NewBatch()
		// A publish that was begun is finished, also when the broker stops.
		fence, verdicts, err = o.inserts.Insert(context.WithoutCancel(ctx), in)
		if err == nil || errors.Is(err, store.ErrUnknown) {
			break
		}
		o.mu.Lock()
		o.slot.Rollback()
		o.mu.Unlock()
		if !store.Retryable(err) {
			break
		}
	}
	if err != nil {
		return o.insertFailed(batch, err, first, rows)
	}
	o.clock.set(fence.Now)
	o.metrics.batchRows.WithLabelValues("insert").Observe(float64(rows))
	deliveries := o.committed(fence, items, verdicts)
	o.answer(batch, verdicts)
	o.hub.offer(o.flights(deliveries))
	if fence.Version > o.registry.load().Version {
		if err := o.refresh(ctx); err != nil {
			o.log.Warn("registry cannot be read", "store", o.st.Name, "err", err)
		}
	}
	return nil
}

func (o *owner) committed(fence store.Fence, items []store.Item, verdicts []store.Verdict) []shard.Delivery {
	stored := make([]shard.Stored, 0, len(items))
	for i, v := range verdicts {
		if v.Pos != 0 {
			stored = append(stored, shard.Stored{Pos: v.Pos, Msg: items[i].Msg})
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slot.Commit()
	ds := o.ledger.Committed(fence.Now, stored, o.deliveryFull())
	o.count()
	if _, _, paging := o.ledger.Page(); paging {
		wake(o.readWake)
	}
	o.wakeSettler()
	return ds
}

func (o *owner) answer(batch []*publish, verdicts []store.Verdict) {
	for i, p := range batch {
		v := verdicts[i]
		switch {
		case v.Pos != 0:
			o.metrics.published.WithLabelValues(p.item.Msg.Topic, "plain").Inc()
			o.metrics.publishedBytes.WithLabelValues(p.item.Msg.Topic).Add(float64(contentSize(p.item.Msg)))
			p.stored(p.item.Msg.ID, false)
		case v.Conflict:
			p.fail(conflict(p, v.First))
		default:
			p.stored(v.First, true)
		}
	}
}

// insertFailed answers a batch that was not committed, or leaves it in doubt.
func (o *owner) insertFailed(batch []*publish, err error, first shard.Pos, rows int) error {
	o.metrics.storeErrors.WithLabelValues(o.st.Name, "insert").Inc()
	switch {
	case errors.Is(err, store.ErrUnknown):
		o.doubt = &doubt{batch: batch, cause: err, first: first, rows: rows}
		return err
	case errors.Is(err, store.ErrFenced):
		failBatch(batch, shardMoved())
		return err
	}
	failBatch(batch, storeRefused(o.st.Name, err))
	return nil
}

// failBatch breaks every line first, so that nothing behind the batch is taken meanwhile.
func failBatch(batch []*publish, err *apiError) {
	for _, p := range batch {
		if p.line != nil {
			p.line.broken.Store(true)
		}
	}
	for _, p := range batch {
		p.fail(err)
	}
}
