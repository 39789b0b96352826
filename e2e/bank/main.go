package bank

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

// Groups of the banks: A consumes refunds, B consumes transfers. Each is also the group by
// which it is asked about its halves.
const (
	GroupA = "bank-a"
	GroupB = "bank-b"
)

// A bank is one process of one of the banks.
type bank struct {
	db       *sql.DB
	store    string // the schema with the outbox
	client   *client.Client
	producer *client.TransactionalProducer
	log      *slog.Logger
	asked    sync.Map // ids of the halves that this process was asked about
}

// Main runs a bank until SIGTERM and returns the exit code. The flags are -role (a or b), -dsn
// (its database), -store (the schema with the outbox) and -brokers (host:port, with commas).
func Main(args []string) int {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	flags := flag.NewFlagSet("bank", flag.ExitOnError)
	role := flags.String("role", "", "a or b")
	dsn := flags.String("dsn", "", "its database")
	store := flags.String("store", "", "the schema with the outbox")
	brokers := flags.String("brokers", "", "host:port, with commas")
	if err := flags.Parse(args); err != nil {
		log.Error("bad arguments", "err", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, log, *role, *dsn, *store, strings.Split(*brokers, ",")); err != nil {
		log.Error("bank ended", "err", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, log *slog.Logger, role, dsn, store string, brokers []string) error {
	b := &bank{store: store, log: log}
	var err error
	if b.db, err = sql.Open("mysql", dsn); err != nil {
		return err
	}
	defer b.db.Close()
	if b.client, err = client.New(client.Config{Addrs: brokers, Patience: -1, RetryMax: 500 * time.Millisecond}); err != nil {
		return err
	}
	defer b.client.Close()
	switch role {
	case "a":
		return b.run(ctx, GroupA, b.undo, b.debitLoop)
	case "b":
		return b.run(ctx, GroupB, b.credit, nil)
	}
	return fmt.Errorf("role %q is neither a nor b", role)
}

// run is a bank's life: it consumes, answers checks, and does what else it has to do.
func (b *bank) run(ctx context.Context, group string, handle func(context.Context, client.Delivery) error, also func(context.Context) error) error {
	const refresh = time.Second
	consumer, err := b.client.NewConsumer(client.ConsumerConfig{Group: group, Handler: handle, Refresh: refresh})
	if err != nil {
		return err
	}
	listener, err := b.client.NewCheckListener(client.CheckListenerConfig{Group: group, Handler: b.check, Refresh: refresh})
	if err != nil {
		return err
	}
	if b.producer, err = b.client.NewTransactionalProducer(client.TransactionalConfig{Group: group}); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return consumer.Run(ctx) })
	all.Go(func() error { return listener.Run(ctx) })
	if also != nil {
		all.Go(func() error { return also(ctx) })
	}
	return all.Wait()
}

// in runs a transaction, which commits if f returns nil.
func (b *bank) in(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
