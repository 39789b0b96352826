package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// maxErrorBytes is how much of a delivery's error is kept.
const maxErrorBytes = 1000

// A Settlement is one transaction of a shard's settler. No position of the plan is in another part.
type Settlement struct {
	Shard int
	Epoch int64
	// Plan settles messages from the owner's memory.
	Plan *shard.Plan
	// Acks are acknowledgements of settled messages: their pending rows and dead letters go,
	// and with the last row the message.
	Acks []shard.Ack
	// Fails are pending rows with their next attempt; a row that is gone, or has seen a
	// later attempt, stays as it is. One without attempts takes the first back, which did not leave.
	Fails []shard.PendingRow
	// Deads are pending rows that become dead letters; one that is gone stays so.
	Deads []shard.DeadRow
	// Completed is set by Settle: how many dead letters went by Acks.
	Completed int
}

// Settle runs a settlement in one transaction. It returns ErrVersion when the registry is
// not of the plan's version. See Writer.write for its other errors.
func (w *Writer) Settle(ctx context.Context, s *Settlement) (Fence, error) {
	var b statements
	b.deleteSettled(s)
	b.undelay(s)
	b.insertPending(s)
	b.insertDead(s)
	b.failPending(s)
	b.buryPending(s)
	b.moveSettled(s)
	if len(s.Acks) == 0 { // nothing has to be read
		fence, err := w.once(ctx, s.Shard, guard{s.Epoch, s.Plan.Version}, &b)
		if !errors.Is(err, errGuard) {
			return fence, err
		}
	}
	return w.write(ctx, s.Shard, s.Epoch, func(ctx context.Context, f Fence) error {
		if f.Version != s.Plan.Version {
			return ErrVersion
		}
		if err := w.exec(ctx, b.text.String(), b.args...); err != nil {
			return err
		}
		return w.ackRows(ctx, s)
	})
}

func (w *Writer) exec(ctx context.Context, query string, args ...any) error {
	if query == "" {
		return nil
	}
	_, err := w.conn.ExecContext(ctx, query, args...)
	return err
}

func (b *statements) deleteMessages(no int, poss []shard.Pos) {
	if len(poss) > 0 {
		b.add(deleteByPos(schema.Message(no), poss, ""))
	}
}

func (b *statements) deleteSettled(s *Settlement) {
	b.deleteMessages(s.Shard, slices.Sorted(slices.Values(s.Plan.Delete)))
}

func (b *statements) undelay(s *Settlement) {
	if len(s.Plan.Undelay) > 0 {
		b.deleteRows(schema.Pending(s.Shard), shard.Delayed, slices.Sorted(slices.Values(s.Plan.Undelay)))
	}
}

func (b *statements) deleteRows(table string, group int32, poss []shard.Pos) {
	b.add(deleteByPos(table, poss, " AND t.group_id = ?"), group)
}

func byPosition(a, b shard.PendingRow) int {
	return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Group, b.Group))
}

func (b *statements) insertPending(s *Settlement) {
	rows := slices.SortedFunc(slices.Values(s.Plan.Pending), byPosition)
	for part := range slices.Chunk(rows, 500) {
		args := make([]any, 0, 6*len(part))
		for _, r := range part {
			args = append(args, int64(r.Pos), r.Group, r.NextAt, r.Attempts, clip(r.Err), firstError(r))
		}
		b.add("INSERT INTO "+schema.Pending(s.Shard)+" (pos, group_id, next_at, attempts, last_error, first_error) VALUES "+
			tuples(len(part), 6), args...)
	}
}

// firstError is the error of a row that was attempted once at most, or nil.
func firstError(r shard.PendingRow) any {
	if r.Err == "" {
		return nil
	}
	return clip(r.Err)
}

// clip keeps the beginning of an error, as valid UTF-8.
func clip(s string) string {
	if len(s) > maxErrorBytes {
		s = s[:maxErrorBytes]
	}
	return strings.ToValidUTF8(s, "")
}

// ackRows deletes acknowledged rows. It acts on rows that exist only: an ack says
// nothing about a message of which no row is there.
func (w *Writer) ackRows(ctx context.Context, s *Settlement) error {
	acked := map[shard.Ack]bool{}
	for _, a := range s.Acks {
		acked[a] = true
	}
	s.Completed = 0
	_, err := w.dropRows(ctx, s.Shard, positions(s.Acks, func(a shard.Ack) shard.Pos { return a.Pos }), func(r row) bool {
		gone := acked[shard.Ack{Pos: r.pos, Group: r.group}]
		if gone && r.dead {
			s.Completed++
		}
		return gone
	})
	return err
}

func (b *statements) failPending(s *Settlement) {
	rows := slices.SortedFunc(slices.Values(s.Fails), byPosition)
	for part := range slices.Chunk(rows, 200) {
		args := make([]any, 0, 5*len(part))
		for _, r := range part {
			args = append(args, int64(r.Pos), r.Group, r.NextAt, r.Attempts, clip(r.Err))
		}
		values := "SELECT ? AS pos, ? AS group_id, ? AS next_at, ? AS attempts, ? AS last_error" +
			strings.Repeat(" UNION ALL SELECT ?, ?, ?, ?, ?", len(part)-1)
		b.add("UPDATE ("+values+") v STRAIGHT_JOIN "+schema.Pending(s.Shard)+" p FORCE INDEX (PRIMARY) ON p.pos = v.pos AND p.group_id = v.group_id"+
			" SET p.next_at = v.next_at, p.attempts = v.attempts, p.last_error = v.last_error,"+
			" p.first_error = IF(v.attempts = 0, NULL, IF(v.attempts = 1 OR p.first_error IS NULL, v.last_error, p.first_error))"+
			" WHERE p.attempts <= GREATEST(v.attempts, 1)", args...)
	}
}

func (b *statements) moveSettled(s *Settlement) {
	b.add("UPDATE settled SET pos = ? WHERE shard = ? AND pos < ?", int64(s.Plan.Settled), s.Shard, int64(s.Plan.Settled))
}
