package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
)

// stores are the copiers of the configuration's stores. Each goes its own way: one that
// waits or has halted does not touch the others.
type stores struct {
	names   []string
	copiers []*mirror.Copier
	logger  *slog.Logger
}

func newStores(c mirror.Config, deps mirror.Deps) (*stores, error) {
	s := &stores{names: c.StoreNames(), logger: deps.Logger}
	for _, name := range s.names {
		copier, err := mirror.New(c, name, deps)
		if err != nil {
			return nil, err
		}
		s.copiers = append(s.copiers, copier)
	}
	return s, nil
}

// run copies until it is told to end. A store that halts stays as it is meanwhile, until an
// operator changes its checkpoint: notify_mirror_halted and /status must be there to be seen,
// and a restart would change nothing. Only when every store has halted for what the configuration can mend does run
// return at once.
func (s *stores) run(ctx context.Context) error {
	errs := make([]error, len(s.copiers))
	var running sync.WaitGroup
	for i, copier := range s.copiers {
		running.Go(func() {
			alone := len(s.copiers) == 1
			for again := true; again; {
				errs[i] = copier.Run(ctx)
				if errs[i] == nil || alone && errors.Is(errs[i], mirror.ErrConfig) {
					return
				}
				s.halted(ctx, errs[i])
				again = !errors.Is(errs[i], mirror.ErrConfig) && copier.AwaitChange(ctx)
			}
		})
	}
	running.Wait()
	mendable := true
	for _, err := range errs {
		mendable = mendable && errors.Is(err, mirror.ErrConfig)
	}
	err := errors.Join(errs...)
	if mendable {
		return daemon.WithExitCode(daemon.ExitUsage, err)
	}
	<-ctx.Done()
	return err
}

func (s *stores) halted(ctx context.Context, err error) {
	attrs := []slog.Attr{slog.Any("err", err)}
	if halt, ok := errors.AsType[*mirror.Halt](err); ok {
		attrs = append(attrs, slog.String("store", halt.Store), slog.String("reason", string(halt.Reason)))
	}
	s.logger.LogAttrs(ctx, slog.LevelError, "mirror halted", attrs...)
}

// components are asked by /readyz, one for each store.
func (s *stores) components() []daemon.Component {
	components := make([]daemon.Component, len(s.copiers))
	for i, copier := range s.copiers {
		components[i] = daemon.Component{Name: "mirror/" + s.names[i], Ready: copier.Ready}
	}
	return components
}

// change answers POST /change: a mirror.Change becomes a mirror.Outcome.
func (s *stores) change(ctx context.Context, body []byte) (any, error) {
	c, err := mirror.ParseChange(body)
	if err != nil {
		return nil, err
	}
	if c.Store == "" && len(s.names) == 1 {
		c.Store = s.names[0]
	}
	i := slices.Index(s.names, c.Store)
	if i < 0 {
		return nil, fmt.Errorf("store %q is not there: name one of %s with --store", c.Store, strings.Join(s.names, ", "))
	}
	return s.copiers[i].Change(ctx, c)
}

func (s *stores) status() mirror.Report {
	var r mirror.Report
	for _, copier := range s.copiers {
		r.Stores = append(r.Stores, copier.Status())
	}
	return r
}
