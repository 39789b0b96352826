package dev

import (
	"context"
	"log/slog"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
)

// startBroker starts a broker with its ops listener, and waits until it owns every
// shard: from then on each publish is taken at once.
func startBroker(ctx context.Context, p ports, d *data, version string, logger *slog.Logger) (*service, error) {
	registry := daemon.NewRegistry(daemon.ReadBuild())
	broker, err := notifyd.New(notifyd.Config{
		Listen:           addr(p.api),
		Stores:           map[string]notifyd.StoreConfig{storeName: {DSN: d.dsn}},
		AutoCreateTopics: true,
		EgressNetworks:   []string{"127.0.0.0/8", "::1/128"}, // receivers under development
		SecretKeys:       []string{d.secretKey},
	}, notifyd.Deps{Logger: logger, Registerer: registry, Version: version})
	if err != nil {
		return nil, err
	}
	ops, err := daemon.ListenOps(addr(p.ops), registry, logger)
	if err != nil {
		return nil, err
	}
	s := start(ctx, "broker", func(ctx context.Context) error {
		return daemon.Run(ctx, daemon.Process{Ops: ops, Logger: logger, Start: func(context.Context) (daemon.Agent, error) {
			return daemon.Agent{
				Run:        broker.Run,
				Components: []daemon.Component{{Name: "broker", Ready: broker.Ready}},
			}, nil
		}})
	})
	c, err := client.New(client.Config{Addrs: []string{addr(p.api)}})
	if err != nil {
		return s, err
	}
	defer c.Close()
	return s, s.await(ctx, func() error { return ownsAllShards(ctx, c, d.store.Shards) })
}
