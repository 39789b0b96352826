package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Querier is the part of *sql.DB, *sql.Conn and *sql.Tx that reading needs.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Info is what a store says about itself, fixed at its installation.
type Info struct {
	// StoreID is a random UUID in its usual text form.
	StoreID string
	// Shards is the number of shards, 1 to MaxShards.
	Shards int
	// InstalledAt is by the store's clock.
	InstalledAt time.Time
	// InstalledGTID is a position of the server's binlog before the first message: a GTID
	// set of MySQL's @@gtid_executed, or MariaDB's @@gtid_binlog_pos.
	InstalledGTID string
}

// Read returns the store's row. It needs SELECT on table store alone. It returns
// ErrNotInstalled when the table is there but empty, and the server's error (1146 for a
// missing table) otherwise.
func Read(ctx context.Context, db Querier) (Info, error) {
	var info Info
	var installedAt int64
	err := db.QueryRowContext(ctx,
		"SELECT id, shards, installed_at, installed_gtid FROM store WHERE one = 1").
		Scan(&info.StoreID, &info.Shards, &installedAt, &info.InstalledGTID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Info{}, ErrNotInstalled
	case err != nil:
		return Info{}, fmt.Errorf("store row: %w", err)
	}
	info.InstalledAt = time.UnixMicro(installedAt).UTC()
	return info, nil
}

// Latest is the version of the schema that this program installs and works with.
const Latest = 3

// Version returns the version of the installed schema: 0 when nothing is installed that the
// account can see, and an error that wraps ErrNewer when it is above Latest.
func Version(ctx context.Context, db Querier) (int64, error) {
	var tables int
	err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = ?`, TableVersion).Scan(&tables)
	if err != nil {
		return 0, fmt.Errorf("schema version: %w", err)
	}
	if tables == 0 {
		return 0, nil
	}
	var version sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM "+TableVersion).Scan(&version)
	switch {
	case err != nil:
		return 0, fmt.Errorf("schema version: %w", err)
	case version.Int64 > Latest:
		return version.Int64, fmt.Errorf("schema version %d, this program knows up to %d: %w", version.Int64, Latest, ErrNewer)
	}
	return version.Int64, nil
}
