package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/schema/preflight"
)

func command() *cobra.Command {
	check := func(flags daemon.Flags) error {
		_, err := load(flags)
		return err
	}
	root := daemon.NewCommand("notifyd", "Store messages and push them to consumer groups", check, run)
	var shards int
	sub := daemon.Subcommand(root, "migrate", "Install or upgrade the store's schema, then end", func(cmd *cobra.Command, flags daemon.Flags) error {
		return runMigrate(cmd, flags, shards)
	})
	sub.Flags().IntVar(&shards, "shards", 0, fmt.Sprintf("number of shards of a new store, 1 to %d, fixed from then on (default %d)", schema.MaxShards, schema.DefaultShards))
	return root
}

func run(ctx context.Context, flags daemon.Flags) error {
	c, err := load(flags)
	if err != nil {
		return err
	}
	build := daemon.ReadBuild()
	logger := daemon.NewLogger(os.Stderr, c.Level(flags.LogLevel))
	registry := daemon.NewRegistry(build)
	ops, err := daemon.ListenOps(c.OpsListen, registry, logger)
	if err != nil {
		return err
	}
	return daemon.Run(ctx, daemon.Process{
		Ops:           ops,
		Logger:        logger,
		ShutdownDelay: c.ShutdownDelay,
		Start: func(ctx context.Context) (daemon.Agent, error) {
			info, err := prepare(ctx, c, logger, 0)
			if err != nil {
				return daemon.Agent{}, err
			}
			broker, err := notifyd.New(c.Broker, notifyd.Deps{Logger: logger, Registerer: registry, Version: build.Version})
			if err != nil {
				return daemon.Agent{}, err
			}
			logger.InfoContext(ctx, "notifyd started", slog.String("version", build.Version),
				slog.String("store_id", info.StoreID), slog.Int("shards", info.Shards), slog.String("ops", ops.Addr().String()))
			return daemon.Agent{
				Run:        broker.Run,
				Components: []daemon.Component{{Name: "broker", Ready: broker.Ready}},
			}, nil
		},
	})
}

// prepare checks the store and installs what its schema lacks. Nothing is created when a
// check fails.
func prepare(ctx context.Context, c config, logger *slog.Logger, shards int) (schema.Info, error) {
	name, store := c.store()
	report := preflight.Check(ctx, store.DSN, preflight.Options{Role: preflight.Broker, MaxBody: int64(c.Broker.MaxBodyBytes)})
	for _, warning := range report.Warnings {
		logger.WarnContext(ctx, "store setting", slog.String("store", name), slog.String("text", warning))
	}
	if err := report.Err(); err != nil {
		return schema.Info{}, fmt.Errorf("store %s: %w", name, err)
	}
	info, err := migrate.Migrate(ctx, store.DSN, migrate.Options{Shards: shards, Logger: logger})
	if err != nil {
		return schema.Info{}, fmt.Errorf("store %s: %w", name, err)
	}
	return info, nil
}

func runMigrate(cmd *cobra.Command, flags daemon.Flags, shards int) error {
	if shards != 0 {
		if err := schema.CheckShards(shards); err != nil {
			return daemon.WithExitCode(daemon.ExitUsage, err)
		}
	}
	c, err := load(flags)
	if err != nil {
		return err
	}
	logger := daemon.NewLogger(os.Stderr, c.Level(flags.LogLevel))
	info, err := prepare(cmd.Context(), c, logger, shards)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema version %d, %d shards, store %s\n", schema.Latest, info.Shards, info.StoreID)
	return err
}
