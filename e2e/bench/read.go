package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
	"notifymirror/stream"
	"notifymirror/stream/window"
)

const (
	// windowSize is the length of the windows, in event time, of which one second has a thousand messages.
	windowSize = 10 * time.Second
	// flatMemory is how much the peak of the memory may grow behind the first quarter of a replay.
	flatMemory = 1.25
)

// measureRead compares a consumer with the library that it is made with, and adds up windows over the same messages.
func measureRead(ctx context.Context, b *bench) (_ []number, err error) {
	kafka, err := b.startKafka(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	if err := fillHistory(ctx, kafka.addr, b.records); err != nil {
		return nil, err
	}
	r := &reading{b: b, kafka: kafka, brief: brief{Brokers: []string{kafka.addr}, Messages: b.records}}
	numbers, err := r.beside(ctx)
	if err != nil {
		return nil, err
	}
	windows, err := r.windows(ctx)
	return append(numbers, windows), err
}

// A reading has children read the history.
type reading struct {
	b     *bench
	kafka *kafka
	brief brief
}

// beside compares members of a group with the bare library.
func (r *reading) beside(ctx context.Context) ([]number, error) {
	members := []struct {
		role, what string
		want       bound
	}{
		{roleReader, "a consumer that handles records one by one / the bare client library (sarama)", atLeast(0.8)},
		{roleBatches, "a consumer that handles batches of up to 500 / the bare client library (sarama)", bound{}},
	}
	pairs := make([][]pair, len(members))
	ours := make([]usage, len(members))
	var others usage
	for range r.b.pairs {
		bare, used, _, err := r.run(ctx, roleBare)
		if err != nil {
			return nil, err
		}
		others = others.add(used)
		for i, m := range members {
			rate, used, _, err := r.run(ctx, m.role)
			if err != nil {
				return nil, err
			}
			ours[i] = ours[i].add(used)
			p := pair{ours: rate, other: bare}
			pairs[i] = append(pairs[i], p)
			r.b.say("  %s %.0f / %.0f msg/s = %.2f", m.role, p.ours, p.other, p.ratio())
		}
	}
	var numbers []number
	for i, m := range members {
		n := compared(m.what, "msg/s", pairs[i], m.want)
		n.limit = ours[i].limit() + " (bare: " + others.limit() + ")"
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// windows are those of a replay of everything.
func (r *reading) windows(ctx context.Context) (number, error) {
	n := number{what: fmt.Sprintf("window aggregation over a replay of %d records, 1,000 keys, 8 partitions", r.b.records), want: fmt.Sprintf("peak memory at the end at most %g of that at a quarter", flatMemory), runsHead: "runs"}
	var rates, quarters, ends []float64
	var all usage
	for range r.b.pairs {
		rate, used, peaks, err := r.run(ctx, roleWindows)
		if err != nil {
			return n, err
		}
		all = all.add(used)
		quarter, end := float64(peaks[0])/(1<<20), float64(peaks[1])/(1<<20)
		rates, quarters, ends = append(rates, rate), append(quarters, quarter), append(ends, end)
		n.missed = n.missed || end > flatMemory*quarter
		n.runs = append(n.runs, fmt.Sprintf("%s msg/s, %.0f and %.0f MiB", amount(rate), quarter, end))
		r.b.say("  windows %s", n.runs[len(n.runs)-1])
	}
	n.value = fmt.Sprintf("%s msg/s; peak memory %.0f MiB at a quarter, %.0f MiB at the end", amount(median(rates)), median(quarters), median(ends))
	n.limit = all.limit()
	return n, nil
}

// run has one child read everything, and returns its rate from the first record on, and the peaks of memory that it tells.
func (r *reading) run(ctx context.Context, role string) (rate float64, used usage, peaks []int, err error) {
	br := r.brief
	br.Profile = r.b.profileFile(role)
	k, err := r.b.spawn(role, br)
	if err != nil {
		return 0, usage{}, nil, err
	}
	defer func() { err = errors.Join(err, k.stop()) }()
	if _, err := k.next(ctx); err != nil { // the first record
		return 0, usage{}, nil, err
	}
	m := newMeter(map[string]int{role: k.cmd.Process.Pid, "kafka": r.kafka.pid})
	for {
		w, err := k.next(ctx)
		if err != nil {
			return 0, usage{}, nil, err
		}
		peaks = append(peaks, w.Peak)
		if w.Done {
			break
		}
	}
	used = m.used()
	return float64(br.Messages) / used.wall.Seconds(), used, peaks, nil
}

// A countdown counts records, and tells of the first and the last.
type countdown struct {
	all   int64
	seen  atomic.Int64
	first chan struct{}
	last  chan struct{}
}

func newCountdown(all int) *countdown {
	return &countdown{all: int64(all), first: make(chan struct{}), last: make(chan struct{})}
}

// count takes n more.
func (c *countdown) count(n int) {
	now := c.seen.Add(int64(n))
	if now == int64(n) {
		close(c.first)
	}
	if now == c.all {
		close(c.last)
	}
}

// tell says that it has begun and that it is done.
func (c *countdown) tell(ctx context.Context, say func(word) error) error {
	for _, step := range []struct {
		at <-chan struct{}
		w  word
	}{{c.first, word{}}, {c.last, word{Done: true}}} {
		select {
		case <-step.at:
		case <-ctx.Done():
			return nil
		}
		if err := say(step.w); err != nil {
			return err
		}
	}
	return nil
}

// beReader is a member of a group with the default configuration that handles records one by one.
func beReader(ctx context.Context, br brief, say func(word) error) error {
	return beMember(ctx, br, say, func(cfg *stream.Config, records *countdown) {
		cfg.Handler = func(context.Context, stream.Record) error { records.count(1); return nil }
	})
}

// beBatches is one that handles them in batches.
func beBatches(ctx context.Context, br brief, say func(word) error) error {
	return beMember(ctx, br, say, func(cfg *stream.Config, records *countdown) {
		cfg.BatchHandler = func(_ context.Context, batch []stream.Record) error { records.count(len(batch)); return nil }
	})
}

func beMember(ctx context.Context, br brief, say func(word) error, handle func(*stream.Config, *countdown)) error {
	records := newCountdown(br.Messages)
	cfg := stream.Config{Brokers: br.Brokers, Topics: []string{topicName}, Group: fmt.Sprintf("reader-%d", os.Getpid()), Logger: childLogger()}
	handle(&cfg, records)
	c, err := stream.New(cfg)
	if err != nil {
		return err
	}
	var telling sync.WaitGroup
	var failure firstError
	telling.Go(func() { failure.set(records.tell(ctx, say)) })
	err = c.Run(ctx)
	telling.Wait()
	return errors.Join(err, failure.get())
}

// beBare reads committed records with the library's default configuration, and does nothing with them.
func beBare(ctx context.Context, br brief, say func(word) error) error {
	cfg := sarama.NewConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	c, err := sarama.NewConsumer(br.Brokers, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	topic := record.DefaultPrefix + topicName
	numbers, err := c.Partitions(topic)
	if err != nil {
		return err
	}
	records := newCountdown(br.Messages)
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, n := range numbers {
		p, err := c.ConsumePartition(topic, n, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer p.AsyncClose()
		reading.Go(func() {
			for range p.Messages() {
				records.count(1)
			}
		})
	}
	if err := records.tell(ctx, say); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// beWindows adds up amounts per key in windows of event time, each partition for itself, as a processor does.
func beWindows(ctx context.Context, br brief, say func(word) error) error {
	var windows [historyPartitions]*window.Windows
	for i := range windows {
		var err error
		if windows[i], err = window.New(window.Config{Size: windowSize}); err != nil {
			return err
		}
	}
	var closed, seen atomic.Int64
	begun := sync.OnceValue(func() error { return say(word{}) })
	quarter := sync.OnceValue(func() error { return sayPeak(say, false) })
	c, err := stream.New(stream.Config{Brokers: br.Brokers, Topics: []string{topicName}, End: stream.Newest(), Logger: childLogger(),
		BatchHandler: func(_ context.Context, batch []stream.Record) error {
			if err := begun(); err != nil {
				return err
			}
			w := windows[batch[0].Partition]
			for _, r := range batch {
				if _, err := w.Add(window.Event{Time: r.CommitTime, Key: string(r.Key), Amount: int64(len(r.Body))}); err != nil {
					return err
				}
			}
			for _, result := range w.Due() {
				total, err := result.Total()
				if err != nil {
					return err
				}
				closed.Add(total.Count)
			}
			if seen.Add(int64(len(batch))) >= int64(br.Messages)/4 {
				return quarter()
			}
			return nil
		}})
	if err != nil {
		return err
	}
	if err := c.Run(ctx); err != nil {
		return err
	}
	for _, w := range windows {
		for _, result := range w.Open() {
			total, err := result.Total()
			if err != nil {
				return err
			}
			closed.Add(total.Count)
		}
	}
	if n := closed.Load(); n != int64(br.Messages) {
		return fmt.Errorf("%d messages are in the windows, want %d", n, br.Messages)
	}
	if err := sayPeak(say, true); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// sayPeak tells the most memory that this process ever had resident.
func sayPeak(say func(word) error, done bool) error {
	return say(word{Done: done, Peak: int(memory(os.Getpid()))})
}
