package main

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror/limits"
	"notifymirror/notifyd"
	"notifymirror/notifyd/message"
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
			reader := limits.New(c.Kafka, logger)
			broker, err := notifyd.New(c.Broker, notifyd.Deps{Logger: logger, Registerer: registry, Version: build.Version, Fits: fits(reader)})
			if err != nil {
				return daemon.Agent{}, err
			}
			logger.InfoContext(ctx, "notifyd started", slog.String("version", build.Version),
				slog.String("store_id", info.StoreID), slog.Int("shards", info.Shards), slog.String("ops", ops.Addr().String()))
			return daemon.Agent{
				Run:        func(ctx context.Context) error { return runBeside(ctx, broker, reader) },
				Components: []daemon.Component{{Name: "broker", Ready: broker.Ready}},
			}, nil
		},
	})
}

// fits asks for a message what the mirror's topic takes.
func fits(reader *limits.Reader) func(*message.Message) (size, limit int, ok bool) {
	return func(m *message.Message) (size, limit int, ok bool) {
		return reader.Fits(limits.Message{Topic: m.Topic, Key: m.Key, Headers: m.StoredHeaders(), Body: m.Body})
	}
}

// runBeside runs the broker, and beside it what reads the limits of the mirror's topics.
func runBeside(ctx context.Context, broker *notifyd.Broker, reader *limits.Reader) error {
	reading, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { reader.Run(reading) })
	err := broker.Run(ctx)
	stop()
	beside.Wait()
	return err
}
