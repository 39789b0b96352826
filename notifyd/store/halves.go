package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
)

// A Half is a prepared message as it is listed and asked about.
type Half struct {
	Shard       int
	Msg         *message.Message // BornAt is when it was prepared
	Group       string
	CheckURL    string
	NextCheckAt int64
	Checks      int
	Parked      bool
	// LastError says why the last check gave no answer.
	LastError string
}

const halfColumns = "m.producer_group, m.check_url, m.next_check_at, m.checks, m.parked, COALESCE(m.last_error, ''), m.id, m.topic, m.msg_key, m.headers, "

// scanHalves reads rows of halfColumns and what scanMessage wants, up to about 8 MiB.
func scanHalves(rows *sql.Rows, no int) (out []Half, err error) {
	defer rows.Close()
	bytes := 0
	for bytes < pageBytes && rows.Next() {
		h := Half{Shard: no}
		if h.Msg, err = scanMessage(rows, &h.Group, &h.CheckURL, &h.NextCheckAt, &h.Checks, &h.Parked, &h.LastError); err != nil {
			return nil, err
		}
		out = append(out, h)
		bytes += h.Msg.Size()
	}
	return out, rows.Err()
}

// ListHalves lists halves of a shard behind an id, by id, without their bodies.
func (s *Store) ListHalves(ctx context.Context, no int, after uuid.UUID, parkedOnly bool, most int) ([]Half, error) {
	where := ""
	if parkedOnly {
		where = " AND m.parked = 1"
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+halfColumns+"'' AS body, m.mirrored, m.prepared_at FROM "+schema.Half(no)+
		" m WHERE m.id > ?"+where+" ORDER BY m.id LIMIT ?", after[:], most)
	if err != nil {
		return nil, fmt.Errorf("halves of %s: %w", schema.Half(no), err)
	}
	out, err := scanHalves(rows, no)
	if err != nil {
		return nil, fmt.Errorf("halves of %s: %w", schema.Half(no), err)
	}
	return out, nil
}

// FindHalf returns the shard that holds a half, or ErrUnknownHalf. A half that was decided
// has no shard: any will do to learn the decision.
func (s *Store) FindHalf(ctx context.Context, id uuid.UUID) (shard int, err error) {
	for no := range s.Shards {
		var n int
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+schema.Half(no)+" WHERE id = ?", id[:]).Scan(&n); err != nil {
			return 0, fmt.Errorf("half %s: %w", id, err)
		}
		if n > 0 {
			return no, nil
		}
	}
	return 0, ErrUnknownHalf
}

// GetHalf reads a half of a shard with its body, or returns ErrUnknownHalf.
func (s *Store) GetHalf(ctx context.Context, no int, id uuid.UUID) (Half, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+halfColumns+"m.body, m.mirrored, m.prepared_at FROM "+schema.Half(no)+" m WHERE m.id = ?", id[:])
	if err != nil {
		return Half{}, fmt.Errorf("half %s: %w", id, err)
	}
	found, err := scanHalves(rows, no)
	switch {
	case err != nil:
		return Half{}, fmt.Errorf("half %s: %w", id, err)
	case len(found) == 0:
		return Half{}, ErrUnknownHalf
	}
	return found[0], nil
}

// Decided reads the decision that was taken of a half, and when, or returns ErrUnknownHalf.
func (s *Store) Decided(ctx context.Context, id uuid.UUID) (d Decision, at int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT decision, decided_at FROM half_decision WHERE id = ?", id[:]).Scan(&d, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Undecided, 0, ErrUnknownHalf
	case err != nil:
		return Undecided, 0, fmt.Errorf("decision of half %s: %w", id, err)
	}
	return d, at, nil
}
