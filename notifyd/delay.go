package notifyd

import (
	"context"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// maxDelay is how far ahead a message may be delivered first.
	maxDelay = 40 * 24 * time.Hour
	// maxTTL is how long a message may live.
	maxTTL = 365 * 24 * time.Hour
)

// schedule sets when a message is delivered first and when it expires. now is the store's clock.
// One that expired within grace is taken: it may be the repeat of one that had not, and its
// idempotency key tells. If it is not, it becomes a dead letter.
func schedule(m *message.Message, in *notifyv1.Message, now, grace int64) error {
	m.DeliverAt, m.ExpiresAt = in.GetDeliverAtUs(), in.GetExpiresAtUs()
	switch delay, ttl := in.GetDelayMs(), in.GetTtlMs(); {
	case m.DeliverAt < 0:
		return &message.FieldError{Field: "deliver_at_us", Rule: "negative; 0 is at once"}
	case m.ExpiresAt < 0:
		return &message.FieldError{Field: "expires_at_us", Rule: "negative; 0 is never"}
	case delay < 0:
		return &message.FieldError{Field: "delay_ms", Rule: "negative; 0 is at once"}
	case ttl < 0:
		return &message.FieldError{Field: "ttl_ms", Rule: "negative; 0 is never"}
	case delay != 0 && m.DeliverAt != 0:
		return &message.FieldError{Field: "delay_ms", Rule: "give delay_ms or deliver_at_us, not both"}
	case ttl != 0 && m.ExpiresAt != 0:
		return &message.FieldError{Field: "ttl_ms", Rule: "give ttl_ms or expires_at_us, not both"}
	case delay > maxDelay.Milliseconds():
		return &message.FieldError{Field: "delay_ms", Rule: "more than 40 days"}
	case m.DeliverAt > now+maxDelay.Microseconds():
		return &message.FieldError{Field: "deliver_at_us", Rule: "more than 40 days ahead"}
	case ttl > maxTTL.Milliseconds():
		return &message.FieldError{Field: "ttl_ms", Rule: "more than 365 days"}
	case delay != 0:
		m.DeliverAt = now + delay*1000
	}
	if m.DeliverAt <= now {
		m.DeliverAt = 0
	}
	if ttl := in.GetTtlMs(); ttl != 0 {
		m.ExpiresAt = max(now, m.DeliverAt) + ttl*1000
	}
	if m.ExpiresAt != 0 && m.ExpiresAt <= max(now, m.DeliverAt)-grace {
		return &message.FieldError{Field: "expires_at_us", Rule: "not after the first delivery"}
	}
	return nil
}

// storedAt is a message that was inserted just now.
func storedAt(pos shard.Pos, m *message.Message) shard.Stored {
	return shard.Stored{Pos: pos, Msg: m, Delayed: m.DeliverAt != 0}
}

// exchangeDue exchanges delayed messages whose time has come. The row that says so stays until
// the message is settled: an owner that dies before leaves it to the next one.
func (o *owner) exchangeDue(ctx context.Context, group int32) (again bool, err error) {
	o.mu.Lock()
	full := o.full()
	o.mu.Unlock()
	if full {
		return false, nil
	}
	return o.readDue(ctx, group, drainRows, func(d *drain, now int64, due []store.Due) {
		o.deliver(o.takeDue(d, now, due))
	})
}

// takeDue takes the messages that are not in the ledger already and moves the cursor.
func (o *owner) takeDue(d *drain, now int64, due []store.Due) (t taken) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range due {
		d.cursor = store.Cursor{NextAt: row.NextAt, Pos: row.Pos}
		k := flightGroup{row.Pos, shard.Delayed}
		if o.busy[k] {
			continue
		}
		o.busy[k], d.found = true, true
		m := shard.Stored{Pos: row.Pos, Msg: row.Msg}
		t.messages = append(t.messages, m)
		t.deliveries = append(t.deliveries, o.ledger.Due(now, m)...)
	}
	o.count()
	o.wakeSettler()
	return t
}
