package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// settingLeader is the setting that names the store whose registry this one follows.
const settingLeader = "leader"

// Leader returns the id of the store whose registry this one follows, or "".
func (s *Store) Leader(ctx context.Context) (id string, err error) {
	return readLeader(ctx, s.db)
}

func readLeader(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (id string, err error) {
	err = db.QueryRowContext(ctx, "SELECT value FROM registry_setting WHERE name = ?", settingLeader).Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("leader of the registry: %w", err)
	}
	return id, nil
}

// FollowRegistry brings the leader's registry into force in this store, with its version and its group ids,
// with ErrAhead when a newer one is: the main store has lost it. A store that follows another, or that declared something itself, is
// refused with ErrForeign: its pending rows name other groups.
func (s *Store) FollowRegistry(ctx context.Context, leader string, r *Registry) error {
	return s.lockEpochs(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		version, err := s.adopt(ctx, tx, leader)
		switch {
		case err != nil || version == r.Version:
			return err
		case version > r.Version:
			return fmt.Errorf("version %d is in force here, the main store has %d: %w", version, r.Version, ErrAhead)
		}
		if err := sameGroups(ctx, tx, r); err != nil {
			return err
		}
		for _, step := range []func(context.Context, *sql.Tx, *Registry, int64) error{putTopics, putGroups, putSubscriptions} {
			if err := step(ctx, tx, r, now); err != nil {
				return fmt.Errorf("registry of store %s: %w", leader, err)
			}
		}
		if _, err := tx.ExecContext(ctx, "UPDATE epoch SET registry_version = ?", r.Version); err != nil {
			return fmt.Errorf("registry of store %s: %w", leader, err)
		}
		return nil
	})
}

// adopt makes sure that the store follows leader and returns the version in force: 0 when
// it has followed nobody yet.
func (s *Store) adopt(ctx context.Context, tx *sql.Tx, leader string) (version int64, err error) {
	present, err := readLeader(ctx, tx)
	switch {
	case err != nil:
		return 0, err
	case present == leader:
		err := tx.QueryRowContext(ctx, "SELECT MAX(registry_version) FROM epoch").Scan(&version)
		return version, err
	case present != "":
		return 0, fmt.Errorf("it follows the registry of store %s, not of %s: %w", present, leader, ErrForeign)
	}
	var own int
	if err := tx.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM registry_topic) + (SELECT COUNT(*) FROM registry_group)").Scan(&own); err != nil {
		return 0, fmt.Errorf("leader of the registry: %w", err)
	}
	if own > 0 {
		return 0, fmt.Errorf("it has topics and groups of its own: %w", ErrForeign)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO registry_setting (name, value) VALUES (?, ?)", settingLeader, leader)
	return 0, err
}

// sameGroups makes sure that no id of a group means another group here: a main store that lost
// a group gives its id again, and pending rows here are still the lost one's.
func sameGroups(ctx context.Context, tx *sql.Tx, r *Registry) error {
	return each(ctx, tx, "SELECT id, created_at FROM registry_group", func(rows *sql.Rows) error {
		var id int32
		var at int64
		if err := rows.Scan(&id, &at); err != nil {
			return err
		}
		if name, ok := r.GroupNames[id]; ok && r.Groups[name].CreatedAt != at {
			return fmt.Errorf("group id %d, which is %q in the main store, is another group here: %w", id, name, ErrAhead)
		}
		return nil
	})
}

// putRows is the most rows of one INSERT.
const putRows = 500

// put inserts rows of width columns, some at a time.
func put(ctx context.Context, tx *sql.Tx, into, onDuplicate string, width int, rows [][]any) error {
	for part := range slices.Chunk(rows, putRows) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO "+into+" VALUES "+tuples(len(part), width)+onDuplicate, slices.Concat(part...)...); err != nil {
			return err
		}
	}
	return nil
}

func putTopics(ctx context.Context, tx *sql.Tx, r *Registry, _ int64) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM registry_topic"); err != nil {
		return err
	}
	var rows [][]any
	for _, name := range slices.Sorted(maps.Keys(r.Topics)) {
		t := r.Topics[name]
		rows = append(rows, []any{t.Name, t.Mirrored, t.CreatedAt, t.column})
	}
	return put(ctx, tx, "registry_topic (name, mirrored, created_at, settings)", "", 4, rows)
}

// putGroups keeps the rows of groups that are dropped by now: an owner sweeps what they left.
func putGroups(ctx context.Context, tx *sql.Tx, r *Registry, now int64) error {
	if _, err := tx.ExecContext(ctx, "UPDATE registry_group SET name = NULL, dropped_at = IF(dropped_at = 0, ?, dropped_at)", now); err != nil {
		return err
	}
	var rows [][]any
	for _, name := range slices.Sorted(maps.Keys(r.Groups)) {
		g := r.Groups[name]
		rows = append(rows, []any{g.ID, g.Name, g.CreatedAt, 0})
	}
	return put(ctx, tx, "registry_group (id, name, created_at, dropped_at)",
		" ON DUPLICATE KEY UPDATE name = VALUES(name), created_at = VALUES(created_at), dropped_at = 0", 4, rows)
}

func putSubscriptions(ctx context.Context, tx *sql.Tx, r *Registry, _ int64) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM registry_subscription"); err != nil {
		return err
	}
	var rows [][]any
	for _, s := range r.Subscriptions {
		rows = append(rows, []any{s.GroupID, s.Topic, s.CreatedAt, s.column})
	}
	return put(ctx, tx, "registry_subscription (group_id, topic, created_at, settings)", "", 4, rows)
}
