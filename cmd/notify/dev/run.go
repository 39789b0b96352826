package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd/embedded"
)

const (
	// stopLimit is how long everything has to stop, so that Ctrl-C takes less than
	// two seconds; serviceLimit is how much of it broker, mirror and demo may use.
	stopLimit    = 1900 * time.Millisecond
	serviceLimit = 1500 * time.Millisecond
)

// stack is what runs.
type stack struct {
	data     *data
	services []*service // in the order of starting
}

// Run starts everything, prints the banner, and runs until ctx ends (nil) or a
// part fails. Then it stops everything and prints what was stopped. Errors that
// callers may tell apart: ErrRunning.
func Run(ctx context.Context, cfg Config) (err error) {
	begun := time.Now()
	dir, remove, err := cfg.directory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	held, err := lock(dir)
	if err != nil {
		return err
	}
	defer held.Close()
	p := portsFrom(cfg.BasePort)
	if err := p.free(ctx, time.Second); err != nil {
		return err
	}
	server, err := embedded.Find(cfg.Mysqld)
	if err != nil {
		return err
	}
	cfg.head(dir)
	s := &stack{}
	if err := s.start(ctx, cfg, dir, server, p); err != nil {
		s.stop(ctx)
		if ctx.Err() != nil {
			return nil // stopped while starting, as asked
		}
		return err
	}
	b := banner{cfg: cfg, dir: dir, ports: p, db: server, store: s.data.store, took: time.Since(begun)}
	if err := b.print(cfg.Out); err != nil {
		s.stop(ctx)
		return fmt.Errorf("banner: %w", err)
	}
	failure := s.wait(ctx)
	stopping := time.Now()
	stopped, wrong := s.stop(ctx)
	if !cfg.JSON {
		text := "\nstopped    " + strings.Join(stopped, ", ")
		if len(wrong) > 0 {
			text += "; " + strings.Join(wrong, "; ")
		}
		fmt.Fprintf(cfg.Out, "%s · %.1f s\n", text, time.Since(stopping).Seconds())
	}
	return failure
}

// head prints what is about to happen.
func (c Config) head(dir string) {
	if c.JSON {
		return
	}
	fmt.Fprintf(c.Out, "notify %s · dev mode, one process, not for production\n\n", c.Version)
	if _, err := os.Stat(filepath.Join(dir, "database", "db")); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(c.Out, "  preparing  %s  first run: creating a database\n", home(dir))
	}
}

// start starts one part after the other. What was started is in s also on an error.
func (s *stack) start(ctx context.Context, cfg Config, dir string, server embedded.Server, p ports) (err error) {
	logger := daemon.NewLogger(cfg.Err, cfg.LogLevel)
	if s.data, err = startData(ctx, dir, server, p, logger); err != nil {
		return err
	}
	broker, err := startBroker(ctx, p, s.data, cfg.Version, logger)
	if broker != nil {
		s.services = append(s.services, broker)
	}
	if err != nil {
		return err
	}
	copier, err := startMirror(ctx, p, s.data.dsn, cfg.Version, logger)
	if copier != nil {
		s.services = append(s.services, copier)
	}
	if err != nil || !cfg.Demo {
		return err
	}
	live, err := startBoard(ctx, p, logger)
	if err != nil {
		return err
	}
	s.services = append(s.services, live)
	d, err := prepareDemo(ctx, addr(p.api), logger)
	if err != nil {
		return err
	}
	s.services = append(s.services, start(ctx, "demo", d.run))
	return nil
}

// wait blocks until ctx ends (nil) or a part has ended by itself.
func (s *stack) wait(ctx context.Context) error {
	failed := make(chan error, len(s.services)+1)
	over := make(chan struct{})
	defer close(over)
	for _, one := range s.services {
		go func() {
			select {
			case <-one.done:
				failed <- one.ended()
			case <-over:
			}
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	case <-s.data.db.Done():
		return fmt.Errorf("database ended: %w; its log is %s", s.data.db.Err(), s.data.db.LogPath())
	}
}

// stop ends all parts, the last started first, and returns what has stopped and
// what has not.
func (s *stack) stop(ctx context.Context) (stopped, wrong []string) {
	all, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	limit, cancel := context.WithTimeout(all, serviceLimit)
	defer cancel()
	for i := len(s.services) - 1; i >= 0; i-- {
		one := s.services[i]
		one.stop()
		select {
		case <-one.done:
			stopped = append(stopped, one.name)
		case <-limit.Done():
			wrong = append(wrong, one.name+" did not stop in time")
		}
	}
	if s.data == nil {
		return stopped, wrong
	}
	more, bad := s.data.stop(all)
	return append(stopped, more...), append(wrong, bad...)
}
