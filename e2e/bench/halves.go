package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/schema"
)

const (
	// halfGroup is the producer group that is asked about halves, and answers that it does not know.
	halfGroup = "shop"
	// halfRate is how many messages per second are published where the delay of single ones is measured.
	halfRate = 2000
	// mostChecks is how many checks per second a broker makes at most: 50 in half a second from each of 8 shards.
	mostChecks = 800
)

// halfBench compares publishing beside many undecided halves, all of them due, with publishing beside none.
type halfBench struct {
	*bench
	db          *database
	full, empty *broker
	shards      int
	checks      atomic.Int64
}

// halfSide is one run of one side.
type halfSide struct {
	rate   float64 // messages per second
	p99    float64 // milliseconds, at halfRate
	checks float64 // per second
	used   usage
	cost   float64 // microseconds of processors for a message, of broker, database and load
}

func measureHalves(ctx context.Context, b *bench) (_ []number, err error) {
	h := &halfBench{bench: b}
	if h.db, err = b.startDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.db.stop()) }()
	fullDSN, info, err := h.db.install(ctx, "full")
	if err != nil {
		return nil, err
	}
	emptyDSN, _, err := h.db.install(ctx, "empty")
	if err != nil {
		return nil, err
	}
	h.shards = info.Shards
	if err := h.fill(ctx); err != nil {
		return nil, err
	}
	if h.full, err = b.startBroker(ctx, fullDSN, "", "notifyd-halves"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.full.stop()) }()
	if h.empty, err = b.startBroker(ctx, emptyDSN, "", "notifyd-no-halves"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.empty.stop()) }()
	return h.measure(ctx)
}

// fill puts the halves into the store, all of them due, as Prepare would have.
func (h *halfBench) fill(ctx context.Context) error {
	const rows = 500
	var g errgroup.Group
	for no := range h.shards {
		n := h.halves / h.shards
		g.Go(func() error {
			s := newMessages(no)
			_, headers := headers()
			for done := 0; done < n; {
				size := min(rows, n-done)
				args := make([]any, 0, 6*size)
				for range size {
					id := uuid.Must(uuid.NewV7())
					args = append(args, id[:], topicName, []byte(s.key()), headers, s.body(), done)
				}
				row := "(?, '" + halfGroup + "', ?, ?, ?, ?, 1, '" + halfGroup + "', '', " + schema.NowMicros + ", ?, 0, 0)"
				_, err := h.db.pool.ExecContext(ctx, "INSERT INTO full."+schema.Half(no)+" (id, producer_group, topic, msg_key, headers, body, mirrored,"+
					" asked, check_url, prepared_at, next_check_at, checks, parked) VALUES "+strings.Repeat(row+",", size-1)+row, args...)
				if err != nil {
					return err
				}
				done += size
			}
			return nil
		})
	}
	return errors.Join(g.Wait(), h.db.forget(ctx))
}

func (h *halfBench) measure(ctx context.Context) ([]number, error) {
	var rates, delays []pair
	var checks, costs []float64
	var used usage
	var first int64
	for i := range h.pairs {
		ours, other, err := h.pair(ctx, i%2 == 1)
		if err != nil {
			return nil, err
		}
		h.say("  %.0f / %.0f msg/s, p99 %.1f / %.1f ms, %.0f / %.0f us of processors a message, %.0f checks/s", ours.rate, other.rate, ours.p99, other.p99, ours.cost, other.cost, ours.checks)
		if i == 0 {
			if first, err = h.tableBytes(); err != nil {
				return nil, err
			}
		}
		rates = append(rates, pair{ours.rate, other.rate})
		delays = append(delays, pair{ours.p99, other.p99})
		checks = append(checks, ours.checks)
		costs = append(costs, ours.cost/other.cost)
		used = used.add(ours.used)
	}
	size, err := h.size(ctx, first)
	if err != nil {
		return nil, err
	}
	beside := fmt.Sprintf("%d undecided halves / none", h.halves)
	rate := compared("publish rate beside "+beside, "msg/s", rates, atLeast(0.9))
	rate.limit = fmt.Sprintf("%s; processor time of a message %.2f of that without halves", used.limit(), median(costs))
	delay := compared(fmt.Sprintf("p99 of a publish at %d msg/s beside %s", halfRate, beside), "ms", delays, atMost(1.1))
	delay.limit = "the transaction that stores the message"
	asked := median(checks)
	bounded := number{what: "checks beside them", value: amount(asked) + "/s", want: fmt.Sprintf("at most %d/s", mostChecks), missed: asked > mostChecks,
		limit: "fifty from each shard every 500 ms, and less while the store is busy", runsHead: "runs"}
	for _, c := range checks {
		bounded.runs = append(bounded.runs, amount(c))
	}
	return []number{rate, delay, bounded, size}, nil
}

