package notifyd

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// relayShard is the shard into which a store's outbox is relayed. Its owner is the relay: its
// epoch fences the relay as it fences everything else.
const relayShard = 0

const (
	// relayPoll is how often the outbox is read behind the cursor, and relayIdle how often
	// when nothing came for a second.
	relayPoll = 5 * time.Millisecond
	relayIdle = 20 * time.Millisecond
	// relaySweep is how often it is read from the start: rows commit out of order, so one may
	// appear behind the cursor, however late.
	relaySweep = 50 * time.Millisecond
)

// A relayWork is what the relay gives to the inserter, which has the shard's one slot: rows to
// make messages of, or one row to reject.
type relayWork struct {
	rows   []store.OutboxRow
	reject string // the reason
	done   chan error
}

// relayLoop moves committed outbox rows into the message table, in the order of seq among
// those that it sees together.
func (o *owner) relayLoop(ctx context.Context) error {
	if o.no != relayShard {
		return nil
	}
	t := time.NewTimer(relayPoll)
	defer t.Stop()
	var cursor int64
	var room waitingRoom
	swept, busy := time.Time{}, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			return nil
		case <-t.C:
		}
		now := time.Now()
		if now.Sub(swept) >= relaySweep {
			cursor, swept = 0, now
		}
		n, err := o.relayOnce(ctx, &cursor, &room)
		switch {
		case err == nil:
			o.relayTrouble.off()
		case errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnknown) || ctx.Err() != nil:
			return err
		default:
			o.metrics.storeErrors.WithLabelValues(o.st.Name, "relay").Inc()
			o.relayTrouble.on(func() { o.log.Warn("relaying the outbox failed and is tried again", "store", o.st.Name, "err", err) })
		}
		if n > 0 {
			busy = now
		}
		switch {
		case n == maxBatchRows:
			t.Reset(0)
		case now.Sub(busy) < time.Second:
			t.Reset(relayPoll)
		default:
			t.Reset(relayIdle)
		}
	}
}

// relayOnce relays what is to be read now, and returns how many rows it read.
func (o *owner) relayOnce(ctx context.Context, cursor *int64, room *waitingRoom) (int, error) {
	rows, err := o.st.OutboxRows(ctx, *cursor, maxBatchRows, room.open(time.Now())...)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	*cursor = rows[len(rows)-1].Seq
	var good []store.OutboxRow
	var unjudged error
	bytes := 0
	for _, r := range rows {
		reason, err := o.judge(ctx, &r, room)
		if err != nil { // it stays, and holds no other up
			unjudged = err
			continue
		}
		if reason != nil {
			if err := o.relay(ctx, good); err != nil {
				return len(rows), err
			}
			good, bytes = nil, 0
			if err := o.reject(ctx, r, reason); err != nil {
				return len(rows), err
			}
			continue
		}
		if bytes += r.Msg.Size(); bytes > maxBatchBytes && len(good) > 0 {
			if err := o.relay(ctx, good); err != nil {
				return len(rows), err
			}
			good, bytes = nil, r.Msg.Size()
		}
		good = append(good, r)
	}
	return len(rows), errors.Join(o.relay(ctx, good), unjudged)
}

// judge returns the reason why a row cannot be a message, or nil. A row for which it returns an error stays.
func (o *owner) judge(ctx context.Context, r *store.OutboxRow, room *waitingRoom) (reason, err error) {
	if r.Problem != nil {
		return r.Problem, nil
	}
	if r.Msg.ID == uuid.Nil {
		return &message.FieldError{Field: "id", Rule: "missing; give 16 bytes of a UUID"}, nil
	}
	if err := r.Msg.Validate(int(o.cfg.MaxBodyBytes)); err != nil {
		return err, nil
	}
	topic, err := o.topic(ctx, r.Msg.Topic)
	var unknown *apiError
	switch {
	case errors.As(err, &unknown):
		return unknown, nil
	case errors.Is(err, store.ErrCollides):
		return err, nil
	}
	if err == nil && inMemory(topic) {
		return checkUnstored(r.Msg.Topic, "outbox rows"), nil
	}
	r.Msg.Mirrored = topic.Mirrored
	if err := o.mirrorable(r.Msg); err != nil {
		return err, nil
	}
	if _, here := o.registry.load().Topics[r.Msg.Topic]; err == nil && !here {
		err = o.readRegistry(ctx) // declared, and not yet in force in this store
	}
	if err == nil {
		err = room.hold(ctx, o, topic)
	}
	return nil, err
}

func (o *owner) relay(ctx context.Context, rows []store.OutboxRow) error {
	if len(rows) == 0 {
		return nil
	}
	err := o.hand(ctx, relayWork{rows: rows})
	if !errors.Is(err, store.ErrOutboxMoved) || len(rows) == 1 {
		return ignoreMoved(err)
	}
	for i := range rows { // one of them has gone: the others go singly
		if err := ignoreMoved(o.hand(ctx, relayWork{rows: rows[i : i+1]})); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMoved(err error) error {
	if errors.Is(err, store.ErrOutboxMoved) {
		return nil
	}
	return err
}

// hand gives work to the inserter and waits.
func (o *owner) hand(ctx context.Context, w relayWork) error {
	w.done = make(chan error, 1)
	select {
	case o.relays <- w:
	case <-o.releasing:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-w.done:
		return err
	case <-o.inserted:
		return ctx.Err()
	}
}

// doRelay is the inserter's side of hand. Its error ends the ownership.
func (o *owner) doRelay(ctx context.Context, w relayWork) error {
	var err error
	if w.reject != "" {
		err = o.inserts.Reject(context.WithoutCancel(ctx), o.no, o.epoch, w.rows[0], w.reject)
	} else {
		err = o.insertRelayed(ctx, w.rows)
	}
	w.done <- err
	if errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrFenced) {
		return err
	}
	return nil
}

func (o *owner) insertRelayed(ctx context.Context, rows []store.OutboxRow) error {
	var first shard.Pos
	began := time.Now()
	fence, err := o.try(ctx, func(ctx context.Context) (fence store.Fence, err error) {
		fence, first, err = o.inserts.Relay(ctx, o.no, o.epoch, rows, o.begin)
		return fence, err
	})
	if err != nil {
		return err
	}
	o.hub.yield.published(o.hub.clock.now(), time.Since(began).Microseconds())
	stored := make([]shard.Stored, len(rows))
	for i, r := range rows {
		stored[i] = storedAt(first+shard.Pos(i), r.Msg)
		o.metrics.published.WithLabelValues(r.Msg.Topic, "outbox").Inc()
		o.metrics.publishedBytes.WithLabelValues(r.Msg.Topic).Add(float64(contentSize(r.Msg)))
	}
	o.exchanged(ctx, fence, o.committed(fence, stored))
	return nil
}

func (o *owner) reject(ctx context.Context, r store.OutboxRow, reason error) error {
	o.metrics.outboxRejected.WithLabelValues(o.st.Name).Inc()
	o.log.Warn("outbox row rejected", "store", o.st.Name, "seq", r.Seq, "reason", reason)
	return ignoreMoved(o.hand(ctx, relayWork{rows: []store.OutboxRow{r}, reject: reason.Error()}))
}
