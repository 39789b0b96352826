package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// scanOutboxes is how many rows of an outbox are looked at for one id, which it is not indexed by.
const scanOutboxes = 10_000

// A Place is where a message stands.
type Place struct {
	Shard int
	Pos   shard.Pos
}

// FindMessage reads where a message stands. An id that was given twice may stand in two places.
func (s *Store) FindMessage(ctx context.Context, id uuid.UUID) (found []Place, err error) {
	parts := make([]string, s.Shards)
	for no := range parts {
		parts[no] = fmt.Sprintf("SELECT %d, pos FROM %s WHERE id = UNHEX('%x')", no, schema.Message(no), id[:])
	}
	rows, err := s.db.QueryContext(ctx, strings.Join(parts, " UNION ALL "))
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", id, err)
	}
	defer rows.Close()
	for rows.Next() {
		var p Place
		if err := rows.Scan(&p.Shard, &p.Pos); err != nil {
			return nil, fmt.Errorf("message %s: %w", id, err)
		}
		found = append(found, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("message %s: %w", id, err)
	}
	return found, nil
}

// A PendingLook is a pending row as it stands.
type PendingLook struct {
	shard.PendingRow
	FirstErr string
}

// A Life is what a store holds of one position, as of one instant.
type Life struct {
	// Stored is the message; its Msg is nil when it is not there any more.
	Stored  shard.Stored
	Pending []PendingLook
	Dead    []DeadLetter
}

// ReadLife reads the message of a position with all its rows.
func (s *Store) ReadLife(ctx context.Context, at Place) (l Life, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return l, fmt.Errorf("message at %d of %s: %w", at.Pos, schema.Message(at.Shard), err)
	}
	defer tx.Rollback()
	if err = l.readMessage(ctx, tx, at); err == nil {
		err = l.readPending(ctx, tx, at)
	}
	if err == nil {
		err = l.readDead(ctx, tx, at)
	}
	if err != nil {
		return l, fmt.Errorf("message at %d of %s: %w", at.Pos, schema.Message(at.Shard), err)
	}
	return l, nil
}

func (l *Life) readMessage(ctx context.Context, q querier, at Place) error {
	return eachRow(ctx, q, func(rows *sql.Rows) (err error) {
		l.Stored.Msg, err = scanMessage(rows, &l.Stored.Pos)
		return err
	}, "SELECT m.pos, "+messageColumns+" FROM "+schema.Message(at.Shard)+" m WHERE m.pos = ?", int64(at.Pos))
}

func (l *Life) readPending(ctx context.Context, q querier, at Place) error {
	return eachRow(ctx, q, func(rows *sql.Rows) error {
		p := PendingLook{PendingRow: shard.PendingRow{Pos: at.Pos}}
		err := rows.Scan(&p.Group, &p.NextAt, &p.Attempts, &p.Err, &p.FirstErr)
		l.Pending = append(l.Pending, p)
		return err
	}, "SELECT group_id, next_at, attempts, last_error, COALESCE(first_error, '') FROM "+schema.Pending(at.Shard)+" WHERE pos = ? ORDER BY group_id", int64(at.Pos))
}

func (l *Life) readDead(ctx context.Context, q querier, at Place) error {
	return eachRow(ctx, q, func(rows *sql.Rows) error {
		d := DeadLetter{DeadKey: DeadKey{Pos: at.Pos}}
		err := rows.Scan(&d.Group, &d.Reason, &d.Attempts, &d.FirstError, &d.LastError, &d.DeadAt)
		l.Dead = append(l.Dead, d)
		return err
	}, "SELECT group_id, reason, attempts, first_error, last_error, dead_at FROM "+schema.DeadLetter(at.Shard)+" WHERE pos = ? ORDER BY group_id", int64(at.Pos))
}

// eachRow calls f at each row of a query.
func eachRow(ctx context.Context, q querier, f func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// FindOutbox reads the outbox row of an id, without its body, if it is among the 10,000 oldest; all is false
// when there are more. An outbox has no index of ids.
func (s *Store) FindOutbox(ctx context.Context, id uuid.UUID) (found []OutboxRow, all bool, err error) {
	all, err = s.inFirst(ctx, "outbox", id, func(seq int64) error {
		return eachRow(ctx, s.db, func(rows *sql.Rows) error {
			r, err := scanOutbox(rows)
			found = append(found, r)
			return err
		}, "SELECT seq, id, topic, msg_key, headers, '' FROM outbox WHERE seq = ?", seq)
	})
	return found, all, err
}

// FindRejected reads the rejected outbox row of an id, as FindOutbox does.
func (s *Store) FindRejected(ctx context.Context, id uuid.UUID) (found []Rejected, all bool, err error) {
	all, err = s.inFirst(ctx, "outbox_rejected", id, func(seq int64) error {
		r, err := s.GetRejected(ctx, seq)
		if errors.Is(err, ErrNoRejected) { // put back meanwhile
			return nil
		}
		found = append(found, r)
		return err
	})
	return found, all, err
}

// inFirst gives f each seq of an id among the first rows of a table, and reports whether these are all.
func (s *Store) inFirst(ctx context.Context, table string, id uuid.UUID, f func(seq int64) error) (all bool, err error) {
	first := fmt.Sprintf("(SELECT seq, id FROM %s ORDER BY seq LIMIT %d) x", table, scanOutboxes)
	var seqs []int64
	rows := 0
	err = eachRow(ctx, s.db, func(r *sql.Rows) error {
		var seq sql.NullInt64
		err := r.Scan(&seq, &rows)
		if seq.Valid {
			seqs = append(seqs, seq.Int64)
		}
		return err
	}, "SELECT seq, 0 FROM "+first+" WHERE id = ? UNION ALL SELECT NULL, COUNT(*) FROM "+first, id[:])
	for _, seq := range seqs {
		if err == nil {
			err = f(seq)
		}
	}
	if err != nil {
		return false, fmt.Errorf("id %s in %s: %w", id, table, err)
	}
	return rows < scanOutboxes, nil
}

// FindDedup reads for which of the topics the id is an idempotency key that is remembered as its own, and until when.
func (s *Store) FindDedup(ctx context.Context, id uuid.UUID, topics []string) (topic string, expiresAt int64, err error) {
	const most = 500 // topics of one query
	for len(topics) > 0 && topic == "" && err == nil {
		n := min(most, len(topics))
		args := []any{[]byte(id.String()), id[:]}
		for _, t := range topics[:n] {
			args = append(args, t)
		}
		topics = topics[n:]
		err = eachRow(ctx, s.db, func(rows *sql.Rows) error { return rows.Scan(&topic, &expiresAt) },
			"SELECT topic, expires_at FROM dedup WHERE idempotency_key = ? AND id = ? AND topic IN "+tuples(1, n), args...)
	}
	if err != nil {
		return "", 0, fmt.Errorf("idempotency key %s: %w", id, err)
	}
	return topic, expiresAt, nil
}