// pair makes a run of each side, in turn the one and the other first.
func (h *halfBench) pair(ctx context.Context, emptyFirst bool) (ours, other halfSide, err error) {
	if !emptyFirst {
		if ours, err = h.beside(ctx); err != nil {
			return ours, other, err
		}
	}
	if other, err = h.side(ctx, h.empty, "empty"); err == nil && emptyFirst {
		ours, err = h.beside(ctx)
	}
	return ours, other, err
}

// beside is a run with the producer group attached to the broker that has the halves.
func (h *halfBench) beside(ctx context.Context) (s halfSide, err error) {
	c, err := client.New(client.Config{Addrs: []string{h.full.addr}})
	if err != nil {
		return s, err
	}
	defer c.Close()
	listener, err := c.NewCheckListener(client.CheckListenerConfig{Group: halfGroup, Handler: func(context.Context, client.Check) (client.Decision, error) {
		h.checks.Add(1)
		return client.Unknown, nil
	}})
	if err != nil {
		return s, err
	}
	listen, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return listener.Run(listen) })
	before, began := h.checks.Load(), time.Now()
	s, err = h.side(ctx, h.full, "full")
	s.checks = float64(h.checks.Load()-before) / time.Since(began).Seconds()
	stop()
	return s, errors.Join(err, g.Wait())
}

// side is a run: a rate, and then the delay of single messages at a steady rate.
func (h *halfBench) side(ctx context.Context, br *broker, schema string) (s halfSide, err error) {
	pids := map[string]int{"notifyd": br.cmd.Process.Pid, "database": h.db.PID()}
	var acked atomic.Int64
	s.rate, s.used, err = rate(ctx, h.window*3/8, pids, &acked, func(ctx context.Context) error {
		return pipelined(ctx, br.addr, h.streams, &acked)
	})
	var cpu time.Duration
	for _, d := range s.used.by {
		cpu += d
	}
	s.cost = float64(cpu.Microseconds()) / (s.rate * s.used.wall.Seconds())
	if err == nil {
		err = errors.Join(h.db.rest(ctx, schema, h.shards), h.db.forget(ctx))
	}
	if err != nil {
		return s, err
	}
	delays, err := steady(ctx, br.addr, halfRate, h.window/4)
	s.p99 = milliseconds(percentile(delays, 0.99))
	return s, errors.Join(err, h.db.rest(ctx, schema, h.shards))
}

// steady publishes at a rate over one stream, and returns how long each acknowledgement took.
func steady(ctx context.Context, addr string, perSecond int, window time.Duration) ([]time.Duration, error) {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := c.NewPublisher(client.PublisherConfig{NoDedup: true})
	var g errgroup.Group
	g.Go(func() error { return p.Run(ctx) })
	var mu sync.Mutex
	var delays []time.Duration
	var failure firstError
	var waiting sync.WaitGroup
	s := newMessages(0)
	err = paced(ctx, perSecond, window, func(int) error {
		sent := time.Now()
		waiting.Add(1)
		return p.Send(ctx, s.message(), client.PublishOptions{}, func(_ client.Published, err error) {
			defer waiting.Done()
			if err != nil {
				failure.set(err)
			}
			mu.Lock()
			defer mu.Unlock()
			delays = append(delays, time.Since(sent))
		})
	})
	if err == nil {
		waiting.Wait()
	}
	p.Close()
	return delays, errors.Join(err, g.Wait(), failure.get())
}

// paced calls f with 0, 1, 2, ... at a rate.
func paced(ctx context.Context, perSecond int, window time.Duration, f func(int) error) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, all := time.Now(), int(window.Seconds()*float64(perSecond))
	for n := 0; n < all; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for due := int(time.Since(began).Seconds() * float64(perSecond)); n < min(due, all); n++ {
			if err := f(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// size says how much the tables of halves grew while they stayed undecided and were asked about.
func (h *halfBench) size(ctx context.Context, first int64) (number, error) {
	last, err := h.tableBytes()
	if err != nil {
		return number{}, err
	}
	rows := 0
	for no := range h.shards {
		var n int
		if err := h.db.pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM full."+schema.Half(no)).Scan(&n); err != nil {
			return number{}, err
		}
		rows += n
	}
	growth := float64(last) / float64(first)
	return number{what: "size of their tables at the end / after the first run", value: fmt.Sprintf("%.2f (%d / %d MiB, %d rows, %d checks)", growth, last>>20, first>>20, rows, h.checks.Load()),
		want: "at most 1.1", missed: growth > 1.1 || rows != h.halves/h.shards*h.shards, limit: "an update of a check moves one entry of a key", runsHead: "MiB",
		runs: []string{fmt.Sprint(first >> 20), fmt.Sprint(last >> 20)}}, nil
}

// tableBytes is the size of the files that hold the halves.
func (h *halfBench) tableBytes() (sum int64, err error) {
	err = filepath.WalkDir(h.db.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(e.Name(), "half_") || filepath.Base(filepath.Dir(path)) != "full" || strings.HasPrefix(e.Name(), "half_decision") {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
