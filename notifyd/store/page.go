package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

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

// DueRows reads the rows of a group behind the cursor that are due at now, in order, with their messages: those that
// have returns, others from the store. It reads at most most of them and about 8 MiB. more is true when it stopped for one of these.
func (s *Store) DueRows(ctx context.Context, no int, group int32, after Cursor, now int64, most int, have func(shard.Pos) *message.Message) (due []Due, more bool, err error) {
	// Two ranges of the index (group_id, next_at, pos): the rest of the cursor's own instant, then later ones.
	due, err = s.dueRange(ctx, no, most, "group_id = ? AND next_at = ? AND pos > ? ORDER BY pos", group, after.NextAt, int64(after.Pos))
	if err == nil && len(due) < most && after.NextAt < now {
		var rest []Due
		rest, err = s.dueRange(ctx, no, most-len(due), "group_id = ? AND next_at > ? AND next_at <= ? ORDER BY next_at, pos", group, after.NextAt, now)
		due = append(due, rest...)
	}
	if err != nil {
		return nil, false, err
	}
	more = len(due) == most
	due, cut, err := s.withMessages(ctx, no, due, have)
	return due, more || cut, err
}

// dueRange reads rows without their messages.
func (s *Store) dueRange(ctx context.Context, no, most int, where string, args ...any) (due []Due, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT pos, next_at, attempts, counts_from FROM "+schema.Pending(no)+" WHERE "+where+" LIMIT ?", append(args, most)...)
	if err != nil {
		return nil, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
	}
	defer rows.Close()
	for rows.Next() {
		var d Due
		if err := rows.Scan(&d.Pos, &d.NextAt, &d.Attempts, &d.CountsFrom); err != nil {
			return nil, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
		}
		due = append(due, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("due rows of %s: %w", schema.Pending(no), err)
	}
	return due, nil
}

// withMessages gives rows their messages. A row whose message has gone meanwhile is left out; cut tells that reading
// stopped at 8 MiB, and the rows behind the first that was not read too.
func (s *Store) withMessages(ctx context.Context, no int, due []Due, have func(shard.Pos) *message.Message) (out []Due, cut bool, err error) {
	var lack []shard.Pos
	for i := range due {
		if due[i].Msg = have(due[i].Pos); due[i].Msg == nil {
			lack = append(lack, due[i].Pos)
		}
	}
	read, cut, err := s.messages(ctx, no, lack)
	if err != nil {
		return nil, false, fmt.Errorf("due messages of %s: %w", schema.Message(no), err)
	}
	out = due[:0]
	for _, d := range due {
		if d.Msg == nil {
			d.Msg = read[d.Pos]
		}
		switch {
		case d.Msg != nil:
			out = append(out, d)
		case cut:
			return out, true, nil
		}
	}
	return out, false, nil
}

// messages reads messages by their positions, in that order, up to about 8 MiB.
func (s *Store) messages(ctx context.Context, no int, poss []shard.Pos) (read map[shard.Pos]*message.Message, cut bool, err error) {
	if len(poss) == 0 {
		return nil, false, nil
	}
	rows, err := s.db.QueryContext(ctx, "SELECT t.pos, "+strings.ReplaceAll(messageColumns, "m.", "t.")+" FROM "+joinKeys(schema.Message(no), "pos", poss))
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	read = make(map[shard.Pos]*message.Message, len(poss))
	bytes := 0
	for rows.Next() {
		var pos shard.Pos
		m, err := scanMessage(rows, &pos)
		if err != nil {
			return nil, false, err
		}
		read[pos] = m
		if bytes += m.Size(); bytes >= pageBytes {
			return read, true, nil
		}
	}
	return read, false, rows.Err()
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

// PendingGroups are the groups that have rows, without 0, whose rows are for the exchange.
func (s *Store) PendingGroups(ctx context.Context, no int) (groups []int32, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT group_id FROM "+schema.Pending(no)+" WHERE group_id > 0")
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", schema.Pending(no), err)
	}
	defer rows.Close()
	for rows.Next() {
		var g int32
		if err := rows.Scan(&g); err != nil {
			return nil, fmt.Errorf("groups of %s: %w", schema.Pending(no), err)
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
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
