package store

import (
	"cmp"
	"context"
	"errors"
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
	var b statements
	b.deleteSettled(s)
	b.undelay(s)
	b.insertPending(s)
	b.failPending(s)
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
		return w.ackPending(ctx, s)
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
		b.deleteRows(s.Shard, shard.Delayed, slices.Sorted(slices.Values(s.Plan.Undelay)))
	}
}

func (b *statements) deleteRows(no int, group int32, poss []shard.Pos) {
	b.add(deleteByPos(schema.Pending(no), poss, " AND t.group_id = ?"), group)
}

func byPosition(a, b shard.PendingRow) int {
	return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Group, b.Group))
}

func (b *statements) insertPending(s *Settlement) {
	rows := slices.SortedFunc(slices.Values(s.Plan.Pending), byPosition)
	for part := range slices.Chunk(rows, 500) {
		args := make([]any, 0, 5*len(part))
		for _, r := range part {
			args = append(args, int64(r.Pos), r.Group, r.NextAt, r.Attempts, clip(r.Err))
		}
		b.add("INSERT INTO "+schema.Pending(s.Shard)+" (pos, group_id, next_at, attempts, last_error) VALUES "+
			tuples(len(part), 5), args...)
	}
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
	if last, err = w.withoutDeadLetter(ctx, s.Shard, last); err != nil {
		return err
	}
	var b statements
	for _, g := range slices.Sorted(maps.Keys(byGroup)) {
		b.deleteRows(s.Shard, g, byGroup[g])
	}
	b.deleteMessages(s.Shard, last)
	return w.exec(ctx, b.text.String(), b.args...)
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
			" SET p.next_at = v.next_at, p.attempts = v.attempts, p.last_error = v.last_error WHERE p.attempts <= v.attempts", args...)
	}
}

func (b *statements) moveSettled(s *Settlement) {
	b.add("UPDATE settled SET pos = ? WHERE shard = ? AND pos < ?", int64(s.Plan.Settled), s.Shard, int64(s.Plan.Settled))
}
