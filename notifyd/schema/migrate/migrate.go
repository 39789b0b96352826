package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/dsn"
)

// Error numbers of the server.
const (
	errUnknownDatabase = 1049
	errDuplicateColumn = 1060
	errDuplicateKey    = 1061
	errNoSuchTable     = 1146
)

// Options of a migration.
type Options struct {
	// Shards is the number of shards of a store that is made now; 0 means Default. It is an
	// error to ask for another number than an installed store has; 0 accepts any.
	Shards int
	// Default is the number of shards for which none was asked; 0 means schema.DefaultShards.
	Default int
	// Logger gets one line per installed version; nil means none.
	Logger *slog.Logger
}

// Migrate brings the schema at an address (package dsn) to schema.Latest and returns the store's
// row. It creates the schema itself if it is missing and the account may do so. It returns
// schema.ErrNewer for a schema that a newer program installed; errors of the server are
// wrapped.
func Migrate(ctx context.Context, address string, opts Options) (schema.Info, error) {
	cfg, err := dsn.Parse(address)
	if err != nil {
		return schema.Info{}, err
	}
	if err := createSchema(ctx, cfg); err != nil {
		return schema.Info{}, fmt.Errorf("schema %s: %w", cfg.DBName, err)
	}
	db, err := open(cfg)
	if err != nil {
		return schema.Info{}, err
	}
	defer db.Close()
	return MigrateDB(ctx, db, opts)
}

// MigrateDB is Migrate for a pool whose connections have the schema selected. The pool must
// allow at least two connections.
func MigrateDB(ctx context.Context, db *sql.DB, opts Options) (schema.Info, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Shards != 0 {
		if err := schema.CheckShards(opts.Shards); err != nil {
			return schema.Info{}, err
		}
	}
	if db.Stats().MaxOpenConnections == 1 {
		return schema.Info{}, errors.New("migration: the pool allows one connection, two are needed")
	}
	version, err := schema.Version(ctx, db)
	if err != nil {
		return schema.Info{}, err
	}
	if version < schema.Latest {
		if err := locked(ctx, db, func() error { return up(ctx, db, version, opts) }); err != nil {
			return schema.Info{}, fmt.Errorf("migration: %w", err)
		}
	}
	info, err := schema.Read(ctx, db)
	if err != nil {
		return schema.Info{}, err
	}
	return info, checkAsked(opts.Shards, info.Shards)
}

// up applies what is missing above from. The caller holds the lock. An upgrade needs no
// right to create tables.
func up(ctx context.Context, db *sql.DB, from int64, opts Options) error {
	if from == 0 {
		if err := checkOccupied(ctx, db); err != nil {
			return err
		}
		if err := createVersionTable(ctx, db); err != nil {
			return err
		}
	}
	versions := []*goose.Migration{version(1, func(ctx context.Context, db *sql.DB) error { return install(ctx, db, opts) })}
	for n := int64(2); n <= schema.Latest; n++ {
		versions = append(versions, version(n, upgrade(n)))
	}
	provider, err := goose.NewProvider(goose.DialectMySQL, db, nil,
		goose.WithTableName(schema.TableVersion),
		goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(versions...))
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return err
	}
	for _, r := range results {
		opts.Logger.InfoContext(ctx, "schema version installed",
			slog.Int64("version", r.Source.Version), slog.String("took", r.Duration.String()))
	}
	return nil
}

// version is one version of the schema; none is taken back.
func version(n int64, make func(context.Context, *sql.DB) error) *goose.Migration {
	return goose.NewGoMigration(n, &goose.GoFunc{RunDB: make}, &goose.GoFunc{Mode: goose.TransactionDisabled})
}

// checkOccupied refuses a schema with a table of a name that the store needs, unless an
// earlier run made it: an application's own "outbox" would be taken for the store's.
func checkOccupied(ctx context.Context, db *sql.DB) error {
	statements, err := schema.Statements(1, schema.MaxShards)
	if err != nil {
		return err
	}
	ours := map[string]bool{}
	for _, s := range statements {
		name, _, _ := strings.Cut(strings.TrimPrefix(s, "CREATE TABLE IF NOT EXISTS "), " ")
		ours[name] = true
	}
	rows, err := db.QueryContext(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name")
	if err != nil {
		return fmt.Errorf("tables of the schema: %w", err)
	}
	defer rows.Close()
	var foreign error
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return fmt.Errorf("tables of the schema: %w", err)
		}
		switch {
		case name == schema.TableVersion:
			return nil
		case ours[name] && foreign == nil:
			foreign = fmt.Errorf("table %s: %w", name, schema.ErrOccupied)
		}
	}
	return errors.Join(rows.Err(), foreign)
}

const versionTable = "CREATE TABLE IF NOT EXISTS " + schema.TableVersion + ` (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  version_id BIGINT          NOT NULL,
  is_applied BOOLEAN         NOT NULL,
  tstamp     DATETIME        NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB`

// createVersionTable makes the library's table as the library would, but so that a run that
// was cut off between the table and its first row is completed by the next.
func createVersionTable(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		versionTable,
		"INSERT INTO " + schema.TableVersion + ` (version_id, is_applied)
			SELECT 0, TRUE FROM (SELECT COUNT(*) AS n FROM ` + schema.TableVersion + `) AS t WHERE n = 0`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("version table: %w", err)
		}
	}
	return nil
}

// createSchema creates the schema unless it is there.
func createSchema(ctx context.Context, cfg *mysql.Config) error {
	db, err := open(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.PingContext(ctx); !isCode(err, errUnknownDatabase) {
		return err
	}
	server := cfg.Clone()
	server.DBName = ""
	db, err = open(server)
	if err != nil {
		return err
	}
	defer db.Close()
	name := "`" + strings.ReplaceAll(cfg.DBName, "`", "``") + "`"
	_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name+" CHARACTER SET utf8mb4")
	return err
}

// open returns a pool that has made no connection yet.
func open(cfg *mysql.Config) (*sql.DB, error) {
	connector, err := dsn.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("store address: %w", err)
	}
	return sql.OpenDB(connector), nil
}

func checkAsked(asked, installed int) error {
	if asked != 0 && asked != installed {
		return fmt.Errorf("number of shards: %d asked, but this store was made with %d, and that cannot change", asked, installed)
	}
	return nil
}

func isCode(err error, numbers ...uint16) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && slices.Contains(numbers, server.Number)
}
