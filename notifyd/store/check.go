package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/schema"
)

// Checks bounds how halves are asked about.
type Checks struct {
	// Delay is how long the next check of a half waits behind this one, microseconds; this one
	// is counted in Half.Checks.
	Delay func(Half) int64
	// Budget is how many checks a half gets before it is parked.
	Budget int
}

// ClaimChecks takes up to most halves that are due at now and to be asked of one group (or
// AskedByURL): their next check moves on and this one is counted, before anyone is asked. Halves
// that have used their budget are parked instead.
func (s *Store) ClaimChecks(ctx context.Context, no int, asked string, now int64, most int, c Checks) ([]Half, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+halfColumns+"m.body, m.mirrored, m.prepared_at FROM "+schema.Half(no)+
		" m WHERE m.parked = 0 AND m.asked = ? AND m.next_check_at <= ? ORDER BY m.next_check_at LIMIT ?", asked, now, most)
	if err != nil {
		return nil, fmt.Errorf("due checks of %s: %w", schema.Half(no), err)
	}
	due, err := scanHalves(rows, no)
	if err != nil {
		return nil, fmt.Errorf("due checks of %s: %w", schema.Half(no), err)
	}
	var ask []Half
	var parks []uuid.UUID
	for _, h := range due {
		if h.Checks >= c.Budget {
			parks = append(parks, h.Msg.ID)
			continue
		}
		h.Checks++
		h.NextCheckAt = now + c.Delay(h)
		ask = append(ask, h)
	}
	var b statements
	if len(ask) > 0 {
		b.add("UPDATE " + joinNext(schema.Half(no), ask) + " SET t.next_check_at = v.at, t.checks = t.checks + 1, t.last_error = NULL")
	}
	if len(parks) > 0 {
		b.add("UPDATE " + joinIDs(schema.Half(no), sortedIDs(parks)) + " SET t.parked = 1")
	}
	if b.text.Len() == 0 {
		return nil, nil
	}
	if _, err := s.db.ExecContext(ctx, b.text.String(), b.args...); err != nil {
		return nil, fmt.Errorf("checks of %s: %w", schema.Half(no), err)
	}
	return ask, nil
}

// joinNext is joinIDs of halves, with each one's next check as v.at.
func joinNext(table string, halves []Half) string {
	var b strings.Builder
	sorted := slices.SortedFunc(slices.Values(halves), func(x, y Half) int { return bytes.Compare(x.Msg.ID[:], y.Msg.ID[:]) })
	for i, h := range sorted {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "SELECT UNHEX('%x') AS k, %d AS at", h.Msg.ID[:], h.NextCheckAt)
	}
	return "(" + b.String() + ") v STRAIGHT_JOIN " + table + " t FORCE INDEX (PRIMARY) ON t.id = v.k"
}

// CheckNotAsked takes a check back that could not be asked: it is not counted, the next is at
// next, and cause stands as the half's last error.
func (s *Store) CheckNotAsked(ctx context.Context, no int, id uuid.UUID, next int64, cause string) error {
	return s.updateHalf(ctx, no, id, "checks = GREATEST(checks - 1, 0), next_check_at = ?, last_error = ?", next, clip(cause))
}

// CheckFailed notes why a check that was asked gave no answer.
func (s *Store) CheckFailed(ctx context.Context, no int, id uuid.UUID, cause string) error {
	return s.updateHalf(ctx, no, id, "last_error = ?", clip(cause))
}

// CheckNow makes a half due before all others. One that is parked is not any more, and has its whole
// budget of checks again; another has at least one left of it.
func (s *Store) CheckNow(ctx context.Context, no int, id uuid.UUID, budget int) error {
	return s.updateHalf(ctx, no, id, "checks = IF(parked = 1, 0, LEAST(checks, ?)), parked = 0, next_check_at = ?", budget-1, CheckDueNow)
}

// CheckDueNow is the time of the next check of a half that goes before all others.
const CheckDueNow = 1

func (s *Store) updateHalf(ctx context.Context, no int, id uuid.UUID, set string, args ...any) error {
	if _, err := s.db.ExecContext(ctx, "UPDATE "+schema.Half(no)+" SET "+set+" WHERE id = ?", append(args, id[:])...); err != nil {
		return fmt.Errorf("check of half %s: %w", id, err)
	}
	return nil
}
