package store

import (
	"context"
	"database/sql"
	"fmt"

	"notifymirror/notifyd/schema"
)

// A HalfCount is how many halves of a shard a topic has that are not decided.
type HalfCount struct {
	Topic  string
	Parked bool
	// Rows is counted up to a limit.
	Rows int
	// Oldest is when the first of them was prepared.
	Oldest int64
}

// CountHalves counts a shard's halves by topic, each up to most. It reads nothing but the key
// by_topic: a few entries of each topic, and as many as it counts.
func (s *Store) CountHalves(ctx context.Context, no, most int) ([]HalfCount, error) {
	table := schema.Half(no) + " FORCE INDEX (by_topic)"
	counts, err := s.halfTopics(ctx, table)
	for i := range counts {
		if err == nil {
			c := &counts[i]
			err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE topic = ? AND parked = ? LIMIT ?) x",
				c.Topic, c.Parked, most).Scan(&c.Rows)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("count of %s: %w", schema.Half(no), err)
	}
	return counts, nil
}

func (s *Store) halfTopics(ctx context.Context, table string) (out []HalfCount, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT topic, parked, MIN(prepared_at) FROM "+table+" GROUP BY topic, parked")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c HalfCount
		if err := rows.Scan(&c.Topic, &c.Parked, &c.Oldest); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// An OutboxCount is what waits in the outbox.
type OutboxCount struct {
	// Rows and Rejected are counted up to a limit.
	Rows, Rejected int
	// First and Last are the lowest and highest seq; 0 when there is no row.
	First, Last int64
}

// CountOutbox counts committed rows of the outbox and of outbox_rejected, each up to most.
func (s *Store) CountOutbox(ctx context.Context, most int) (OutboxCount, error) {
	var c OutboxCount
	var first, last sql.NullInt64
	err := s.db.QueryRowContext(ctx, "SELECT (SELECT MIN(seq) FROM outbox), (SELECT MAX(seq) FROM outbox),"+
		" (SELECT COUNT(*) FROM (SELECT 1 FROM outbox LIMIT ?) x), (SELECT COUNT(*) FROM (SELECT 1 FROM outbox_rejected LIMIT ?) y)", most, most).
		Scan(&first, &last, &c.Rows, &c.Rejected)
	if err != nil {
		return c, fmt.Errorf("count of the outbox: %w", err)
	}
	c.First, c.Last = first.Int64, last.Int64
	return c, nil
}
