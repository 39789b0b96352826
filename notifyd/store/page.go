package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// pageBytes is about how much a page may take in memory.
const pageBytes = 8 << 20

// messageColumns of alias m, without pos.
const messageColumns = "m.id, m.topic, m.msg_key, m.headers, m.body, m.mirrored, m.born_at"

// scanMessage reads messageColumns behind the columns of before.
func scanMessage(rows *sql.Rows, before ...any) (*message.Message, error) {
	m := &message.Message{}
	var id, key, headers []byte
	dest := append(before, &id, &m.Topic, &key, &headers, &m.Body, &m.Mirrored, &m.BornAt)
	if err := rows.Scan(dest...); err != nil {
		return nil, err
	}
	var err error
	if m.ID, err = uuid.FromBytes(id); err != nil {
		return nil, err
	}
	m.Key = string(key)
	if len(headers) > 0 {
		var all map[string]string
		if err = json.Unmarshal(headers, &all); err == nil {
			err = m.SetStoredHeaders(all)
		}
		if err != nil {
			return nil, fmt.Errorf("headers of message %s: %w", m.ID, err)
		}
	}
	return m, nil
}

// Page reads unsettled messages of the range (from, to] in order: at most most of them and
// about 8 MiB. upTo is the position up to which the range was covered.
func (s *Store) Page(ctx context.Context, no int, from, to shard.Pos, most int) (page []shard.Stored, upTo shard.Pos, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT m.pos, "+messageColumns+" FROM "+schema.Message(no)+" m WHERE m.pos > ? AND m.pos <= ?"+
		" AND NOT EXISTS (SELECT 1 FROM "+schema.Pending(no)+" p WHERE p.pos = m.pos)"+
		" AND NOT EXISTS (SELECT 1 FROM "+schema.DeadLetter(no)+" d WHERE d.pos = m.pos)"+
		" ORDER BY m.pos LIMIT ?", int64(from), int64(to), most)
	if err != nil {
		return nil, from, fmt.Errorf("page of %s: %w", schema.Message(no), err)
	}
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		var pos shard.Pos
		m, err := scanMessage(rows, &pos)
		if err != nil {
			return nil, from, fmt.Errorf("page of %s: %w", schema.Message(no), err)
		}
		page = append(page, shard.Stored{Pos: pos, Msg: m})
		if bytes += m.Size(); bytes >= pageBytes {
			return page, pos, nil
		}
	}
	if err := rows.Err(); err != nil {
		return nil, from, fmt.Errorf("page of %s: %w", schema.Message(no), err)
	}
	if len(page) == most {
		return page, page[most-1].Pos, nil
	}
	return page, to, nil
}

// A Due is a pending row whose time has come, with its message.
type Due struct {
	Pos      shard.Pos
	NextAt   int64
	Attempts int
	// CountsFrom is when the age of the delivery began, when that was after the message was born; else 0.
	CountsFrom int64
	Msg        *message.Message
}

// A Cursor is a place in a group's pending rows, ordered by (next_at, pos).
type Cursor struct {
	NextAt int64
	Pos    shard.Pos
}

// DueRows reads the rows of a group behind the cursor that are due at now, in order: at most
// most of them and about 8 MiB. more is true when it stopped for one of these.
func (s *Store) DueRows(ctx context.Context, no int, group int32, after Cursor, now int64, most int) (due []Due, more bool, err error) {
	// Two ranges of the index (group_id, next_at, pos): the rest of the cursor's own instant, then later ones.
	due, more, err = s.dueRange(ctx, no, most, "p.group_id = ? AND p.next_at = ? AND p.pos > ? ORDER BY p.pos", group, after.NextAt, int64(after.Pos))
	if err != nil || more || after.NextAt >= now {
		return due, more, err
	}
	rest, more, err := s.dueRange(ctx, no, most-len(due), "p.group_id = ? AND p.next_at > ? AND p.next_at <= ? ORDER BY p.next_at, p.pos", group, after.NextAt, now)
	return append(due, rest...), more, err
}

