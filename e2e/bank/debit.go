package bank

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

const (
	// ordersAtOnce bounds the orders under way.
	ordersAtOnce = 8
	// ordersPoll is how often A looks for orders while there are none.
	ordersPoll = 20 * time.Millisecond
)

var errNoMoney = errors.New("not enough money")

// debitLoop carries open orders out until ctx ends.
func (b *bank) debitLoop(ctx context.Context) error {
	tick := time.NewTicker(ordersPoll)
	defer tick.Stop()
	for {
		orders, err := b.openOrders(ctx)
		if err != nil {
			return err
		}
		var all errgroup.Group
		for _, t := range orders {
			all.Go(func() error {
				if err := b.debit(ctx, t); err != nil && ctx.Err() == nil {
					b.log.Warn("order failed and is tried again", "order", t.Order, "err", err)
				}
				return nil
			})
		}
		_ = all.Wait() // none returns an error
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (b *bank) openOrders(ctx context.Context) ([]Transfer, error) {
	rows, err := b.db.QueryContext(ctx, "SELECT id, account, payee, cents, accident FROM orders WHERE open = 1 ORDER BY id LIMIT ?", ordersAtOnce)
	if err != nil {
		return nil, fmt.Errorf("orders: %w", err)
	}
	defer rows.Close()
	var out []Transfer
	for rows.Next() {
		var t Transfer
		if err := rows.Scan(&t.Order, &t.Account, &t.Payee, &t.Cents, &t.Accident); err != nil {
			return nil, fmt.Errorf("orders: %w", err)
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// debit carries one order out: the money is taken if and only if the message is sent.
func (b *bank) debit(ctx context.Context, t Transfer) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	m := client.Message{Topic: TopicTransfers, Key: strconv.Itoa(t.Payee), Body: body}
	_, err = b.producer.Transact(ctx, m, func(ctx context.Context, h client.Half) (client.Decision, error) {
		if err := b.mayDie(ctx, t, APrepared); err != nil {
			return client.Rollback, err
		}
		if err := b.mayWait(ctx, t, ALate, func(ctx context.Context) (bool, error) { return b.foundNothing(ctx, h.ID) }); err != nil {
			return client.Rollback, err
		}
		tx, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return client.Rollback, err
		}
		defer tx.Rollback()
		if err := b.take(ctx, tx, t, h.ID); err != nil {
			return client.Rollback, err
		}
		if err := tx.Commit(); err != nil {
			return client.Unknown, err
		}
		return client.Commit, b.mayDie(ctx, t, ACommitted)
	})
	if errors.Is(err, errNoMoney) {
		_, err = b.db.ExecContext(ctx, "UPDATE orders SET open = 0 WHERE id = ?", t.Order)
	}
	return err
}

// take is the local transaction of a debit.
func (b *bank) take(ctx context.Context, tx *sql.Tx, t Transfer, id string) error {
	if err := insert(ctx, tx, "INSERT INTO sent (id, happened) VALUES (?, 1)", id); err != nil {
		return err
	}
	ours, err := change(ctx, tx, "UPDATE orders SET open = 0 WHERE id = ? AND open = 1", t.Order)
	if err != nil {
		return err
	}
	if !ours {
		return errKnown
	}
	enough, err := change(ctx, tx, "UPDATE account SET cents = cents - ? WHERE id = ? AND cents >= ?", t.Cents, t.Account, t.Cents)
	if err != nil {
		return err
	}
	if !enough {
		return errNoMoney
	}
	if err := insert(ctx, tx, "INSERT INTO transfer (id, order_id, account, payee, cents, undone) VALUES (?, ?, ?, ?, ?, 0)",
		id, t.Order, t.Account, t.Payee, t.Cents); err != nil {
		return err
	}
	if err := b.mayWait(ctx, t, AHolds, func(ctx context.Context) (bool, error) { return b.hasBegun(ctx, id) }); err != nil {
		return err
	}
	return b.mayDie(ctx, t, ADebited)
}
