package migrate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/schema"
)

// install is version 1: all tables, then the first rows.
func install(ctx context.Context, db *sql.DB, opts Options) error {
	shards, err := chooseShards(ctx, db, opts)
	if err != nil {
		return err
	}
	statements, err := schema.Statements(1, shards)
	if err != nil {
		return err
	}
	if err := execute(ctx, db, statements); err != nil {
		return err
	}
	return seed(ctx, db, shards)
}

// upgrade makes a version that adds columns and keys to tables that are there.
func upgrade(version int64) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error {
		info, err := schema.Read(ctx, db)
		if err != nil {
			return err
		}
		ddl, err := schema.Statements(version, info.Shards)
		if err != nil {
			return err
		}
		return execute(ctx, db, ddl)
	}
}

// execute runs DDL of which any part may have been run before.
func execute(ctx context.Context, db *sql.DB, statements []string) error {
	for _, statement := range statements {
		_, err := db.ExecContext(ctx, statement)
		if err != nil && !isCode(err, errDuplicateColumn, errDuplicateKey) {
			name, _, _ := strings.Cut(statement, "(")
			return fmt.Errorf("%s: %w", strings.TrimSpace(name), err)
		}
	}
	return nil
}

// chooseShards returns the number of shards: the store's own when an earlier run was cut
// off after its rows were written, else what was asked for.
func chooseShards(ctx context.Context, db *sql.DB, opts Options) (int, error) {
	info, err := schema.Read(ctx, db)
	switch {
	case err == nil:
		return info.Shards, checkAsked(opts.Shards, info.Shards)
	case !errors.Is(err, schema.ErrNotInstalled) && !isCode(err, errNoSuchTable):
		return 0, err
	}
	return cmp.Or(opts.Shards, opts.Default, schema.DefaultShards), nil
}

// seed writes the first rows, in one transaction, where they are absent. The position is
// read before: no message can be inserted until the epoch rows are there.
func seed(ctx context.Context, db *sql.DB, shards int) error {
	position, err := position(ctx, db)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := insertRows(ctx, tx, shards, position); err != nil {
		return fmt.Errorf("first rows: %w", err)
	}
	return tx.Commit()
}

// shardRows are the first rows of a shard.
var shardRows = [...]string{
	"INSERT INTO epoch (shard, epoch, registry_version) VALUES (?, 0, 1)",
	"INSERT INTO lease (shard, epoch, owner, expires_at, connections) VALUES (?, 0, '', 0, '[]')",
	"INSERT INTO settled (shard, pos) VALUES (?, 0)",
}

func insertRows(ctx context.Context, tx *sql.Tx, shards int, position string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO store (one, id, shards, installed_at, installed_gtid)
		VALUES (1, ?, ?, `+schema.NowMicros+`, ?) ON DUPLICATE KEY UPDATE one = one`,
		uuid.NewString(), shards, position)
	if err != nil {
		return err
	}
	info, err := schema.Read(ctx, tx)
	if err != nil {
		return err
	}
	if err := checkAsked(shards, info.Shards); err != nil {
		return err
	}
	for shard := range shards {
		for _, statement := range shardRows {
			if _, err := tx.ExecContext(ctx, statement+" ON DUPLICATE KEY UPDATE shard = shard", shard); err != nil {
				return err
			}
		}
	}
	return nil
}

// position returns the server's GTID position without white space.
func position(ctx context.Context, db *sql.DB) (string, error) {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", fmt.Errorf("server version: %w", err)
	}
	query := "SELECT @@GLOBAL.gtid_executed"
	if strings.Contains(strings.ToLower(version), "mariadb") {
		query = "SELECT @@GLOBAL.gtid_binlog_pos"
	}
	var position string
	if err := db.QueryRowContext(ctx, query).Scan(&position); err != nil {
		return "", fmt.Errorf("server's GTID position: %w", err)
	}
	return strings.Join(strings.Fields(position), ""), nil
}
