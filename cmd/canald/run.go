package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
	"notifymirror/notifyd/schema/preflight"
)

func command() *cobra.Command {
	check := func(flags daemon.Flags) error {
		_, err := load(flags)
		return err
	}
	return daemon.NewCommand("canald", "Copy a store's messages from its binlog into Kafka", check, run)
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
			if err := checkSurroundings(ctx, c, logger); err != nil {
				return daemon.Agent{}, err
			}
			copier, err := mirror.New(c.Mirror, mirror.Deps{Logger: logger, Registerer: registry, Version: build.Version})
			if err != nil {
				return daemon.Agent{}, daemon.WithExitCode(daemon.ExitUsage, err)
			}
			logger.InfoContext(ctx, "canald started", slog.String("version", build.Version), slog.String("ops", ops.Addr().String()))
			return daemon.Agent{
				Run:        func(ctx context.Context) error { return copyUntilTold(ctx, copier, logger) },
				Components: []daemon.Component{{Name: "mirror", Ready: copier.Ready}},
				Status:     func() any { return copier.Status() },
			}, nil
		},
	})
}

// copyUntilTold runs the copier. When it halts for anything but the configuration the
// daemon stays, without copying, until it is told to end: notify_mirror_halted and /status
// must be there to be seen, and a restart would change nothing.
func copyUntilTold(ctx context.Context, copier *mirror.Copier, logger *slog.Logger) error {
	err := copier.Run(ctx)
	halt, ok := errors.AsType[*mirror.Halt](err)
	switch {
	case !ok:
		return err
	case errors.Is(halt, mirror.ErrConfig):
		return daemon.WithExitCode(daemon.ExitUsage, err)
	}
	logger.ErrorContext(ctx, "mirror halted", slog.String("store", halt.Store),
		slog.String("reason", string(halt.Reason)), slog.Any("err", halt))
	<-ctx.Done()
	return err
}

// checkSurroundings refuses to start where the store or Kafka is not fit or not there, or
// where a large transaction could not be spooled.
func checkSurroundings(ctx context.Context, c config, logger *slog.Logger) error {
	if err := checkSpool(c.Mirror.SpoolDir); err != nil {
		return err
	}
	for name, store := range c.Mirror.Stores {
		report := preflight.Check(ctx, store.DSN, preflight.Options{
			Role: preflight.Mirror, MaxBody: int64(c.Mirror.MaxBodyBytes),
		})
		for _, warning := range report.Warnings {
			logger.WarnContext(ctx, "store setting", slog.String("store", name), slog.String("text", warning))
		}
		if err := report.Err(); err != nil {
			return fmt.Errorf("store %s: %w", name, err)
		}
	}
	return checkKafka(c.Mirror.Kafka.Brokers)
}

// checkSpool makes a file in the directory and removes it.
func checkSpool(dir string) error {
	f, err := os.CreateTemp(dir, "canald-check-*")
	if err != nil {
		return fmt.Errorf("spool_dir: %w: name a directory that canald may write", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// checkKafka asks any broker for the list of brokers.
func checkKafka(brokers []string) error {
	config := sarama.NewConfig()
	config.ClientID = "notify-mirror"
	config.Net.DialTimeout = 5 * time.Second
	config.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return daemon.WithExitCode(daemon.ExitUnreachable, fmt.Errorf(
			"no Kafka at %s: %s: start Kafka, or correct kafka.brokers", strings.Join(brokers, ", "),
			strings.Join(strings.Fields(err.Error()), " "))) // the library's text has a line per broker
	}
	return client.Close()
}
