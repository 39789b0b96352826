package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"notifymirror/mirror/record"
	"notifymirror/notifyd/client"
)

const (
	// latencyRate is how many messages are published per second.
	latencyRate = 1000
	// latencyGroup is the group that they are pushed to.
	latencyGroup = "readers"
	// headerNumber is the header with the message's number in its run.
	headerNumber = "n"
	// arrivalPatience bounds the wait for the last messages of a run.
	arrivalPatience = 30 * time.Second
)

// path is the whole stack, with a reader of the mirror attached, and a consumer where messages
// are pushed.
type path struct {
	rate      int // messages per second
	push      bool
	most      time.Duration // that the p99 of the mirror may be
	suffix    string        // of the numbers
	publisher *client.Publisher
	current   atomic.Pointer[journey]
	pids      map[string]int
}

// journey is one run: when each message was where. Times are nanoseconds since began; 0 is never.
type journey struct {
	began    time.Time
	sent     []int64
	pushed   []atomic.Int64 // none where nothing is pushed
	readable []atomic.Int64 // after born_at
	missing  atomic.Int64   // arrivals that are still awaited
	done     chan struct{}
}

func newJourney(n int, push bool) *journey {
	j := &journey{began: time.Now(), sent: make([]int64, n), readable: make([]atomic.Int64, n), done: make(chan struct{})}
	if push {
		j.pushed = make([]atomic.Int64, n)
	}
	j.missing.Store(int64(len(j.pushed) + n))
	return j
}

// arrived notes the first arrival of message n in one of the lists.
func (j *journey) arrived(list []atomic.Int64, n string, at time.Duration) {
	i, err := strconv.Atoi(n)
	if err != nil || i < 0 || i >= len(list) {
		return
	}
	if list[i].CompareAndSwap(0, max(1, int64(at))) && j.missing.Add(-1) == 0 {
		close(j.done)
	}
}

// measureLatency publishes at a steady rate and sees when messages are pushed and readable.
func measureLatency(ctx context.Context, b *bench) ([]number, error) {
	return b.withPath(ctx, latencyGroup, "latency", func(broker, kafka string, pids map[string]int) ([]number, error) {
		p := &path{rate: latencyRate, push: true, most: 100 * time.Millisecond, pids: pids}
		return p.measure(ctx, b, broker, kafka)
	})
}

// withPath runs the whole stack while measure measures, given the addresses of broker and Kafka and
// all processes. The topic is pushed to one group, if that has a name.
func (b *bench) withPath(ctx context.Context, group, name string, measure func(broker, kafka string, pids map[string]int) ([]number, error)) ([]number, error) {
	return b.withPathTo(ctx, b.startKafka, group, name, measure)
}

// withPathTo is withPath with the Kafka that start starts.
func (b *bench) withPathTo(ctx context.Context, start func(context.Context) (*kafka, error), group, name string,
	measure func(broker, kafka string, pids map[string]int) ([]number, error)) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	kafka, err := start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	mirror, err := b.spawn(roleMirror, brief{DSN: dsn, Brokers: []string{kafka.addr}, Profile: b.profileFile("canald-" + name)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mirror.stop()) }()
	if _, err := mirror.next(ctx); err != nil {
		return nil, err
	}
	br, err := b.startBroker(ctx, dsn, group, "notifyd-"+name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	return measure(br.addr, kafka.addr,
		map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID(), "kafka": kafka.pid, "canald": mirror.cmd.Process.Pid})
}

