package dev

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // sql.Open knows it by name
	"golang.org/x/sync/errgroup"

	kafka "notifymirror/mirror/embedded"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

// schemaName is the store's schema in the private database.
const schemaName = "notify"

// data is what keeps messages: the database server and the embedded Kafka.
type data struct {
	db    *embedded.DB
	kafka *kafka.Kafka
	store schema.Info
	dsn   string
	// secretKey seals the secrets of webhooks.
	secretKey string
}

// startData starts both and installs the schema. On an error nothing runs.
func startData(ctx context.Context, dir string, server embedded.Server, p ports, logger *slog.Logger) (_ *data, err error) {
	d := &data{}
	defer func() {
		if err != nil {
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
			defer cancel()
			d.stop(limit) // the first error is the one to show
		}
	}()
	var both errgroup.Group
	both.Go(func() (err error) {
		d.db, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "database"), Server: server, Port: p.database, Logger: logger})
		return err
	})
	both.Go(func() (err error) {
		d.kafka, err = kafka.Start(kafka.Config{Dir: filepath.Join(dir, "kafka"), Addr: addr(p.kafka), Logger: kafkaLogger(logger)})
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if d.secretKey, err = keptKey(filepath.Join(dir, "webhook.key")); err != nil {
		return nil, fmt.Errorf("key for the secrets of webhooks: %w", err)
	}
	d.dsn = d.db.DSN(schemaName)
	d.store, err = migrate.Migrate(ctx, d.dsn, migrate.Options{Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if err := freeShards(ctx, d.dsn); err != nil {
		return nil, fmt.Errorf("leases of an earlier run: %w", err)
	}
	return d, nil
}

// kafkaLogger passes on what needs attention: the embedded Kafka warns of every
// commit that takes some milliseconds.
func kafkaLogger(logger *slog.Logger) *slog.Logger {
	if logger.Enabled(context.Background(), slog.LevelInfo) {
		return logger
	}
	return slog.New(errorsOnly{logger.Handler()})
}

// errorsOnly drops what is below the level error.
type errorsOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h errorsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

// freeShards ends the leases of an earlier run that was killed, so that its
// successor need not wait until they run out. No broker can live beside us: the
// data directory is locked and the database server has just been started. The
// next owner raises the epoch, as after any lease that is over.
func freeShards(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, stmt := range []string{
		"UPDATE " + schema.TableLease + " SET expires_at = 0",
		"DELETE FROM " + schema.TableBroker,
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	return nil
}

// stop ends both, side by side, and returns what has stopped and what went wrong.
// The database is killed when ctx ends first: nothing that was committed is lost
// by it.
func (d *data) stop(ctx context.Context) (stopped, wrong []string) {
	var db errgroup.Group
	if d.db != nil {
		db.Go(func() error { return d.db.Stop(ctx) })
	}
	if d.kafka != nil {
		if err := d.kafka.Close(); err != nil {
			wrong = append(wrong, "Kafka: "+err.Error())
		} else {
			stopped = append(stopped, "Kafka")
		}
	}
	err := db.Wait()
	switch {
	case d.db == nil:
	case err == nil:
		stopped = append(stopped, "database")
	case errors.Is(err, context.DeadlineExceeded):
		stopped = append(stopped, "database (killed, which loses nothing)")
	default:
		wrong = append(wrong, "database: "+err.Error())
	}
	return stopped, wrong
}
