package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/mirror"
	"notifymirror/mirror/embedded"
	"notifymirror/notifyd"
)

// Roles of a child.
const (
	roleBroker = "notifyd"
	roleMirror = "canald"
	roleKafka  = "kafka"
	roleNaive  = "naive"
	// rolePlain is the mirror without exactly-once, and roleReplica reads the binlog alone.
	rolePlain   = "plain"
	roleReplica = "replica"
	// roleReaders reads the mirror.
	roleReaders = "readers"

	roleReader  = "reader"
	roleBatches = "batches"
	roleBare    = "bare"
	roleWindows = "windows"
)

type role func(ctx context.Context, br brief, say func(word) error) error

func roles() map[string]role {
	return map[string]role{roleBroker: beBroker, roleMirror: beMirror, roleKafka: beKafka, roleNaive: beNaive,
		rolePlain: bePlain, roleReplica: beReplica, roleReaders: beReaders,
		roleReader: beReader, roleBatches: beBatches, roleBare: beBare, roleWindows: beWindows}
}

func childLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// beBroker is notifyd with its default configuration.
func beBroker(ctx context.Context, br brief, say func(word) error) error {
	b, err := notifyd.New(notifyd.Config{
		Listen: cmp.Or(br.Listen, "127.0.0.1:0"), Stores: map[string]notifyd.StoreConfig{"a": {DSN: br.DSN}},
	}, notifyd.Deps{Logger: childLogger(), Registerer: prometheus.NewRegistry(), Version: "bench"})
	if err != nil {
		return err
	}
	return whileRunning(ctx, b.Run, func() bool { return b.Ready() == nil }, func() error { return say(word{Addr: b.Addr()}) })
}

// beMirror is canald with its default configuration. It says Done when it has copied the
// messages asked for; at once when none are.
func beMirror(ctx context.Context, br brief, say func(word) error) error {
	c, err := mirror.New(mirror.Config{
		Stores:            map[string]mirror.StoreConfig{"a": {DSN: br.DSN}},
		Kafka:             mirror.KafkaConfig{Brokers: br.Brokers, AllowEmbedded: true},
		ReplicationFactor: 1,
	}, "a", mirror.Deps{Logger: childLogger(), Registerer: prometheus.NewRegistry(), Version: "bench"})
	if err != nil {
		return err
	}
	done := func() bool { return c.Ready() == nil && c.Status().Seq >= uint64(br.Messages) }
	return whileRunning(ctx, c.Run, done, func() error { return say(word{Done: true}) })
}

// beKafka is the embedded Kafka.
func beKafka(ctx context.Context, br brief, say func(word) error) error {
	k, err := embedded.Start(embedded.Config{Dir: br.Dir})
	if err != nil {
		return err
	}
	if err := say(word{Addr: k.Addrs()[0]}); err != nil {
		return err
	}
	return k.Run(ctx)
}

// whileRunning runs an agent until ctx ends, and reports once, as soon as is is true.
func whileRunning(ctx context.Context, run func(context.Context) error, is func() bool, report func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if is() {
			break
		}
	}
	tick.Stop()
	if err := report(); err != nil {
		return err
	}
	return <-ended
}
