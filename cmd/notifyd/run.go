package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd"
)

func command() *cobra.Command {
	check := func(flags daemon.Flags) error {
		_, err := load(flags)
		return err
	}
	root := daemon.NewCommand("notifyd", "Store messages and push them to consumer groups", check, run)
	addMigrate(root)
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
			info, err := prepareAll(ctx, c, logger)
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
