package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

// settlePatience bounds the wait for what a run left behind.
const settlePatience = time.Minute

// database is a private server with installed schemas.
type database struct {
	*embedded.DB
	dir    string
	flavor embedded.Flavor
	pool   *sql.DB // without a schema
}

// startDatabase starts an empty server, with more flags where some are given. Its directory is
// removed by stop.
func (b *bench) startDatabase(ctx context.Context, flags ...string) (*database, error) {
	dir, err := os.MkdirTemp(b.dir, "db-")
	if err != nil {
		return nil, err
	}
	db, err := embedded.Start(ctx, embedded.Config{
		Dir: dir, Server: b.server, BufferPool: b.pool, RedoLog: b.pool, StartTimeout: 2 * time.Minute, Extra: flags,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	pool, err := openPool(db.DSN(""))
	if err != nil {
		db.Kill()
		return nil, err
	}
	return &database{DB: db, dir: filepath.Clean(dir), flavor: b.server.Flavor, pool: pool}, nil
}

// stop ends the server and throws its data away.
func (d *database) stop() error {
	d.pool.Close()
	d.Kill()
	return os.RemoveAll(d.dir)
}

// install makes a schema and returns its address and what it is.
func (d *database) install(ctx context.Context, name string) (string, schema.Info, error) {
	dsn := d.DSN(name)
	info, err := migrate.Migrate(ctx, dsn, migrate.Options{})
	return dsn, info, err
}

// openPool opens a pool whose statements take one round trip each.
func openPool(dsn string) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c.InterpolateParams = true
	c.MaxAllowedPacket = 0
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// rest waits until a broker's schema holds no message and the server has purged what was
// deleted, so that the next run does not pay for the one before.
func (d *database) rest(ctx context.Context, name string, shards int) error {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	var parts []string
	for no := range shards {
		parts = append(parts, fmt.Sprintf("EXISTS (SELECT 1 FROM %s.%s)", name, schema.Message(no)))
	}
	query := "SELECT " + strings.Join(parts, " OR ")
	return every(ctx, 50*time.Millisecond, func() (bool, error) {
		var left bool
		if err := d.pool.QueryRowContext(ctx, query).Scan(&left); err != nil || left {
			return false, err
		}
		history, err := d.history(ctx)
		return history < 100, err
	})
}

// history is the number of transactions that the server has not purged.
func (d *database) history(ctx context.Context) (n int64, err error) {
	err = d.pool.QueryRowContext(ctx,
		"SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'").Scan(&n)
	return n, err
}

// clear empties a schema's message tables.
func (d *database) clear(ctx context.Context, name string, shards int) error {
	for no := range shards {
		if _, err := d.pool.ExecContext(ctx, "TRUNCATE TABLE "+name+"."+schema.Message(no)); err != nil {
			return err
		}
	}
	return nil
}

// forget lets the server delete the binlog of the runs so far.
func (d *database) forget(ctx context.Context) error {
	if _, err := d.pool.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return err
	}
	rows, err := d.pool.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var last string
	for rows.Next() {
		fields := make([]any, len(columns))
		fields[0] = &last
		for i := 1; i < len(fields); i++ {
			fields[i] = new(sql.RawBytes)
		}
		if err := rows.Scan(fields...); err != nil {
			return err
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	_, err = d.pool.ExecContext(ctx, "PURGE BINARY LOGS TO '"+last+"'")
	return err
}

// every asks again and again until the answer is yes.
func every(ctx context.Context, period time.Duration, is func() (bool, error)) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		yes, err := is()
		if yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
