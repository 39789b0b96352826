package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
	"notifymirror/stream"
)

// streamReaders is how many stream consumers read the mirror, each in a group of its own.
const streamReaders = 10

// readersBench publishes at a steady rate and compares what store and broker need while nobody
// mirrors, while the mirror runs, and while ten consumers read the mirror as well.
type readersBench struct {
	*bench
	db        *database
	kafka     *kafka
	dsn       string
	publisher *client.Publisher
	pids      map[string]int
	published int
}

func measureReaders(ctx context.Context, b *bench) (_ []number, err error) {
	r := &readersBench{bench: b}
	if r.db, err = b.startDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.db.stop()) }()
	if r.dsn, _, err = r.db.install(ctx, "notify"); err != nil {
		return nil, err
	}
	if r.kafka, err = b.startKafka(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.kafka.stop()) }()
	br, err := b.startBroker(ctx, r.dsn, "", "notifyd-readers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	r.pids = map[string]int{"store": r.db.PID(), "notifyd": br.cmd.Process.Pid, "kafka": r.kafka.pid}
	return publishing(ctx, br.addr, func(ctx context.Context, p *client.Publisher) ([]number, error) {
		r.publisher = p
		return r.measure(ctx)
	})
}

// publishing runs a publisher while do does something.
func publishing(ctx context.Context, addr string, do func(context.Context, *client.Publisher) ([]number, error)) (numbers []number, err error) {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := c.NewPublisher(client.PublisherConfig{NoDedup: true})
	g, work := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Run(work) })
	g.Go(func() (err error) {
		defer p.Close()
		numbers, err = do(work, p)
		return err
	})
	return numbers, g.Wait()
}

// toll is what one run needed.
type toll struct {
	used    usage
	queries float64 // per second, of the store
}

// cores is how many processors a process kept busy.
func (t toll) cores(name string) float64 { return t.used.by[name].Seconds() / t.used.wall.Seconds() }

func (r *readersBench) measure(ctx context.Context) ([]number, error) {
	if _, err := r.run(ctx, 100); err != nil { // has everything attached
		return nil, err
	}
	var none, mirrored, read []toll
	for range r.pairs {
		three, err := r.round(ctx)
		if err != nil {
			return nil, err
		}
		none, mirrored, read = append(none, three[0]), append(mirrored, three[1]), append(read, three[2])
		r.say("  store %.3f, %.3f, %.3f cores; %.0f, %.0f, %.0f queries/s", three[0].cores("store"), three[1].cores("store"), three[2].cores("store"),
			three[0].queries, three[1].queries, three[2].queries)
	}
	cores := func(name string) func(toll) float64 { return func(t toll) float64 { return t.cores(name) } }
	queries := func(t toll) float64 { return t.queries }
	at := fmt.Sprintf(", at %d msg/s", readableRate)
	var numbers []number
	for _, n := range []struct {
		what, unit   string
		ours, others []toll
		of           func(toll) float64
		want         bound
	}{
		{"store's processors with the mirror / without", "cores", mirrored, none, cores("store"), bound{}},
		{"store's queries with the mirror / without", "queries/s", mirrored, none, queries, atMost(1.1)},
		{"store's processors with ten stream consumers / none", "cores", read, mirrored, cores("store"), atMost(1.1)},
		{"store's queries with ten stream consumers / none", "queries/s", read, mirrored, queries, atMost(1.1)},
		{"notifyd's processors with ten stream consumers / none", "cores", read, mirrored, cores("notifyd"), atMost(1.1)},
	} {
		var pairs []pair
		var used usage
		for i := range n.ours {
			pairs = append(pairs, pair{n.of(n.ours[i]), n.of(n.others[i])})
			used = used.add(n.ours[i].used)
		}
		one := compared(n.what+at, n.unit, pairs, n.want)
		one.limit = used.limit()
		numbers = append(numbers, one)
	}
	return numbers, nil
}

// round makes a run without the mirror, one with it, and one with ten consumers.
func (r *readersBench) round(ctx context.Context) (three [3]toll, err error) {
	n := max(1, int(r.window.Seconds()*readableRate))
	if three[0], err = r.run(ctx, n); err != nil {
		return three, err
	}
	mirror, err := r.await(ctx, roleMirror, brief{DSN: r.dsn, Brokers: []string{r.kafka.addr}, Messages: r.published})
	if err != nil {
		return three, err
	}
	defer func() { err = errors.Join(err, mirror.stop()) }()
	if three[1], err = r.run(ctx, n); err != nil {
		return three, err
	}
	readers, err := r.await(ctx, roleReaders, brief{Brokers: []string{r.kafka.addr}, Readers: streamReaders, Messages: r.published})
	if err != nil {
		return three, err
	}
	defer func() { err = errors.Join(err, readers.stop()) }()
	three[2], err = r.run(ctx, n)
	return three, err
}

// await starts a child and waits until it says Done.
func (b *bench) await(ctx context.Context, role string, br brief) (*kid, error) {
	k, err := b.spawn(role, br)
	if err != nil {
		return nil, err
	}
	if _, err := k.next(ctx); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return k, nil
}

// run publishes n messages.
func (r *readersBench) run(ctx context.Context, n int) (t toll, err error) {
	var failure firstError
	before, err := r.db.queries(ctx)
	if err != nil {
		return t, err
	}
	m := newMeter(r.pids)
	if err := steadilyAt(ctx, readableRate, r.publisher, n, &failure, func(int) {}); err != nil {
		return t, err
	}
	t.used = m.used()
	after, err := r.db.queries(ctx)
	t.queries = float64(after-before) / t.used.wall.Seconds()
	r.published += n
	return t, errors.Join(err, failure.get())
}

// queries is how many statements the server has executed.
func (d *database) queries(ctx context.Context) (n int64, err error) {
	var name, value string
	if err := d.pool.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Queries'").Scan(&name, &value); err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// beReaders reads the mirror with br.Readers consumers. It says Done when each has br.Messages
// records.
func beReaders(ctx context.Context, br brief, say func(word) error) error {
	all := make(chan struct{})
	var behind atomic.Int64
	behind.Store(int64(br.Readers))
	g, work := errgroup.WithContext(ctx)
	for i := range br.Readers {
		var seen atomic.Int64
		c, err := stream.New(stream.Config{
			// A group of this round's own: one of the last would go on where that ended, and never see all.
			Brokers: br.Brokers, Topics: []string{topicName}, Group: fmt.Sprintf("reader-%d-of-%d", i, br.Messages),
			BatchHandler: func(_ context.Context, records []stream.Record) error {
				n := seen.Add(int64(len(records)))
				if n >= int64(br.Messages) && n-int64(len(records)) < int64(br.Messages) && behind.Add(-1) == 0 {
					close(all)
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		g.Go(func() error { return c.Run(work) })
	}
	g.Go(func() error {
		select {
		case <-all:
			return say(word{Done: true})
		case <-work.Done():
			return nil
		}
	})
	return g.Wait()
}
