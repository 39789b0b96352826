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

// insertDead inserts the dead letters of messages that are settled with them. Each was
// attempted once at most, so its first error is its last.
func (b *statements) insertDead(s *Settlement) {
	for part := range slices.Chunk(s.Plan.Dead, 500) {
		args := make([]any, 0, 6*len(part))
		for _, d := range part {
			args = append(args, int64(d.Pos), d.Group, d.Reason, d.Attempts, clip(d.Err), clip(d.Err))
		}
		b.add("INSERT INTO "+schema.DeadLetter(s.Shard)+" (pos, group_id, reason, attempts, first_error, last_error, dead_at) VALUES "+
			strings.Repeat("(?,?,?,?,?,?,"+schema.NowMicros+"),", len(part)-1)+"(?,?,?,?,?,?,"+schema.NowMicros+")", args...)
	}
}

// buryPending makes dead letters of pending rows. Without an error they keep the row's own. Of
// repeats the first counts, and a dead letter that is there already stays.
func (b *statements) buryPending(s *Settlement) {
	for part := range slices.Chunk(once(s.Deads), 200) {
		args := make([]any, 0, 5*len(part))
		for _, d := range part {
			args = append(args, int64(d.Pos), d.Group, d.Reason, d.Attempts, clip(d.Err))
		}
		joined := "(SELECT ? AS pos, ? AS group_id, ? AS reason, ? AS attempts, ? AS last_error" +
			strings.Repeat(" UNION ALL SELECT ?, ?, ?, ?, ?", len(part)-1) + ") v STRAIGHT_JOIN " +
			schema.Pending(s.Shard) + " p FORCE INDEX (PRIMARY) ON p.pos = v.pos AND p.group_id = v.group_id"
		b.add("INSERT INTO "+schema.DeadLetter(s.Shard)+" (pos, group_id, reason, attempts, first_error, last_error, dead_at)"+
			" SELECT p.pos, p.group_id, v.reason, v.attempts, COALESCE(IF(v.attempts = 1, NULLIF(v.last_error, ''), NULL), p.first_error, v.last_error), IF(v.last_error = '', p.last_error, v.last_error), "+schema.NowMicros+
			" FROM "+joined+" ON DUPLICATE KEY UPDATE dead_at = "+schema.DeadLetter(s.Shard)+".dead_at", args...)
		b.add("DELETE p FROM "+joined, args...)
	}
}

// once sorts dead rows by position and group and keeps the first of each.
func once(rows []shard.DeadRow) []shard.DeadRow {
	key := func(a, b shard.DeadRow) int { return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Group, b.Group)) }
	sorted := slices.SortedStableFunc(slices.Values(rows), key)
	return slices.CompactFunc(sorted, func(a, b shard.DeadRow) bool { return key(a, b) == 0 })
}

// A Redrive is a dead letter that becomes a pending row, due at NextAt.
type Redrive struct {
	DeadKey
	NextAt int64
}

// Redrive makes pending rows of dead letters that are still there, with no attempt made and
// their age counted from now, in one transaction. It returns how many. See Writer.write for its errors.
func (w *Writer) Redrive(ctx context.Context, no int, epoch int64, rows []Redrive) (fence Fence, n int, err error) {
	fence, err = w.write(ctx, no, epoch, func(ctx context.Context, f Fence) error {
		args := make([]any, 0, 3*len(rows))
		for _, r := range rows {
			args = append(args, int64(r.Pos), r.Group, r.NextAt)
		}
		joined := "(SELECT ? AS pos, ? AS group_id, ? AS next_at" + strings.Repeat(" UNION ALL SELECT ?, ?, ?", len(rows)-1) + ") v STRAIGHT_JOIN " +
			schema.DeadLetter(no) + " d FORCE INDEX (PRIMARY) ON d.pos = v.pos AND d.group_id = v.group_id"
		res, err := w.conn.ExecContext(ctx, "INSERT INTO "+schema.Pending(no)+" (pos, group_id, next_at, attempts, last_error, first_error, counts_from)"+
			" SELECT d.pos, d.group_id, v.next_at, 0, d.last_error, NULLIF(d.first_error, ''), ? FROM "+joined, append([]any{f.Now}, args...)...)
		if err != nil {
			return err
		}
		count, err := res.RowsAffected()
		n = int(count)
		if err != nil {
			return err
		}
		return w.exec(ctx, "DELETE d FROM "+joined, args...)
	})
	return fence, n, err
}

// Purge deletes dead letters that are still there, and the messages of which no other row is
// left, in one transaction. It returns how many. See Writer.write for its errors.
func (w *Writer) Purge(ctx context.Context, no int, epoch int64, keys []DeadKey) (fence Fence, n int, err error) {
	gone := map[DeadKey]bool{}
	for _, k := range keys {
		gone[k] = true
	}
	fence, err = w.write(ctx, no, epoch, func(ctx context.Context, _ Fence) (err error) {
		n, err = w.dropRows(ctx, no, positions(keys, func(k DeadKey) shard.Pos { return k.Pos }), func(r row) bool {
			return r.dead && gone[DeadKey{r.pos, r.group}]
		})
		return err
	})
	return fence, n, err
}

// A row is the key of a pending row or a dead letter.
type row struct {
	pos   shard.Pos
	group int32
	dead  bool
}

// dropRows deletes those rows of the positions for which gone is true, and with the last row
// of a position its message. It returns how many rows went.
func (w *Writer) dropRows(ctx context.Context, no int, poss []shard.Pos, gone func(row) bool) (int, error) {
	if len(poss) == 0 {
		return 0, nil
	}
	rows, err := w.rowsOf(ctx, no, poss)
	if err != nil {
		return 0, err
	}
	type part struct {
		table string
		group int32
	}
	dropped, left, n := map[part][]shard.Pos{}, map[shard.Pos]int{}, 0
	for _, r := range rows {
		if !gone(r) {
			left[r.pos]++
			continue
		}
		p := part{schema.Pending(no), r.group}
		if r.dead {
			p.table = schema.DeadLetter(no)
		}
		dropped[p] = append(dropped[p], r.pos)
		left[r.pos] += 0
		n++
	}
	var b statements
	for _, p := range slices.SortedFunc(maps.Keys(dropped), func(x, y part) int {
		return cmp.Or(cmp.Compare(x.table, y.table), cmp.Compare(x.group, y.group))
	}) {
		b.deleteRows(p.table, p.group, dropped[p])
	}
	b.deleteMessages(no, slices.DeleteFunc(poss, func(p shard.Pos) bool {
		n, found := left[p]
		return !found || n > 0
	}))
	return n, w.exec(ctx, b.text.String(), b.args...)
}

// rowsOf reads the keys of all rows of the positions, by position.
func (w *Writer) rowsOf(ctx context.Context, no int, poss []shard.Pos) (out []row, err error) {
	rows, err := w.conn.QueryContext(ctx, "SELECT t.pos, t.group_id, 0 FROM "+joinKeys(schema.Pending(no), "pos", poss)+
		" UNION ALL SELECT t.pos, t.group_id, 1 FROM "+joinKeys(schema.DeadLetter(no), "pos", poss)+" ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.pos, &r.group, &r.dead); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// positions of a list, sorted, each once.
func positions[T any](list []T, pos func(T) shard.Pos) []shard.Pos {
	out := make([]shard.Pos, 0, len(list))
	for _, x := range list {
		out = append(out, pos(x))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
