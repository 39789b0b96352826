package dev

import (
	"context"
	"database/sql"
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
}

// startData starts both and installs the schema. On an error nothing runs.
func startData(ctx context.Context, dir string, server embedded.Server, p ports, logger *slog.Logger) (_ *data, err error) {
	d := &data{}
	defer func() {
		if err != nil {
			_ = d.stop(context.WithoutCancel(ctx)) // the first error is the one to show
		}
	}()
	var both errgroup.Group
	both.Go(func() (err error) {
		d.db, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "database"), Server: server, Port: p.database, Logger: logger})
		return err
	})
	both.Go(func() (err error) {
		d.kafka, err = kafka.Start(kafka.Config{Dir: filepath.Join(dir, "kafka"), Addr: addr(p.kafka), Logger: logger})
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
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

// stop ends both; the database is killed when ctx ends first.
func (d *data) stop(ctx context.Context) error {
	var kafkaErr, dbErr error
	if d.kafka != nil {
		kafkaErr = d.kafka.Close()
	}
	if d.db != nil {
		dbErr = d.db.Stop(ctx)
	}
	if kafkaErr != nil {
		return fmt.Errorf("kafka: %w", kafkaErr)
	}
	if dbErr != nil {
		return fmt.Errorf("database: %w", dbErr)
	}
	return nil
}