func (s *Store) dueRange(ctx context.Context, no, most int, where string, args ...any) (due []Due, more bool, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT STRAIGHT_JOIN p.pos, p.next_at, p.attempts, p.counts_from, "+messageColumns+
		" FROM "+schema.Pending(no)+" p JOIN "+schema.Message(no)+" m ON m.pos = p.pos WHERE "+where+" LIMIT ?", append(args, most)...)
	if err != nil {
		return nil, false, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
	}
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		var d Due
		if d.Msg, err = scanMessage(rows, &d.Pos, &d.NextAt, &d.Attempts, &d.CountsFrom); err != nil {
			return nil, false, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
		}
		due = append(due, d)
		if bytes += d.Msg.Size(); bytes >= pageBytes {
			return due, true, nil
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
	}
	return due, len(due) == most, nil
}

// NextDue is the time of the first row of the group that is due after now; ok is false when there is none.
func (s *Store) NextDue(ctx context.Context, no int, group int32, now int64) (next int64, ok bool, err error) {
	var n sql.NullInt64
	err = s.db.QueryRowContext(ctx, "SELECT MIN(next_at) FROM "+schema.Pending(no)+" WHERE group_id = ? AND next_at > ?", group, now).Scan(&n)
	if err != nil {
		return 0, false, fmt.Errorf("next due row of %s: %w", schema.Pending(no), err)
	}
	return n.Int64, n.Valid, nil
}

// CountPending counts the rows of a group, up to most.
func (s *Store) CountPending(ctx context.Context, no int, group int32, most int) (int, error) {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+schema.Pending(no)+" WHERE group_id = ? LIMIT ?) x", group, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count of %s: %w", schema.Pending(no), err)
	}
	return n, nil
}

// Present reads which positions of the range [first, last] hold a message.
func (s *Store) Present(ctx context.Context, no int, first, last shard.Pos) (map[shard.Pos]uuid.UUID, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT pos, id FROM "+schema.Message(no)+" WHERE pos BETWEEN ? AND ?", int64(first), int64(last))
	if err != nil {
		return nil, fmt.Errorf("range of %s: %w", schema.Message(no), err)
	}
	defer rows.Close()
	out := map[shard.Pos]uuid.UUID{}
	for rows.Next() {
		var pos shard.Pos
		var id []byte
		if err := rows.Scan(&pos, &id); err != nil {
			return nil, fmt.Errorf("range of %s: %w", schema.Message(no), err)
		}
		u, err := uuid.FromBytes(id)
		if err != nil {
			return nil, fmt.Errorf("range of %s: %w", schema.Message(no), err)
		}
		out[pos] = u
	}
	return out, rows.Err()
}

// GroupsWithRows lists the groups that have pending rows or dead letters, Delayed among them.
func (s *Store) GroupsWithRows(ctx context.Context, no int) ([]int32, error) {
	return readColumn[int32](ctx, s.db, "SELECT DISTINCT group_id FROM "+schema.Pending(no)+" UNION SELECT DISTINCT group_id FROM "+schema.DeadLetter(no))
}

// RowsOfGroup lists positions of a group's pending rows and dead letters, at most most of each.
func (s *Store) RowsOfGroup(ctx context.Context, no int, group int32, most int) ([]shard.Pos, error) {
	return readColumn[shard.Pos](ctx, s.db, "(SELECT pos FROM "+schema.Pending(no)+" WHERE group_id = ? ORDER BY next_at, pos LIMIT ?)"+
		" UNION ALL (SELECT pos FROM "+schema.DeadLetter(no)+" WHERE group_id = ? ORDER BY pos LIMIT ?)", group, most, group, most)
}

// readColumn reads the one column of a query.
func readColumn[T any](ctx context.Context, db *sql.DB, query string, args ...any) (out []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("rows of groups: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, fmt.Errorf("rows of groups: %w", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("rows of groups: %w", err)
	}
	return out, nil
}
