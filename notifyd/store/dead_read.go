package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// scanDead is how many dead letters one read looks at, whatever it finds.
const scanDead = 5000

// A DeadKey names a dead letter of a shard. They are read in the order of their keys.
type DeadKey struct {
	Pos   shard.Pos
	Group int32
}

// A DeadLetter is a delivery that ended without an acknowledgement.
type DeadLetter struct {
	DeadKey
	Reason                string
	Attempts              int
	FirstError, LastError string
	// DeadAt by the store's clock, microseconds since 1970 UTC.
	DeadAt int64
	Msg    *message.Message
}

// A DeadFilter chooses dead letters. Zero fields choose any.
type DeadFilter struct {
	Group         int32
	Topic, Reason string
	IDs           []uuid.UUID
	// Before is when they died at the latest, exclusive.
	Before int64
}

// A DeadPage says where a read of dead letters ended.
type DeadPage struct {
	// Next is the key to read behind.
	Next DeadKey
	// More is true when there may be some behind Next.
	More bool
}

// ListDead reads at most most dead letters of a shard behind a key; with bodies, about 8 MiB of them.
func (s *Store) ListDead(ctx context.Context, no int, f DeadFilter, after DeadKey, most int, bodies bool) (list []DeadLetter, page DeadPage, err error) {
	columns := messageColumns
	if !bodies {
		columns = strings.Replace(columns, "m.body", "''", 1)
	}
	bytes := 0
	page, err = s.readDead(ctx, no, f, after, most, "d.reason, d.attempts, d.first_error, d.last_error, d.dead_at, "+columns,
		func(rows *sql.Rows, k *DeadKey) (full bool, err error) {
			var d DeadLetter
			if d.Msg, err = scanMessage(rows, &k.Pos, &k.Group, &d.Reason, &d.Attempts, &d.FirstError, &d.LastError, &d.DeadAt); err != nil {
				return false, err
			}
			d.DeadKey = *k
			list = append(list, d)
			bytes += d.Msg.Size()
			return bytes >= pageBytes, nil
		})
	return list, page, err
}

// A DeadName is a dead letter by key, with what its message is called.
type DeadName struct {
	DeadKey
	Topic string
	ID    uuid.UUID
}

// FindDead reads the names of at most most dead letters of a shard behind a key.
func (s *Store) FindDead(ctx context.Context, no int, f DeadFilter, after DeadKey, most int) (names []DeadName, page DeadPage, err error) {
	page, err = s.readDead(ctx, no, f, after, most, "m.topic, m.id", func(rows *sql.Rows, k *DeadKey) (bool, error) {
		var n DeadName
		var id []byte
		if err := rows.Scan(&k.Pos, &k.Group, &n.Topic, &id); err != nil {
			return false, err
		}
		n.DeadKey = *k
		n.ID, err = uuid.FromBytes(id)
		names = append(names, n)
		return false, err
	})
	return names, page, err
}

// readDead reads columns of dead letters d with their messages m, behind pos and group_id,
// until most were read, row reports that it is full, or scanDead were looked at.
func (s *Store) readDead(ctx context.Context, no int, f DeadFilter, after DeadKey, most int, columns string,
	row func(*sql.Rows, *DeadKey) (full bool, err error)) (page DeadPage, err error) {
	fail := func(err error) (DeadPage, error) {
		return DeadPage{}, fmt.Errorf("dead letters of %s: %w", schema.DeadLetter(no), err)
	}
	var end DeadKey
	bounded := false
	if len(f.IDs) == 0 {
		if end, bounded, err = s.deadBound(ctx, no, f.Group, after); err != nil {
			return fail(err)
		}
	}
	where, args := f.where(after)
	if bounded {
		where += " AND (d.pos < ? OR d.pos = ? AND d.group_id <= ?)"
		args = append(args, int64(end.Pos), int64(end.Pos), end.Group)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT d.pos, d.group_id, "+columns+" FROM "+f.from(no)+" WHERE "+where+
		" ORDER BY d.pos, d.group_id LIMIT ?", append(args, most)...)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	for n := 1; rows.Next(); n++ {
		full, err := row(rows, &page.Next)
		if err != nil {
			return fail(err)
		}
		if full || n == most {
			page.More = true
			return page, nil
		}
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return DeadPage{Next: end, More: bounded}, nil
}

// deadBound is the last key that one read looks at, if there are keys behind it.
func (s *Store) deadBound(ctx context.Context, no int, group int32, after DeadKey) (end DeadKey, bounded bool, err error) {
	where, args := DeadFilter{Group: group}.where(after)
	err = s.db.QueryRowContext(ctx, "SELECT d.pos, d.group_id FROM "+schema.DeadLetter(no)+" d WHERE "+where+
		fmt.Sprintf(" ORDER BY d.pos, d.group_id LIMIT 1 OFFSET %d", scanDead-1), args...).Scan(&end.Pos, &end.Group)
	if err == sql.ErrNoRows {
		return end, false, nil
	}
	return end, err == nil, err
}

// from joins dead letters d and messages m of a shard, by ids when the filter has some.
func (f DeadFilter) from(no int) string {
	if len(f.IDs) == 0 {
		return schema.DeadLetter(no) + " d STRAIGHT_JOIN " + schema.Message(no) + " m ON m.pos = d.pos"
	}
	return "(" + selectIDs(f.IDs) + ") v STRAIGHT_JOIN " + schema.Message(no) + " m FORCE INDEX (id) ON m.id = v.k STRAIGHT_JOIN " +
		schema.DeadLetter(no) + " d ON d.pos = m.pos"
}

// where is the condition of the filter behind a key.
func (f DeadFilter) where(after DeadKey) (string, []any) {
	where := "d.pos >= ? AND (d.pos > ? OR d.group_id > ?)"
	args := []any{int64(after.Pos), int64(after.Pos), after.Group}
	and := func(condition string, arg any) {
		where += " AND " + condition
		args = append(args, arg)
	}
	if f.Group != 0 {
		and("d.group_id = ?", f.Group)
	}
	if f.Topic != "" {
		and("m.topic = ?", f.Topic)
	}
	if f.Reason != "" {
		and("d.reason = ?", f.Reason)
	}
	if f.Before != 0 {
		and("d.dead_at < ?", f.Before)
	}
	return where, args
}

// A DeadCount is how many dead letters of one topic a group has.
type DeadCount struct {
	Group int32
	Topic string
	Count int
}

// CountDead counts a shard's dead letters. It reads all of them.
func (s *Store) CountDead(ctx context.Context, no int) (counts []DeadCount, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT d.group_id, m.topic, COUNT(*) FROM "+DeadFilter{}.from(no)+" GROUP BY d.group_id, m.topic")
	if err != nil {
		return nil, fmt.Errorf("count of %s: %w", schema.DeadLetter(no), err)
	}
	defer rows.Close()
	for rows.Next() {
		var c DeadCount
		if err := rows.Scan(&c.Group, &c.Topic, &c.Count); err != nil {
			return nil, fmt.Errorf("count of %s: %w", schema.DeadLetter(no), err)
		}
		counts = append(counts, c)
	}
	return counts, rows.Err()
}
