package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Subscription says that a group gets the messages of a topic, which of them, and how.
type Subscription struct {
	GroupID   int32
	Topic     string
	CreatedAt int64
	Settings  SubscriptionSettings

	column []byte // Settings as they stand in the store, with those of newer programs
}

// SubscriptionSettings are what a subscription can be told. They stand as a JSON object in one
// column, so that a new one changes no table; a zero field is left out of it, and means what
// the broker does by itself. Times are microseconds.
type SubscriptionSettings struct {
	// Filter is an expression of package filter; empty: every message.
	Filter string `json:"filter"`
	// Broadcast: every instance that is connected gets a message, instead of one.
	Broadcast   bool  `json:"broadcast"`
	AckWait     int64 `json:"ack_wait_us"`
	RetryMin    int64 `json:"retry_min_us"`
	RetryMax    int64 `json:"retry_max_us"`
	MaxAttempts int64 `json:"max_attempts"`
	MaxAge      int64 `json:"max_age_us"`
	// Changes counts those since it was declared.
	Changes int64 `json:"changes"`
}

func (r *Registry) readSubscriptions(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, "SELECT s.group_id, s.topic, s.created_at, s.settings FROM registry_subscription s JOIN registry_group g ON g.id = s.group_id"+
		" WHERE g.dropped_at = 0 ORDER BY s.topic, s.group_id", func(rows *sql.Rows) error {
		var sub Subscription
		if err := rows.Scan(&sub.GroupID, &sub.Topic, &sub.CreatedAt, &sub.column); err != nil {
			return err
		}
		if err := readSettings(sub.column, &sub.Settings); err != nil {
			return fmt.Errorf("subscription of group %d to %q: %w", sub.GroupID, sub.Topic, err)
		}
		r.Subscriptions = append(r.Subscriptions, sub)
		return nil
	})
}

// Subscription finds a subscription by the names of its group and topic.
func (r *Registry) Subscription(group, topic string) (Subscription, bool) {
	for _, s := range r.Subscriptions {
		if s.Topic == topic && r.GroupNames[s.GroupID] == group {
			return s, true
		}
	}
	return Subscription{}, false
}

// AddSubscription lets a group get a topic, and declares the group if it is new. It returns
// ErrNoTopic when the topic is not declared, ErrExists when the subscription is there, whatever its settings.
func (s *Store) AddSubscription(ctx context.Context, group, topic string, settings SubscriptionSettings) (groupCreated bool, err error) {
	column, err := mergeSettings(nil, settings)
	if err != nil {
		return false, fmt.Errorf("subscription of %q to %q: %w", group, topic, err)
	}
	err = s.change(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		groupCreated = false
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM registry_topic WHERE name = ?", topic).Scan(&n); err != nil {
			return fmt.Errorf("topic %q: %w", topic, err)
		}
		if n == 0 {
			return fmt.Errorf("topic %q: %w", topic, ErrNoTopic)
		}
		id, created, err := groupID(ctx, tx, group, now)
		if err != nil {
			return fmt.Errorf("group %q: %w", group, err)
		}
		groupCreated = created
		_, err = tx.ExecContext(ctx, "INSERT INTO registry_subscription (group_id, topic, created_at, settings) VALUES (?, ?, ?, ?)", id, topic, now, column)
		if hasCode(err, codeDuplicate) {
			err = ErrExists
		}
		if err != nil {
			return fmt.Errorf("subscription of %q to %q: %w", group, topic, err)
		}
		return nil
	})
	return groupCreated && err == nil, err
}

func groupID(ctx context.Context, tx *sql.Tx, name string, now int64) (id int64, created bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT id FROM registry_group WHERE name = ?", name).Scan(&id)
	if err == nil {
		return id, false, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return 0, false, err
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO registry_group (name, created_at, dropped_at) VALUES (?, ?, 0)", name, now)
	if err != nil {
		return 0, false, err
	}
	id, err = res.LastInsertId()
	return id, true, err
}

// SetSubscription changes a subscription's settings, or returns ErrNoSubscription. change is
// given those in force; when it refuses, nothing changes and its error is returned.
func (s *Store) SetSubscription(ctx context.Context, group, topic string, change func(*SubscriptionSettings) error) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, _ int64) error {
		var id int32
		var column []byte
		err := tx.QueryRowContext(ctx, "SELECT s.group_id, s.settings FROM registry_subscription s JOIN registry_group g ON g.id = s.group_id"+
			" WHERE g.name = ? AND s.topic = ?", group, topic).Scan(&id, &column)
		if errors.Is(err, sql.ErrNoRows) {
			err = ErrNoSubscription
		}
		var settings SubscriptionSettings
		if err == nil {
			err = readSettings(column, &settings)
		}
		if err != nil {
			return fmt.Errorf("subscription of %q to %q: %w", group, topic, err)
		}
		if err := change(&settings); err != nil {
			return err
		}
		settings.Changes++
		if column, err = mergeSettings(column, settings); err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE registry_subscription SET settings = ? WHERE group_id = ? AND topic = ?", column, id, topic)
		}
		if err != nil {
			return fmt.Errorf("subscription of %q to %q: %w", group, topic, err)
		}
		return nil
	})
}

// RemoveSubscription ends a subscription, or returns ErrNoSubscription. The group stays, and
// so do its pending rows, which are still delivered.
func (s *Store) RemoveSubscription(ctx context.Context, group, topic string) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, _ int64) error {
		res, err := tx.ExecContext(ctx, "DELETE s FROM registry_subscription s JOIN registry_group g ON g.id = s.group_id WHERE g.name = ? AND s.topic = ?", group, topic)
		if err == nil {
			err = affectedOne(res, ErrNoSubscription)
		}
		if err != nil {
			return fmt.Errorf("subscription of %q to %q: %w", group, topic, err)
		}
		return nil
	})
}

// DropGroup ends a group, its subscriptions and its endpoint, or returns ErrNoGroup. Its name is free again,
// its id is not: the owners of the shards remove the rows that it left.
func (s *Store) DropGroup(ctx context.Context, group string) error {
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		var id int32
		err := tx.QueryRowContext(ctx, "SELECT id FROM registry_group WHERE name = ?", group).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			err = ErrNoGroup
		}
		for _, s := range []struct {
			text string
			args []any
		}{
			{"DELETE FROM registry_subscription WHERE group_id = ?", []any{id}},
			{"DELETE FROM registry_setting WHERE name = ?", []any{endpointSetting(id)}},
			{"UPDATE registry_group SET name = NULL, dropped_at = ? WHERE id = ?", []any{now, id}},
		} {
			if err == nil {
				_, err = tx.ExecContext(ctx, s.text, s.args...)
			}
		}
		if err != nil {
			return fmt.Errorf("group %q: %w", group, err)
		}
		return nil
	})
}

// affectedOne returns none when a statement changed nothing.
func affectedOne(res sql.Result, none error) error {
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = none
	}
	return err
}
