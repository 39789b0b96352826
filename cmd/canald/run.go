package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
	"notifymirror/mirror/access"
	"notifymirror/notifyd/schema/preflight"
)

func command() *cobra.Command {
	check := func(flags daemon.Flags) error {
		_, err := load(flags)
		return err
	}
	return daemon.NewCommand("canald", "Copy the messages of stores from their binlogs into Kafka", check, run)
}

func run(ctx context.Context, flags daemon.Flags) error {
	c, err := load(flags)
	if err != nil {
		return err
	}
	build := daemon.ReadBuild()
	limitMemory(len(c.Mirror.Stores))
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
			all, err := newStores(c.Mirror, mirror.Deps{Logger: logger, Registerer: registry, Version: build.Version})
			if err != nil {
				return daemon.Agent{}, daemon.WithExitCode(daemon.ExitUsage, err)
			}
			logger.InfoContext(ctx, "canald started", slog.String("version", build.Version), slog.String("ops", ops.Addr().String()))
			return daemon.Agent{Run: all.run, Components: all.components(), Status: func() any { return all.status() }, Change: all.change}, nil
		},
	})
}

// limitMemory makes the collector work harder before canald is larger than it need be: large
// messages go through several buffers, and without it each could be there twice. Whoever sets
// GOMEMLIMIT knows better.
func limitMemory(stores int) {
	const base, each = 64 << 20, 128 << 20
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(base + each*stores))
	}
}

// checkSurroundings refuses to start where Kafka is not there, where a large transaction
// could not be spooled, or where not one store is fit. With one that is, the others are
// waited for.
func checkSurroundings(ctx context.Context, c config, logger *slog.Logger) error {
	if err := checkSpool(c.Mirror.SpoolDir); err != nil {
		return err
	}
	names := c.Mirror.StoreNames()
	unfit := make(map[string]error)
	for _, name := range names {
		if err := checkStore(ctx, c, name, logger); err != nil {
			unfit[name] = err
		}
	}
	if first := names[0]; len(unfit) == len(names) {
		return unfit[first] // it is mended first; the others' come then
	}
	for name, err := range unfit {
		logger.ErrorContext(ctx, "store not fit, the others are copied", slog.String("store", name), slog.Any("err", err))
	}
	return checkKafka(c.Mirror.Kafka)
}

// checkStore looks at a store's server and account.
func checkStore(ctx context.Context, c config, name string, logger *slog.Logger) error {
	report := preflight.Check(ctx, c.Mirror.Stores[name].DSN, preflight.Options{
		Role: preflight.Mirror, MaxBody: int64(c.Mirror.MaxBodyBytes),
	})
	for _, warning := range report.Warnings() {
		logger.WarnContext(ctx, "store setting", slog.String("store", name), slog.String("text", warning.String()))
	}
	if err := report.Err(); err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
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
func checkKafka(kafka mirror.KafkaConfig) error {
	letIn, err := kafka.Access.Load()
	if err != nil {
		return daemon.WithExitCode(daemon.ExitUsage, err)
	}
	config := sarama.NewConfig()
	letIn(config)
	config.ClientID = "notify-mirror"
	config.Net.DialTimeout = 5 * time.Second
	config.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(kafka.Brokers, config)
	if err == nil {
		return client.Close()
	}
	at, text := strings.Join(kafka.Brokers, ", "), strings.Join(strings.Fields(err.Error()), " ") // the library's text has a line per broker
	mend, denied := access.Mend(err)
	switch {
	case denied:
		return daemon.WithExitCode(daemon.ExitDenied, fmt.Errorf("kafka at %s does not let canald in: %s: %s", at, text, mend))
	case mend != "":
		return daemon.WithExitCode(daemon.ExitUnreachable, fmt.Errorf("no Kafka at %s: %s: %s", at, text, mend))
	}
	return daemon.WithExitCode(daemon.ExitUnreachable, fmt.Errorf("no Kafka at %s: %s: start Kafka, or correct kafka.brokers", at, text))
}
