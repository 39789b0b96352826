package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// TopicSettings are what a topic can be told. They stand as a JSON object in one column, so
// that a new one changes no table; a zero field is left out of it, and means the broker's own
// setting.
type TopicSettings struct {
	// CheckAfter is when a half of the topic that nobody decided is asked about first, microseconds.
	CheckAfter int64 `json:"check_after_us"`
	// Durability is when a publish is acknowledged; empty: once it is stored.
	Durability Durability `json:"durability"`
}

// A Durability says when a publish of a topic is acknowledged.
type Durability string

const (
	// Durable is the zero value: when it is stored.
	Durable Durability = ""
	// Replicated: when it is stored and a replica of the store has it too.
	Replicated Durability = "replicated"
	// InMemory: when a broker holds it in memory. It is never stored.
	InMemory Durability = "memory"
)

// readSettings reads a settings column into what a pointer points to. A field that this program does not
// know is passed over.
func readSettings(column []byte, into any) error {
	if len(column) == 0 {
		return nil
	}
	if err := json.Unmarshal(column, into); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// mergeSettings is the column with the given settings in place of its own of the same name. Those that this program
// does not know, and may be a newer one's, stay.
func mergeSettings(column []byte, settings any) ([]byte, error) {
	all, ours := map[string]any{}, map[string]any{}
	if err := readSettings(column, &all); err != nil {
		return nil, err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &ours); err != nil {
		return nil, err
	}
	for name, v := range ours {
		if all[name] = v; v == nil || v == "" || v == false || v == 0.0 {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// SetTopic changes a topic's settings, or returns ErrNoTopic. change is given those in force, and
// its error changes nothing.
func (s *Store) SetTopic(ctx context.Context, name string, change func(*TopicSettings) error) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, _ int64) error {
		var column []byte
		err := tx.QueryRowContext(ctx, "SELECT settings FROM registry_topic WHERE name = ?", name).Scan(&column)
		if errors.Is(err, sql.ErrNoRows) {
			err = ErrNoTopic
		}
		var settings TopicSettings
		if err == nil {
			err = readSettings(column, &settings)
		}
		if err == nil {
			err = change(&settings)
		}
		if err == nil {
			column, err = mergeSettings(column, settings)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE registry_topic SET settings = ? WHERE name = ?", column, name)
		}
		if err != nil {
			return fmt.Errorf("topic %q: %w", name, err)
		}
		return nil
	})
}
