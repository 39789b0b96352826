package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/outbox"
)

// relayWriters is how many applications insert into the outbox at once.
const relayWriters = 4

// relayRun is one run: when each row was committed and its message delivered, nanoseconds since began.
type relayRun struct {
	began     time.Time
	committed []int64
	delivered []atomic.Int64
	missing   atomic.Int64
	done      chan struct{}
}

// measureRelay inserts into the outbox at a steady rate, each row in a transaction of its
// own, and sees when the messages are delivered.
func measureRelay(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	pool, err := openPool(dsn)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	pool.SetMaxIdleConns(relayWriters)
	br, err := b.startBroker(ctx, dsn, latencyGroup, "notifyd-relay")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	c, err := client.New(client.Config{Addrs: []string{br.addr}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var current atomic.Pointer[relayRun]
	consumer, err := c.NewConsumer(client.ConsumerConfig{Group: latencyGroup, Handler: func(_ context.Context, d client.Delivery) error {
		current.Load().arrived(d.Headers[headerNumber])
		return nil
	}})
	if err != nil {
		return nil, err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	g, work := errgroup.WithContext(stop)
	g.Go(func() error { return consumer.Run(work) })
	var runs []delay
	var used usage
	g.Go(func() (err error) {
		defer cancel()
		runs, used, err = b.relayRuns(work, pool, &current, map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()})
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("commit of an outbox row to its delivery at %d msg/s", latencyRate)
	return []number{distributed(what, runs, 200*time.Millisecond, "the relay's poll of 5 ms and sweep of 50 ms, and the transaction that stores the message; "+used.limit())}, nil
}

// relayRuns measures one run after the other, behind one that has everything attached.
func (b *bench) relayRuns(ctx context.Context, pool *sql.DB, current *atomic.Pointer[relayRun], pids map[string]int) (runs []delay, used usage, err error) {
	if _, err := relayOnce(ctx, pool, current, 100*time.Millisecond); err != nil {
		return nil, used, err
	}
	for range b.pairs {
		m := newMeter(pids)
		d, err := relayOnce(ctx, pool, current, b.window*3/8)
		if err != nil {
			return nil, used, err
		}
		b.say("  %s", d)
		runs, used = append(runs, d), used.add(m.used())
	}
	return runs, used, nil
}

// relayOnce is one run.
func relayOnce(ctx context.Context, pool *sql.DB, current *atomic.Pointer[relayRun], window time.Duration) (delay, error) {
	perWriter := max(1, int(window.Seconds()*latencyRate/relayWriters))
	n := perWriter * relayWriters
	r := &relayRun{began: time.Now(), committed: make([]int64, n), delivered: make([]atomic.Int64, n), done: make(chan struct{})}
	r.missing.Store(int64(n))
	current.Store(r)
	g, work := errgroup.WithContext(ctx)
	for w := range relayWriters {
		g.Go(func() error {
			s := newMessages(w)
			return paced(work, latencyRate/relayWriters, window, func(i int) error {
				if i >= perWriter {
					return nil
				}
				return r.insert(work, pool, s, w*perWriter+i)
			})
		})
	}
	if err := g.Wait(); err != nil {
		return delay{}, err
	}
	limit := time.NewTimer(arrivalPatience)
	defer limit.Stop()
	select {
	case <-r.done:
		return delayOf(r.delivered, func(i int) int64 { return r.committed[i] }), nil
	case <-limit.C:
		return delay{}, fmt.Errorf("%d of %d deliveries are missing after %s", r.missing.Load(), n, arrivalPatience)
	case <-ctx.Done():
		return delay{}, ctx.Err()
	}
}

// insert is an application's transaction with nothing but the message. A delivery may
// overtake the COMMIT's answer: the delay is then below zero.
func (r *relayRun) insert(ctx context.Context, pool *sql.DB, s *messages, n int) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	m := s.message()
	if _, err := outbox.Insert(ctx, tx, outbox.Message{Topic: m.Topic, Key: m.Key, Body: m.Body, Headers: map[string]string{headerNumber: strconv.Itoa(n)}}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	r.committed[n] = int64(time.Since(r.began))
	return nil
}

func (r *relayRun) arrived(number string) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(r.delivered) {
		return
	}
	if r.delivered[n].CompareAndSwap(0, max(1, int64(time.Since(r.began)))) && r.missing.Add(-1) == 0 {
		close(r.done)
	}
}
