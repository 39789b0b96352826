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
		case w := <-o.relays:
			if err := o.doRelay(ctx, w); err != nil {
				return err
			}
			continue
		case <-idle.C:
			if err := o.inserts.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		leave := o.commits.enter(ctx, o.queue.len())
		batch, over := o.queue.take()
		var err error
		if len(batch) > 0 {
			err = o.insert(ctx, batch)
		}
		leave()
		if over || err != nil {
			return err
		}
	}
}

// try runs an insert transaction, again after locks, and closes the slot unless the outcome
// is unknown. A transaction that was begun is finished, also when the broker stops.
func (o *owner) try(ctx context.Context, transaction func(context.Context) (store.Fence, error)) (fence store.Fence, err error) {
	var began time.Time
	for range insertTries {
		began = time.Now()
		fence, err = transaction(context.WithoutCancel(ctx))
		if errors.Is(err, store.ErrUnknown) {
			return fence, err
		}
		o.mu.Lock()
		if err == nil {
			o.slot.Commit()
		} else {
			o.slot.Rollback()
		}
		o.mu.Unlock()
		if err == nil || !store.Retryable(err) {
			break
		}
	}
	if err == nil {
		o.clock.set(fence.Now, began)
	}
	return fence, err
}

// begin gives positions to a transaction.
func (o *owner) begin(rows int) (shard.Pos, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slot.Begin(rows)
}

// insert stores one batch and answers it. Its error ends the ownership.
func (o *owner) insert(ctx context.Context, batch []*publish) error {
	replicas, batch, err := o.guarantee(ctx, batch)
	if err != nil {
		return o.insertFailed(batch, err, 0, 0)
	}
	if len(batch) == 0 {
		return nil
	}
	items := make([]store.Item, len(batch))
	for i, p := range batch {
		items[i] = p.item
	}
	var first shard.Pos
	rows := 0
	in := &store.Insert{Shard: o.no, Epoch: o.epoch, Items: items, Window: time.Duration(o.cfg.DedupWindow).Microseconds(),
		Begin: func(n int) (pos shard.Pos, err error) {
			first, err = o.begin(n)
			rows = n
			return first, err
		}}
	replicas.prepare(o, in)
	var verdicts []store.Verdict
	fence, err := o.try(ctx, func(ctx context.Context) (fence store.Fence, err error) {
		first, rows, in.Batch = 0, 0, store.NewBatch()
		fence, verdicts, err = o.inserts.Insert(ctx, in)
		return fence, err
	})
	if err != nil {
		return o.insertFailed(batch, err, first, rows)
	}
	stored := make([]shard.Stored, 0, len(items))
	for i, v := range verdicts {
		if v.Pos != 0 {
			stored = append(stored, storedAt(v.Pos, items[i].Msg))
		}
	}
	taken := o.committed(fence, stored)
	o.hub.yield.published(o.hub.clock.now(), time.Since(batch[0].came).Microseconds())
	o.answer(batch, items, verdicts, replicas, replicas.doubt(ctx, o.inserts))
	o.exchanged(ctx, fence, taken)
	return nil
}

// taken is what was taken for delivery: messages, and what each group is owed of them.
type taken struct {
	messages   []shard.Stored
	deliveries []shard.Delivery
}

// deliver pushes what was taken.
func (o *owner) deliver(t taken) {
	o.offer(t.deliveries)
	o.broadcast(t.messages)
}

// committed takes stored messages for delivery.
func (o *owner) committed(fence store.Fence, stored []shard.Stored) (t taken) {
	o.metrics.batchRows.WithLabelValues("insert").Observe(float64(len(stored)))
	o.mu.Lock()
	defer o.mu.Unlock()
	t.deliveries = o.ledger.Committed(fence.Now, stored, o.full())
	o.count()
	for _, s := range stored {
		if s.Delayed {
			o.bodies.put(o.bodyKey(s.Pos), s.Msg, 1)
			o.hint(shard.Delayed, s.Msg.DeliverAt)
		}
	}
	if _, _, paging := o.ledger.Page(); paging {
		wake(o.readWake)
	} else {
		t.messages = stored
	}
	o.wakeSettler()
	return t
}

// exchanged pushes deliveries, and takes a newer registry that the fence told of.
func (o *owner) exchanged(ctx context.Context, fence store.Fence, t taken) {
	o.deliver(t)
	o.mu.Lock()
	old := fence.Version != o.ledger.Version()
	o.mu.Unlock()
	if old {
		if err := o.refresh(ctx); err != nil {
			o.log.Warn("registry cannot be read", "store", o.st.Name, "err", err)
		}
	}
}

// answer gives each publish its outcome. unsure says why a replica may not have those that need one, nil: it has.
func (o *owner) answer(batch []*publish, items []store.Item, verdicts []store.Verdict, replicas *guarantee, unsure error) {
	for i, p := range batch {
		v := verdicts[i]
		if d := p.item.Decide; d != nil && v.Problem == nil && !v.Repeated {
			o.metrics.finished.WithLabelValues(items[i].Msg.Topic, outcome(d)).Inc()
		}
		switch {
		case v.Problem != nil:
			p.fail(halfProblem(v.Problem))
		case v.Conflict:
			p.fail(conflict(p, v.First))
		case unsure != nil && replicas.needs(items[i].Msg, p.item.Decide):
			p.fail(replicaUnsure(unsure))
		case v.Pos != 0:
			m := items[i].Msg
			o.metrics.published.WithLabelValues(m.Topic, p.kind()).Inc()
			o.metrics.publishedBytes.WithLabelValues(m.Topic).Add(float64(contentSize(m)))
			p.stored(m.ID, v.Repeated)
		default:
			p.stored(v.First, v.Repeated)
		}
	}
}

// outcome is the metric's label of a decision.
func outcome(d *store.Decide) string {
	if d.Group == "" {
		return "manual"
	}
	return d.Decision.String()
}

// kind is the metric's label of what the publish becomes.
func (p *publish) kind() string {
	if p.item.Prepare != nil || p.item.Decide != nil {
		return "half"
	}
	return "plain"
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
