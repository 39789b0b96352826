package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An Endpoint is where the messages of a group are pushed to by HTTP. It stands as JSON in a
// setting of the registry, named by the group's id, which is never used again.
type Endpoint struct {
	GroupID     int32  `json:"-"`
	URL         string `json:"url"`
	Concurrency int    `json:"concurrency"` // requests under way at once from one broker
	Timeout     int64  `json:"timeout_us"`  // of one attempt, microseconds
	// Secrets sign, the newest first; there are two while one is exchanged for another.
	Secrets  []SealedSecret `json:"secrets"`
	Disabled bool           `json:"disabled,omitempty"`
	// Reason says why it is disabled.
	Reason string `json:"reason,omitempty"`
	// Times by the store's clock, microseconds since 1970 UTC.
	CreatedAt  int64 `json:"created_at"`
	ChangedAt  int64 `json:"changed_at"`
	DisabledAt int64 `json:"disabled_at,omitempty"`
}

// A SealedSecret is a secret that only the key of the given id opens.
type SealedSecret struct {
	Key       string `json:"key"`
	Sealed    []byte `json:"sealed"`
	CreatedAt int64  `json:"created_at"`
	// Until is when it ends, by the store's clock, microseconds since 1970 UTC; 0: it does not.
	Until int64 `json:"until,omitempty"`
}

const settingEndpoint = "endpoint/"

func endpointSetting(group int32) string { return settingEndpoint + strconv.Itoa(int(group)) }

func (r *Registry) readEndpoints(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, "SELECT name, value FROM registry_setting WHERE name LIKE '"+settingEndpoint+"%'", func(rows *sql.Rows) error {
		var name string
		var value []byte
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		id, err := strconv.ParseInt(strings.TrimPrefix(name, settingEndpoint), 10, 32)
		if err != nil {
			return fmt.Errorf("setting %q: %w", name, err)
		}
		group := int32(id)
		if _, ok := r.GroupNames[group]; !ok {
			return nil // of a group that was dropped
		}
		e, err := readEndpoint(group, value)
		if err != nil { // nobody is pushed to, and the rest of the registry works
			e = Endpoint{GroupID: group, Disabled: true, Reason: err.Error()}
		}
		r.Endpoints[group] = e
		return nil
	})
}

func readEndpoint(group int32, value []byte) (Endpoint, error) {
	e := Endpoint{GroupID: group}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("setting %q: %w", endpointSetting(group), err)
	}
	return e, nil
}

// ChangeEndpoint makes or changes the endpoint of a group under the locks of the registry.
// change is given what is in force and the store's time, and may be called again; its error
// is returned and changes nothing. e.CreatedAt is 0 when there is none yet. A group that is
// not declared is ErrNoGroup.
func (s *Store) ChangeEndpoint(ctx context.Context, group string, change func(now int64, e *Endpoint) error) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		id, err := declaredGroup(ctx, tx, group)
		if err != nil {
			return err
		}
		e := Endpoint{GroupID: id}
		var value []byte
		err = tx.QueryRowContext(ctx, "SELECT value FROM registry_setting WHERE name = ?", endpointSetting(id)).Scan(&value)
		switch {
		case err == nil:
			e, err = readEndpoint(id, value)
		case errors.Is(err, sql.ErrNoRows):
			err = nil
		}
		if err == nil {
			err = change(now, &e)
		}
		if err != nil {
			return fmt.Errorf("endpoint of group %q: %w", group, err)
		}
		if e.CreatedAt == 0 {
			e.CreatedAt = now
		}
		e.ChangedAt = now
		if value, err = json.Marshal(e); err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO registry_setting (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)",
				endpointSetting(id), value)
		}
		if err != nil {
			return fmt.Errorf("endpoint of group %q: %w", group, err)
		}
		return nil
	})
}

// RemoveEndpoint removes the endpoint of a group. It returns ErrNoGroup or ErrNoEndpoint.
func (s *Store) RemoveEndpoint(ctx context.Context, group string) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, _ int64) error {
		id, err := declaredGroup(ctx, tx, group)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "DELETE FROM registry_setting WHERE name = ?", endpointSetting(id))
		var n int64
		if err == nil {
			n, err = res.RowsAffected()
		}
		if err == nil && n == 0 {
			err = ErrNoEndpoint
		}
		if err != nil {
			return fmt.Errorf("endpoint of group %q: %w", group, err)
		}
		return nil
	})
}

func declaredGroup(ctx context.Context, tx *sql.Tx, name string) (id int32, err error) {
	err = tx.QueryRowContext(ctx, "SELECT id FROM registry_group WHERE name = ? AND dropped_at = 0", name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoGroup
	}
	if err != nil {
		return 0, fmt.Errorf("group %q: %w", name, err)
	}
	return id, nil
}