// measure attaches consumer, reader and publisher, and makes the runs.
func (p *path) measure(ctx context.Context, b *bench, broker, kafka string) ([]number, error) {
	c, err := client.New(client.Config{Addrs: []string{broker}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reader, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.ConsumeTopics(record.DefaultPrefix+topicName),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	p.publisher = c.NewPublisher(client.PublisherConfig{NoDedup: true})
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	g, work := errgroup.WithContext(stop)
	if p.push {
		consumer, err := c.NewConsumer(client.ConsumerConfig{Group: latencyGroup, Handler: p.pushed})
		if err != nil {
			return nil, err
		}
		g.Go(func() error { return consumer.Run(work) })
	}
	g.Go(func() error { return p.read(work, reader) })
	g.Go(func() error { return p.publisher.Run(work) })
	var numbers []number
	g.Go(func() error {
		defer cancel()
		defer p.publisher.Close()
		var err error
		numbers, err = p.runs(work, b)
		return err
	})
	return numbers, g.Wait()
}

func (p *path) runs(ctx context.Context, b *bench) ([]number, error) {
	// The first run makes the mirror's topic and has everything attached.
	if _, err := p.run(ctx, 50); err != nil {
		return nil, err
	}
	n := max(1, int(b.window.Seconds()*float64(p.rate)))
	var push, mirror []delay
	var all usage
	for range b.pairs {
		m := newMeter(p.pids)
		j, err := p.run(ctx, n)
		if err != nil {
			return nil, err
		}
		all = all.add(m.used())
		mirror = append(mirror, delayOf(j.readable, func(int) int64 { return 0 }))
		b.say("  mirror %s", mirror[len(mirror)-1])
		if p.push {
			push = append(push, delayOf(j.pushed, func(i int) int64 { return j.sent[i] }))
			b.say("  push %s", push[len(push)-1])
		}
	}
	rate := fmt.Sprintf("at %d msg/s%s", p.rate, p.suffix)
	limit := "batching: the mirror's linger of 10 ms and a commit; " + all.limit()
	numbers := []number{distributed("commit to readable in the mirror "+rate, mirror, p.most, limit)}
	if p.push {
		numbers = append(numbers, distributed("publish to push "+rate, push, 0, "the transaction that stores the message; "+all.limit()))
	}
	return numbers, nil
}

// run publishes n messages and returns when all have arrived at both ends.
func (p *path) run(ctx context.Context, n int) (*journey, error) {
	var failure firstError
	j := newJourney(n, p.push)
	p.current.Store(j)
	if err := steadilyAt(ctx, p.rate, p.publisher, n, &failure, func(i int) { j.sent[i] = int64(time.Since(j.began)) }); err != nil {
		return nil, err
	}
	limit := time.NewTimer(arrivalPatience)
	defer limit.Stop()
	select {
	case <-j.done:
		return j, failure.get()
	case <-limit.C:
		return nil, fmt.Errorf("%d arrivals of %d messages are missing after %s", j.missing.Load(), n, arrivalPatience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// steadily sends n messages at latencyRate, each with its number, which sent notes just before.
func steadily(ctx context.Context, p *client.Publisher, n int, failure *firstError, sent func(i int)) error {
	return steadilyAt(ctx, latencyRate, p, n, failure, sent)
}

// steadilyAt is steadily at another rate.
func steadilyAt(ctx context.Context, rate int, p *client.Publisher, n int, failure *firstError, sent func(i int)) error {
	return paceMessages(ctx, rate, n, func(s *messages, i int) error {
		m := s.message()
		m.Headers = map[string]string{headerNumber: strconv.Itoa(i)}
		sent(i)
		return p.Send(ctx, m, client.PublishOptions{}, func(_ client.Published, err error) {
			if err != nil {
				failure.set(err)
			}
		})
	})
}

// paceMessages calls send n times, rate times a second.
func paceMessages(ctx context.Context, rate, n int, send func(s *messages, i int) error) error {
	s, began := newMessages(0), time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; i < n; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for due := int(time.Since(began).Seconds() * float64(rate)); i < min(due, n); i++ {
			if err := send(s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// pushed is the consumer's handler.
func (p *path) pushed(_ context.Context, d client.Delivery) error {
	if j := p.current.Load(); j != nil {
		j.arrived(j.pushed, d.Headers[headerNumber], time.Since(j.began))
	}
	return nil
}

// read follows the mirror until ctx ends.
func (p *path) read(ctx context.Context, reader *kgo.Client) error {
	for ctx.Err() == nil {
		fetched := reader.PollFetches(ctx)
		now := time.Now()
		j := p.current.Load()
		fetched.EachRecord(func(r *kgo.Record) {
			var n string
			var bornAt int64
			for _, h := range r.Headers {
				switch h.Key {
				case headerNumber:
					n = string(h.Value)
				case "notify-born-at":
					bornAt, _ = strconv.ParseInt(string(h.Value), 10, 64)
				}
			}
			j.arrived(j.readable, n, now.Sub(time.UnixMicro(bornAt)))
		})
	}
	return nil
}

// delay is the distribution of one run.
type delay struct{ p50, p99, most time.Duration }

func (d delay) String() string {
	return fmt.Sprintf("p50 %.1f, p99 %.1f, max %.1f ms", milliseconds(d.p50), milliseconds(d.p99), milliseconds(d.most))
}

func delayOf(list []atomic.Int64, since func(i int) int64) delay {
	times := make([]time.Duration, len(list))
	for i := range list {
		times[i] = time.Duration(list[i].Load() - since(i))
	}
	return delay{percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1)}
}
