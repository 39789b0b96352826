package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"notifymirror/notifyd/schema"
)

// A Registry is one version of what is declared. It is never changed after it was read.
type Registry struct {
	Version int64
	// Server is the server_id of the server that it was read from. Another that was promoted without the latest
	// changes may give their version to others.
	Server        int64
	Topics        map[string]Topic
	Groups        map[string]Group
	GroupNames    map[int32]string
	Subscriptions []Subscription     // by topic, then group id
	Endpoints     map[int32]Endpoint // by group id; only the main store's are read
}

// Topic is a declared topic.
type Topic struct {
	Name      string
	Mirrored  bool
	CreatedAt int64
	Settings  TopicSettings

	column []byte // Settings with what this program does not know of them
}

// Group is a declared consumer group. Its id is never used again.
type Group struct {
	ID        int32
	Name      string
	CreatedAt int64
}

// selectVersion reads the version in force, and the server that says so.
const selectVersion = "SELECT MAX(registry_version), @@server_id FROM epoch"

// RegistryVersion reads the number of the version in force, and the server_id of the server that says so.
func (s *Store) RegistryVersion(ctx context.Context) (version, server int64, err error) {
	if err := s.db.QueryRowContext(ctx, selectVersion).Scan(&version, &server); err != nil {
		return 0, 0, fmt.Errorf("registry version: %w", err)
	}
	return version, server, nil
}

// Registry reads the version in force.
func (s *Store) Registry(ctx context.Context) (*Registry, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	defer tx.Rollback()
	r := &Registry{Topics: map[string]Topic{}, Groups: map[string]Group{}, GroupNames: map[int32]string{}, Endpoints: map[int32]Endpoint{}}
	// The first read fixes the snapshot for all of them.
	if err := tx.QueryRowContext(ctx, selectVersion).Scan(&r.Version, &r.Server); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	for _, read := range []func(context.Context, *sql.Tx) error{r.readTopics, r.readGroups, r.readSubscriptions, r.readEndpoints} {
		if err := read(ctx, tx); err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
	}
	return r, nil
}

func each(ctx context.Context, tx *sql.Tx, query string, row func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *Registry) readTopics(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, "SELECT name, mirrored, created_at, settings FROM registry_topic", func(rows *sql.Rows) error {
		var t Topic
		if err := rows.Scan(&t.Name, &t.Mirrored, &t.CreatedAt, &t.column); err != nil {
			return err
		}
		if err := readSettings(t.column, &t.Settings); err != nil {
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
		r.Topics[t.Name] = t
		return nil
	})
}

func (r *Registry) readGroups(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, "SELECT id, name, created_at FROM registry_group WHERE dropped_at = 0", func(rows *sql.Rows) error {
		var g Group
		err := rows.Scan(&g.ID, &g.Name, &g.CreatedAt)
		r.Groups[g.Name] = g
		r.GroupNames[g.ID] = g.Name
		return err
	})
}

// changePatience bounds a registry change: long enough for a takeover to end an owner that
// stopped in the middle of a transaction.
const changePatience = 20 * time.Second

// versionStep bounds the random step from one version of the registry to the next: a store that lost
// changes, in a failover or a restore, does not give their versions to others.
const versionStep = 1 << 20

// change runs a registry change and gives it a higher version.
func (s *Store) change(ctx context.Context, body func(context.Context, *sql.Tx, int64) error) error {
	return s.lockEpochs(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		if err := body(ctx, tx, now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE epoch SET registry_version = registry_version + ?", 1+rand.Int64N(versionStep)); err != nil {
			return fmt.Errorf("registry change: %w", err)
		}
		return nil
	})
}

// lockEpochs runs a transaction under the epoch rows' locks, so that what it changes is in
// force in every shard when this returns.
func (s *Store) lockEpochs(ctx context.Context, body func(context.Context, *sql.Tx, int64) error) error {
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for {
		err := s.lockEpochsOnce(ctx, body)
		if !Retryable(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("registry change: %w", ErrBusy)
		}
	}
}

func (s *Store) lockEpochsOnce(ctx context.Context, body func(context.Context, *sql.Tx, int64) error) error {
	tx, err := s.takers.BeginTx(ctx, readCommitted())
	if err != nil {
		return fmt.Errorf("registry change: %w", err)
	}
	defer tx.Rollback()
	var now int64
	if err := each(ctx, tx, "SELECT "+schema.NowMicros+" FROM epoch ORDER BY shard FOR UPDATE", func(rows *sql.Rows) error {
		return rows.Scan(&now)
	}); err != nil {
		return fmt.Errorf("registry change: %w", err)
	}
	if err := body(ctx, tx, now); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("registry change: %w", err)
	}
	return nil
}

// CreateTopic declares a topic, or returns ErrExists. A topic that differs from another only in
// "." and "_" is refused with ErrCollides: Kafka takes the two for one in its metrics, and
// refuses the second.
func (s *Store) CreateTopic(ctx context.Context, t Topic) error {
	settings, err := mergeSettings(nil, t.Settings)
	if err != nil {
		return fmt.Errorf("topic %q: %w", t.Name, err)
	}
	return s.change(ctx, func(ctx context.Context, tx *sql.Tx, now int64) error {
		var other string
		err := tx.QueryRowContext(ctx, "SELECT name FROM registry_topic WHERE REPLACE(name, '.', '_') = REPLACE(?, '.', '_') AND name <> ? LIMIT 1", t.Name, t.Name).Scan(&other)
		switch {
		case err == nil:
			return fmt.Errorf("topic %q differs from topic %q in nothing else: %w", t.Name, other, ErrCollides)
		case !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO registry_topic (name, mirrored, created_at, settings) VALUES (?, ?, ?, ?)", t.Name, t.Mirrored, now, settings)
		if hasCode(err, codeDuplicate) {
			return fmt.Errorf("topic %q: %w", t.Name, ErrExists)
		}
		if err != nil {
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
		return nil
	})
}
