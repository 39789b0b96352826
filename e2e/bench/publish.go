package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

// streamWindow is how many messages one stream has under way.
const streamWindow = 256

// publishLoad publishes to a broker; count is of acknowledged messages.
type publishLoad func(ctx context.Context, addr string, n int, count *atomic.Int64) error

func measureStreams(ctx context.Context, b *bench) ([]number, error) {
	return b.measurePublish(ctx, "publish", fmt.Sprintf("publish rate, %d pipelined streams / raw inserts", b.streams), 0.5, pipelined)
}

func measureUnary(ctx context.Context, b *bench) ([]number, error) {
	return b.measurePublish(ctx, "unary", fmt.Sprintf("publish rate, %d unary publishers / raw inserts", b.streams), 0.2, b.unary)
}

// measurePublish compares publishing with raw inserts into the same server.
func (b *bench) measurePublish(ctx context.Context, name, what string, want float64, load publishLoad) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, info, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	rawDSN, _, err := db.install(ctx, "raw")
	if err != nil {
		return nil, err
	}
	pool, err := openPool(rawDSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	br, err := b.startBroker(ctx, dsn, "", "notifyd-"+name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()

	raw := &rawInserts{pool: pool}
	pids := map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()}
	var pairs []pair
	var ours, others usage
	for range b.pairs {
		var p pair
		var used usage
		var acked atomic.Int64
		p.ours, used, err = rate(ctx, b.window, pids, &acked, func(ctx context.Context) error {
			return load(ctx, br.addr, b.streams, &acked)
		})
		if err != nil {
			return nil, err
		}
		ours = ours.add(used)
		if err := errors.Join(db.rest(ctx, "notify", info.Shards), db.forget(ctx)); err != nil {
			return nil, err
		}
		p.other, used, err = rate(ctx, b.window, pids, &raw.rows, raw.run)
		if err != nil {
			return nil, err
		}
		others = others.add(used)
		if err := errors.Join(db.clear(ctx, "raw", rawConnections), db.rest(ctx, "notify", info.Shards), db.forget(ctx)); err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
		b.say("  %.0f / %.0f msg/s = %.2f", p.ours, p.other, p.ratio())
	}
	n := compared(what, "msg/s", pairs, atLeast(want))
	n.limit = ours.limit() + " (raw inserts: " + others.limit() + ")"
	return []number{n}, nil
}

// pipelined publishes on n streams until ctx ends.
func pipelined(ctx context.Context, addr string, n int, count *atomic.Int64) error {
	running := func(work context.Context) bool { return work.Err() == nil }
	return onStreams(ctx, addr, n, running, func() { count.Add(1) })
}

// onStreams publishes on n streams, each with a connection of its own, a message whenever next says so, until
// it says no. acked is called for each that is acknowledged.
func onStreams(ctx context.Context, addr string, n int, next func(work context.Context) bool, acked func()) error {
	var failure firstError
	g, work := errgroup.WithContext(ctx)
	for i := range n {
		c, err := client.New(client.Config{Addrs: []string{addr}})
		if err != nil {
			return err
		}
		p := c.NewPublisher(client.PublisherConfig{Window: streamWindow, WindowBytes: streamWindow << 10, NoDedup: true})
		g.Go(func() error {
			defer c.Close()
			return p.Run(context.WithoutCancel(ctx))
		})
		g.Go(func() error {
			defer p.Close()
			s := newMessages(i)
			for failure.get() == nil && next(work) {
				err := p.Send(work, s.message(), client.PublishOptions{}, func(_ client.Published, err error) {
					if err != nil {
						failure.set(err)
						return
					}
					acked()
				})
				if err != nil && work.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(g.Wait(), failure.get())
}

// unary publishes one message after the other from each of n callers, until ctx ends.
func (b *bench) unary(ctx context.Context, addr string, n int, count *atomic.Int64) error {
	g, work := errgroup.WithContext(ctx)
	for i := range n {
		c, err := b.newCaller(addr)
		if err != nil {
			return err
		}
		g.Go(func() error {
			defer c.close()
			s := newMessages(i).withoutKeys()
			for work.Err() == nil {
				// A publish that was begun is waited for.
				if err := c.publish(context.WithoutCancel(ctx), s.message()); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	return g.Wait()
}

// firstError keeps the first error that it is given.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
