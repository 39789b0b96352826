package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// maxErrorBytes is how much of a delivery's error is kept.
const maxErrorBytes = 1000

// A Settlement is one transaction of a shard's settler. No position is in two of its parts.
type Settlement struct {
	Shard int
	Epoch int64
	// Plan settles messages from the owner's memory.
	Plan *shard.Plan
	// Acks are acknowledgements of settled messages: their pending rows go, and with the
	// last row the message.
	Acks []shard.Ack
	// Fails are pending rows with their next attempt; a row that is gone, or has seen a
	// later attempt, stays as it is.
	Fails []shard.PendingRow
}

// Settle runs a settlement in one transaction. It returns ErrVersion when the registry is
// not of the plan's version. See Writer.write for its other errors.
func (w *Writer) Settle(ctx context.Context, s *Settlement) (Fence, error) {
	return w.write(ctx, s.Shard, s.Epoch, func(ctx context.Context, f Fence) error {
		if f.Version != s.Plan.Version {
			return ErrVersion
		}
		steps := []func(context.Context, *Settlement) error{
			w.deleteSettled, w.undelay, w.insertPending, w.ackPending, w.failPending, w.moveSettled,
		}
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *Writer) exec(ctx context.Context, query string, args ...any) error {
	_, err := w.conn.ExecContext(ctx, query, args...)
	return err
}

func (w *Writer) deleteMessages(ctx context.Context, no int, poss []shard.Pos) error {
	if len(poss) == 0 {
		return nil
	}
	return w.exec(ctx, "DELETE FROM "+schema.Message(no)+" WHERE pos IN "+inList(poss))
}

func (w *Writer) deleteSettled(ctx context.Context, s *Settlement) error {
	poss := slices.Clone(s.Plan.Delete)
	slices.Sort(poss)
	return w.deleteMessages(ctx, s.Shard, poss)
}

func (w *Writer) undelay(ctx context.Context, s *Settlement) error {
	if len(s.Plan.Undelay) == 0 {
		return nil
	}
	poss := slices.Clone(s.Plan.Undelay)
	slices.Sort(poss)
	return w.deleteRows(ctx, s.Shard, shard.Delayed, poss)
}

func (w *Writer) deleteRows(ctx context.Context, no int, group int32, poss []shard.Pos) error {
	return w.exec(ctx, "DELETE FROM "+schema.Pending(no)+" WHERE pos IN "+inList(poss)+" AND group_id = ?", group)
}

func byPosition(a, b shard.PendingRow) int {
	return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Group, b.Group))
}

func (w *Writer) insertPending(ctx context.Context, s *Settlement) error {
	rows := slices.SortedFunc(slices.Values(s.Plan.Pending), byPosition)
	for part := range slices.Chunk(rows, 500) {
		args := make([]any, 0, 5*len(part))
		for _, r := range part {
			args = append(args, int64(r.Pos), r.Group, r.NextAt, r.Attempts, clip(r.Err))
		}
		err := w.exec(ctx, "INSERT INTO "+schema.Pending(s.Shard)+" (pos, group_id, next_at, attempts, last_error) VALUES "+
			tuples(len(part), 5), args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// clip keeps the beginning of an error, as valid UTF-8.
func clip(s string) string {
	if len(s) > maxErrorBytes {
		s = s[:maxErrorBytes]
	}
	return strings.ToValidUTF8(s, "")
}

// ackPending deletes acknowledged rows. It acts on rows that exist only: an ack says
// nothing about a message of which no row is there.
func (w *Writer) ackPending(ctx context.Context, s *Settlement) error {
	if len(s.Acks) == 0 {
		return nil
	}
	acked := map[shard.Ack]bool{}
	var poss []shard.Pos
	for _, a := range s.Acks {
		acked[a] = true
		poss = append(poss, a.Pos)
	}
	slices.Sort(poss)
	poss = slices.Compact(poss)
	rows, err := w.pendingGroups(ctx, s.Shard, poss)
	if err != nil {
		return err
	}
	byGroup := map[int32][]shard.Pos{}
	var last []shard.Pos
	for _, pos := range poss {
		left := 0
		for _, g := range rows[pos] {
			if acked[shard.Ack{Pos: pos, Group: g}] {
				byGroup[g] = append(byGroup[g], pos)
			} else {
				left++
			}
		}
		if left == 0 && len(rows[pos]) > 0 {
			last = append(last, pos)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(byGroup)) {
		if err := w.deleteRows(ctx, s.Shard, g, byGroup[g]); err != nil {
			return err
		}
	}
	if last, err = w.withoutDeadLetter(ctx, s.Shard, last); err != nil {
		return err
	}
	return w.deleteMessages(ctx, s.Shard, last)
}

// pendingGroups reads the groups that have a pending row, by position.
func (w *Writer) pendingGroups(ctx context.Context, no int, poss []shard.Pos) (map[shard.Pos][]int32, error) {
	rows, err := w.conn.QueryContext(ctx, "SELECT pos, group_id FROM "+schema.Pending(no)+" WHERE pos IN "+inList(poss))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[shard.Pos][]int32{}
	for rows.Next() {
		var pos shard.Pos
		var group int32
		if err := rows.Scan(&pos, &group); err != nil {
			return nil, err
		}
		out[pos] = append(out[pos], group)
	}
	return out, rows.Err()
}

// withoutDeadLetter keeps the positions of which no dead letter pins the message.
func (w *Writer) withoutDeadLetter(ctx context.Context, no int, poss []shard.Pos) ([]shard.Pos, error) {
	if len(poss) == 0 {
		return nil, nil
	}
	rows, err := w.conn.QueryContext(ctx, "SELECT DISTINCT pos FROM "+schema.DeadLetter(no)+" WHERE pos IN "+inList(poss))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	pinned := map[shard.Pos]bool{}
	for rows.Next() {
		var pos shard.Pos
		if err := rows.Scan(&pos); err != nil {
			return nil, err
		}
		pinned[pos] = true
	}
	return slices.DeleteFunc(poss, func(p shard.Pos) bool { return pinned[p] }), rows.Err()
}

func (w *Writer) failPending(ctx context.Context, s *Settlement) error {
	rows := slices.SortedFunc(slices.Values(s.Fails), byPosition)
	for part := range slices.Chunk(rows, 200) {
		args := make([]any, 0, 5*len(part))
		for _, r := range part {
			args = append(args, int64(r.Pos), r.Group, r.NextAt, r.Attempts, clip(r.Err))
		}
		values := "SELECT ? AS pos, ? AS group_id, ? AS next_at, ? AS attempts, ? AS last_error" +
			strings.Repeat(" UNION ALL SELECT ?, ?, ?, ?, ?", len(part)-1)
		err := w.exec(ctx, "UPDATE "+schema.Pending(s.Shard)+" p JOIN ("+values+") v ON p.pos = v.pos AND p.group_id = v.group_id"+
			" SET p.next_at = v.next_at, p.attempts = v.attempts, p.last_error = v.last_error WHERE p.attempts <= v.attempts", args...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) moveSettled(ctx context.Context, s *Settlement) error {
	return w.exec(ctx, "UPDATE settled SET pos = ? WHERE shard = ? AND pos < ?", int64(s.Plan.Settled), s.Shard, int64(s.Plan.Settled))
}
