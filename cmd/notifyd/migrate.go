package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/schema/preflight"
)

// outboxShards is the number of shards of a new outbox-only store: one broker relays it.
const outboxShards = 1

// prepareAll checks the stores and installs what their schemas lack. Trouble with an
// outbox-only store is logged and keeps nobody from starting: the broker opens it later.
func prepareAll(ctx context.Context, c config, logger *slog.Logger) (main schema.Info, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.Broker.Stores)) {
		info, err := prepare(ctx, c, name, logger, 0)
		switch {
		case c.Broker.Stores[name].Role != notifyd.RoleOutboxOnly:
			if err != nil {
				return schema.Info{}, err
			}
			main = info
		case err != nil:
			logger.ErrorContext(ctx, "outbox-only store not prepared, starting without it", slog.String("store", name), slog.Any("err", err))
		}
	}
	return main, nil
}

// prepare checks a store and installs what its schema lacks. Nothing is created when a
// check fails. shards 0 is the store's own number, or the default of its role.
func prepare(ctx context.Context, c config, name string, logger *slog.Logger, shards int) (schema.Info, error) {
	store := c.Broker.Stores[name]
	report := preflight.Check(ctx, store.DSN, preflight.Options{Role: preflight.Broker, MaxBody: int64(c.Broker.MaxBodyBytes)})
	for _, warning := range report.Warnings() {
		logger.WarnContext(ctx, "store setting", slog.String("store", name), slog.String("text", warning.String()))
	}
	if err := report.Err(); err != nil {
		return schema.Info{}, fmt.Errorf("store %s: %w", name, err)
	}
	options := migrate.Options{Shards: shards, Default: schema.DefaultShards, Logger: logger.With(slog.String("store", name))}
	if store.Role == notifyd.RoleOutboxOnly {
		options.Default = outboxShards
	}
	info, err := migrate.Migrate(ctx, store.DSN, options)
	if err != nil {
		return schema.Info{}, fmt.Errorf("store %s: %w", name, err)
	}
	return info, nil
}

// migrateFlags are the flags of notifyd migrate.
type migrateFlags struct {
	store  string
	shards int
	print  bool
	from   int64
}

func addMigrate(root *cobra.Command) {
	var f migrateFlags
	sub := daemon.Subcommand(root, "migrate", "Install or upgrade the schema of every store, then end", func(cmd *cobra.Command, flags daemon.Flags) error {
		if cmd.Flags().Changed("shards") {
			if err := schema.CheckShards(f.shards); err != nil {
				return daemon.WithExitCode(daemon.ExitUsage, err)
			}
		}
		if f.print {
			return f.printScript(cmd)
		}
		return f.run(cmd, flags)
	})
	sub.Flags().StringVar(&f.store, "store", "", "only the store of this name")
	sub.Flags().IntVar(&f.shards, "shards", 0, fmt.Sprintf("number of shards of a new store, 1 to %d, fixed from then on (default %d, and %d with role outbox-only)",
		schema.MaxShards, schema.DefaultShards, outboxShards))
	sub.Flags().BoolVar(&f.print, "print", false, "print the SQL that makes a new store, with --shards, and connect nowhere")
	sub.Flags().Int64Var(&f.from, "from", 0, "with --print: the SQL that upgrades a store of this schema version with so many shards")
}

func (f migrateFlags) printScript(cmd *cobra.Command) error {
	if f.shards == 0 || f.store != "" {
		return daemon.WithExitCode(daemon.ExitUsage, fmt.Errorf("--print: say for how many shards with --shards, not for which store: "+
			"%d is usual with role main, %d with role outbox-only; it cannot be changed afterwards", schema.DefaultShards, outboxShards))
	}
	script, err := migrate.Script(f.shards)
	if f.from != 0 {
		script, err = migrate.UpgradeScript(f.from, f.shards)
	}
	if err != nil {
		return daemon.WithExitCode(daemon.ExitUsage, err)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), script)
	return err
}

func (f migrateFlags) run(cmd *cobra.Command, flags daemon.Flags) error {
	c, err := load(flags)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(c.Broker.Stores))
	if f.store != "" {
		if !slices.Contains(names, f.store) {
			return daemon.WithExitCode(daemon.ExitUsage, fmt.Errorf("--store %s: the configuration has the stores %q", f.store, names))
		}
		names = []string{f.store}
	}
	if f.shards != 0 && len(names) > 1 {
		return daemon.WithExitCode(daemon.ExitUsage, errors.New("--shards: several stores are configured: say which with --store NAME"))
	}
	logger := daemon.NewLogger(os.Stderr, c.Level(flags.LogLevel))
	var failures []error
	for _, name := range names {
		info, err := prepare(cmd.Context(), c, name, logger, f.shards)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "store %s: schema version %d, %s, id %s\n", name, schema.Latest, migrate.ShardCount(info.Shards), info.StoreID); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}
