package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// storeName is the store's name in the configuration of broker and mirror.
const storeName = "dev"

// service is a broker, a mirror or a demo while it runs.
type service struct {
	name string
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
}

// start runs f until stop, or until it ends by itself.
func start(ctx context.Context, name string, f func(context.Context) error) *service {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &service{name: name, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = f(ctx)
	}()
	return s
}

// ended is what to tell when a service ended though nobody stopped it.
func (s *service) ended() error {
	if s.err == nil {
		return fmt.Errorf("%s: ended by itself", s.name)
	}
	return fmt.Errorf("%s: %w", s.name, s.err)
}

// startMirror starts a mirror with its ops listener, and waits until it copies.
func startMirror(ctx context.Context, p ports, dsn string, version string, logger *slog.Logger) (*service, error) {
	registry := daemon.NewRegistry(daemon.ReadBuild())
	copier, err := mirror.New(mirror.Config{
		Stores: map[string]mirror.StoreConfig{storeName: {DSN: dsn}},
		Kafka:  mirror.KafkaConfig{Brokers: []string{addr(p.kafka)}, AllowEmbedded: true},
	}, storeName, mirror.Deps{Logger: logger, Registerer: registry, Version: version})
	if err != nil {
		return nil, err
	}
	ops, err := daemon.ListenOps(addr(p.mirrorOps), registry, logger)
	if err != nil {
		return nil, err
	}
	s := start(ctx, "mirror", func(ctx context.Context) error {
		return daemon.Run(ctx, daemon.Process{Ops: ops, Logger: logger, Start: func(context.Context) (daemon.Agent, error) {
			return daemon.Agent{
				Run:        func(ctx context.Context) error { return runMirror(ctx, copier, logger) },
				Components: []daemon.Component{{Name: "mirror", Ready: copier.Ready}},
				Status:     func() any { return mirror.Report{Stores: []mirror.Status{copier.Status()}} },
				Change:     func(ctx context.Context, body []byte) (any, error) { return changeMirror(ctx, copier, body) },
			}, nil
		}})
	})
	return s, s.await(ctx, func() error {
		if st := copier.Status(); st.State == mirror.Halted {
			return stopWaiting{fmt.Errorf("mirror halted: %s; %s", st.LastError, st.Repair)}
		}
		return copier.Ready()
	})
}

// runMirror stays when the mirror has halted, as canald does: the broker goes on,
// the state is there to be seen, and a change of the checkpoint makes it go on.
func runMirror(ctx context.Context, copier *mirror.Copier, logger *slog.Logger) error {
	for {
		err := copier.Run(ctx)
		var halt *mirror.Halt
		if !errors.As(err, &halt) || errors.Is(err, mirror.ErrConfig) {
			return err
		}
		logger.ErrorContext(ctx, "mirror halted", slog.String("reason", string(halt.Reason)), slog.Any("err", halt))
		if !copier.AwaitChange(ctx) {
			return nil
		}
	}
}

// changeMirror answers POST /change, as canald does.
func changeMirror(ctx context.Context, copier *mirror.Copier, body []byte) (any, error) {
	c, err := mirror.ParseChange(body)
	if err != nil {
		return nil, err
	}
	if c.Store != "" && c.Store != storeName {
		return nil, fmt.Errorf("store %q is not there: the only one is %s", c.Store, storeName)
	}
	return copier.Change(ctx, c)
}

// ownsAllShards asks a broker over its API whether it can take every publish.
func ownsAllShards(ctx context.Context, c *client.Client, shards int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	here := 0
	err := c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
		r, err := admin.ListShards(ctx, connect.NewRequest(&notifyv1.ListShardsRequest{}))
		if err != nil {
			return err
		}
		for _, s := range r.Msg.GetShards() {
			if s.GetHere() {
				here++
			}
		}
		return nil
	})
	if err == nil && here < shards {
		err = fmt.Errorf("%d of %d shards owned", here, shards)
	}
	return err
}

// stopWaiting is what a probe returns when waiting longer would not help.
type stopWaiting struct{ error }

func (s stopWaiting) Unwrap() error { return s.error }

// startLimit is the longest wait for a service to become ready.
const startLimit = time.Minute

// await asks until ready returns nil, the service ends, or ctx does.
func (s *service) await(ctx context.Context, ready func() error) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		var final stopWaiting
		if err == nil {
			return nil
		}
		if errors.As(err, &final) {
			return final.error
		}
		select {
		case <-s.done:
			return s.ended()
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("%s is not ready after %s: %w", s.name, startLimit, err)
		case <-tick.C:
		}
	}
}
