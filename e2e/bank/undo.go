package bank

import (
	"context"
	"database/sql"
	"encoding/json"

	"notifymirror/notifyd/client"
)

// undo gives the money of a refused transfer back, once.
func (b *bank) undo(ctx context.Context, d client.Delivery) error {
	var t Transfer
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return err
	}
	err := b.in(ctx, func(tx *sql.Tx) error {
		first, err := change(ctx, tx, "UPDATE transfer SET undone = 1 WHERE id = ? AND undone = 0", t.ID)
		if err != nil || !first {
			return err
		}
		if _, err := change(ctx, tx, "UPDATE account SET cents = cents + ? WHERE id = ?", t.Cents, t.Account); err != nil {
			return err
		}
		return b.mayDie(ctx, t, AUndoing)
	})
	if err != nil {
		return err
	}
	return b.mayDie(ctx, t, AUndone)
}
