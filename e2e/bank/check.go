package bank

import (
	"context"

	"notifymirror/notifyd/client"
)

// check says what became of the local transaction of a half. One that has not inserted its row
// of sent by now never will: the check inserts it first, and waits for one that just does.
func (b *bank) check(ctx context.Context, c client.Check) (client.Decision, error) {
	b.asked.Store(c.ID, true)
	if _, err := b.db.ExecContext(ctx, "INSERT INTO sent (id, happened) VALUES (?, 0) ON DUPLICATE KEY UPDATE id = id", c.ID); err != nil {
		return client.Unknown, err
	}
	var happened bool
	if err := b.db.QueryRowContext(ctx, "SELECT happened FROM sent WHERE id = ?", c.ID).Scan(&happened); err != nil {
		return client.Unknown, err
	}
	if happened {
		return client.Commit, nil
	}
	return client.Rollback, nil
}

// foundNothing reports whether a check has found that the transaction of a half did not happen.
func (b *bank) foundNothing(ctx context.Context, id string) (bool, error) {
	var n int
	err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sent WHERE id = ? AND happened = 0", id).Scan(&n)
	return n > 0, err
}

// hasBegun reports whether a half was ever asked about here.
func (b *bank) hasBegun(_ context.Context, id string) (bool, error) {
	_, begun := b.asked.Load(id)
	return begun, nil
}
