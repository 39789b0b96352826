package main

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// rawConnections insert rawRows at a time.
	rawConnections = 4
	rawRows        = 200
	// rawEpoch is the epoch of positions that no broker gave.
	rawEpoch = 1 << 40
)

// rawInserts is the raw limit: connections that insert rows of messages, each into a message
// table of its own, 200 to a statement and a commit.
type rawInserts struct {
	pool *sql.DB
	next [rawConnections]int64
	rows atomic.Int64
}

// run inserts until ctx ends.
func (r *rawInserts) run(ctx context.Context) error {
	g, work := errgroup.WithContext(ctx)
	for i := range rawConnections {
		g.Go(func() error { return r.connection(work, i) })
	}
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (r *rawInserts) connection(ctx context.Context, i int) error {
	conn, err := r.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, text := newMessages(i), insertText(i, rawRows)
	var args []any
	for ctx.Err() == nil {
		args = args[:0]
		for range rawRows {
			r.next[i]++
			args = s.appendRow(args, rawEpoch+r.next[i], time.Now().UnixMicro())
		}
		if _, err := conn.ExecContext(ctx, text, args...); err != nil {
			return err
		}
		r.rows.Add(rawRows)
	}
	return nil
}

// warmUp is the part of a run that does not count.
const warmUp = time.Second

// rate runs work and returns how much it counted per second once warm, and who used what.
func rate(ctx context.Context, window time.Duration, pids map[string]int, count *atomic.Int64, work func(context.Context) error) (float64, usage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	if err := wait(ctx, min(warmUp, window), ended); err != nil {
		return 0, usage{}, err
	}
	before, m := count.Load(), newMeter(pids)
	if err := wait(ctx, window, ended); err != nil {
		return 0, usage{}, err
	}
	used := m.used()
	n := count.Load() - before
	cancel()
	return float64(n) / used.wall.Seconds(), used, <-ended
}

// wait returns nil when the time is over, and an error when the work ended before.
func wait(ctx context.Context, d time.Duration, ended chan error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case err := <-ended:
		if err == nil {
			err = context.Canceled
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
