package bank

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/outbox"
)

// credit gives the money, or refuses it and sends it back. It does either once for each
// transfer, however often it is delivered.
func (b *bank) credit(ctx context.Context, d client.Delivery) error {
	var t Transfer
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return err
	}
	t.ID = d.ID
	var closed bool
	if err := b.db.QueryRowContext(ctx, "SELECT closed FROM account WHERE id = ?", t.Payee).Scan(&closed); err != nil {
		return err
	}
	do := b.give
	if closed && t.Order%2 == 0 {
		do = b.refuseByOutbox
	} else if closed {
		do = b.refuseByHalf
	}
	if err := do(ctx, t); err != nil && !errors.Is(err, errKnown) {
		return err
	}
	silent, err := b.due(ctx, t, BSilent)
	if err == nil && silent {
		err = client.ErrUnsettled
	}
	return err
}

func (b *bank) give(ctx context.Context, t Transfer) error {
	err := b.in(ctx, func(tx *sql.Tx) error {
		if err := b.apply(ctx, tx, t, false); err != nil {
			return err
		}
		if _, err := change(ctx, tx, "UPDATE account SET cents = cents + ? WHERE id = ?", t.Cents, t.Payee); err != nil {
			return err
		}
		return b.mayDie(ctx, t, BCrediting)
	})
	if err != nil {
		return err
	}
	return b.mayDie(ctx, t, BCredited)
}

// apply notes what B does about a transfer, or returns errKnown when it was done before.
func (b *bank) apply(ctx context.Context, tx *sql.Tx, t Transfer, refused bool) error {
	return insert(ctx, tx, "INSERT INTO applied (id, payee, cents, refused) VALUES (?, ?, ?, ?)", t.ID, t.Payee, t.Cents, refused)
}

func (b *bank) refuseByOutbox(ctx context.Context, t Transfer) error {
	m, err := refund(t)
	if err != nil {
		return err
	}
	err = b.in(ctx, func(tx *sql.Tx) error {
		if err := b.apply(ctx, tx, t, true); err != nil {
			return err
		}
		if _, err := outbox.Insert(ctx, tx, outbox.Message{Schema: b.store, Topic: m.Topic, Key: m.Key, Body: m.Body}); err != nil {
			return err
		}
		return b.mayDie(ctx, t, BRefusing)
	})
	if err != nil {
		return err
	}
	return b.mayDie(ctx, t, BRefused)
}

func (b *bank) refuseByHalf(ctx context.Context, t Transfer) error {
	m, err := refund(t)
	if err != nil {
		return err
	}
	_, err = b.producer.TransactSQL(ctx, b.db, m, func(ctx context.Context, tx *sql.Tx, h client.Half) error {
		if err := b.apply(ctx, tx, t, true); err != nil {
			return err
		}
		if err := insert(ctx, tx, "INSERT INTO sent (id, happened) VALUES (?, 1)", h.ID); err != nil {
			return errors.New("a check was faster") // the refusal is not known: again
		}
		return b.mayDie(ctx, t, BRefusing)
	})
	if err != nil {
		return err
	}
	return b.mayDie(ctx, t, BRefused)
}

// refund is the message that sends a transfer's money back.
func refund(t Transfer) (client.Message, error) {
	body, err := json.Marshal(t)
	return client.Message{Topic: TopicRefunds, Key: strconv.Itoa(t.Account), Body: body}, err
}
