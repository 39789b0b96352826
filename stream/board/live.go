package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/stream"
)

const (
	// frameInterval is the least time between two frames, quietInterval the most.
	frameInterval = 100 * time.Millisecond
	quietInterval = time.Second
	// delaySpan is over how long the largest delay is shown.
	delaySpan = 5 * time.Second
	// slack is how much earlier than the period reading begins: Kafka looks for times of
	// commits, in whole seconds where the store is MariaDB; and how far ahead of ours a store's
	// clock may begin a period.
	slack = time.Minute
	// retryAfter is the pause after a fault.
	retryAfter = time.Second
)

// live is one board at work.
//
//	history ──(all that the log held at the start is read)──> follow ──┐
//	   ^                                                               │
//	   └──────────(offsets are not in the log any more)────────────────┘
//
// Nothing is shown before the history is read, and the old numbers, which grow grey, while
// it is read anew: so there is no dip.
type live struct {
	name    string
	page    string // the version of its files
	board   Board
	cfg     *Config
	zone    *time.Location
	logger  *slog.Logger
	metrics *metrics
	sources *sources
	feed    *feed
	viewers atomic.Int64

	mu    sync.Mutex
	tally *tally // nil until the history is read
	// read counts the records of the history.
	read     int64
	note     string
	consumer *stream.Consumer // while following
	asOf     time.Time
	delays   []delay
	watched  bool // somebody looked when the last frame was made

	checking sync.Mutex // one check at a time
}

// delay is how late a frame showed a message.
type delay struct {
	at  time.Time
	max time.Duration
}

// run reads and shows until ctx ends.
func (l *live) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.show(ctx) })
	g.Go(func() error {
		for ctx.Err() == nil {
			t, err := l.history(ctx)
			if err == nil {
				l.present(t)
				err = l.follow(ctx, t)
			}
			l.trouble(ctx, err)
			l.metrics.rebuilds.WithLabelValues(l.name).Inc()
		}
		return nil
	})
	return g.Wait()
}

// trouble notes what is wrong, for people, and waits a little.
func (l *live) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := err.Error()
	switch {
	case errors.Is(err, stream.ErrUnreachable):
		text = "Kafka does not answer"
	case errors.Is(err, stream.ErrUnknownTopic):
		text = fmt.Sprintf("topic %s is not in the mirror yet", l.board.Topic)
	}
	l.mu.Lock()
	news := l.note != text
	l.note = text
	l.mu.Unlock()
	if news {
		l.logger.WarnContext(ctx, "board waits", slog.String("board", l.name), slog.Any("err", err))
	}
	select {
	case <-ctx.Done():
	case <-time.After(retryAfter):
	}
}

// start is where reading begins for what the board counts from an instant on.
func start(from time.Time) stream.Position {
	if from.IsZero() {
		return stream.Oldest()
	}
	return stream.AtTime(from.Add(-slack))
}

// begin is the instant from which on the board needs records: its period's start, or the
// curve's if that is earlier.
func (l *live) begin(now time.Time) time.Time {
	from := l.board.Since.start(now)
	if c := now.Add(-l.board.Curve - maxPoints*time.Second); !from.IsZero() && c.Before(from) {
		return c
	}
	return from
}

func (l *live) now() time.Time { return time.Now().In(l.zone) }

// config is a consumer's, for a handler of readings.
func (l *live) config(handle func(reading)) stream.Config {
	return stream.Config{
		Brokers: l.cfg.Kafka.Brokers, Access: l.cfg.Kafka.Access, Prefix: l.cfg.TopicPrefix, Topics: []string{l.board.Topic}, SkipForeign: true,
		LagInterval: sourceInterval, Logger: l.logger,
		Handler: func(_ context.Context, r stream.Record) error {
			taken := l.board.read(newMessage(r))
			taken.came = time.Now()
			handle(taken)
			return nil
		},
	}
}

// history reads what the log holds at present.
func (l *live) history(ctx context.Context) (*tally, error) {
	now := l.now()
	t := newTally(&l.board, now)
	l.mu.Lock()
	l.read = 0
	l.mu.Unlock()
	cfg := l.config(func(r reading) {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.add(r)
		l.read++
	})
	cfg.Start, cfg.End = start(l.begin(now)), stream.Newest()
	consumer, err := stream.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := consumer.Run(ctx); err != nil {
		return nil, err
	}
	return t, ctx.Err()
}

// present shows a tally from now on.
func (l *live) present(t *tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.waiting, t.changed = time.Time{}, true // history is not late
	l.tally, l.note = t, ""
}

// follow reads on behind what a tally has, until ctx ends or reading on is not possible.
func (l *live) follow(ctx context.Context, t *tally) error {
	from := start(l.begin(l.now()))
	for {
		err := l.followOnce(ctx, t, from)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, stream.ErrOffsetOutOfRange), errors.Is(err, stream.ErrUnknownTopic):
			return err
		case err != nil:
			l.trouble(ctx, err)
		}
	}
}

// followOnce reads on until a fault, or until the topic has another number of partitions.
func (l *live) followOnce(ctx context.Context, t *tally, from stream.Position) error {
	partitions, err := l.partitions()
	if err != nil {
		return err
	}
	cfg := l.config(func(r reading) {
		l.mu.Lock()
		t.add(r)
		l.mu.Unlock()
		l.metrics.count(l.name, r)
	})
	cfg.Registerer, cfg.Partitions = l.metrics.registerer, partitions
	l.mu.Lock()
	cfg.Start = stream.AtOffsets(maps.Clone(t.next), from)
	l.mu.Unlock()
	consumer, err := stream.New(cfg)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.consumer, l.note = consumer, ""
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.consumer = nil
		l.mu.Unlock()
	}()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() { l.watchPartitions(reading, len(partitions), stop) })
	return consumer.Run(reading)
}

// show makes frames until ctx ends: soon after something has changed while somebody
// looks, and one a second in any case.
func (l *live) show(ctx context.Context) error {
	tick := time.NewTicker(frameInterval)
	defer tick.Stop()
	var last time.Time
	for {
		now := l.now()
		if now.Sub(last) >= quietInterval || l.viewers.Load() > 0 && l.hasChanged() {
			text, err := json.Marshal(l.frame(now))
			if err != nil {
				return fmt.Errorf("board %s: frame: %w", l.name, err)
			}
			l.feed.set(text)
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (l *live) hasChanged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally != nil && l.tally.changed
}

// frame is what is to be seen now.
func (l *live) frame(now time.Time) *frame {
	mirror, silent := l.sources.mirrors()
	groups := l.sources.groupsOf(l.board.Topic)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &frame{Page: l.page, Title: l.board.Title, Now: now.UnixMilli(), Note: l.note, Mirror: mirror, Groups: groups, Silent: silent}
	if l.tally == nil {
		f.State, f.Read = stateReading, l.read
		return f
	}
	f.State = stateLive
	f.Delay = l.delay(now)
	l.tally.fill(f, now)
	l.asOf = later(l.asOf, l.known(mirror))
	if !l.asOf.IsZero() {
		f.AsOf = min(l.asOf.UnixMilli(), f.Now)
		l.metrics.age.WithLabelValues(l.name).Set(max(0, now.Sub(l.asOf).Seconds()))
	}
	return f
}

// known is the instant up to which the tally is known to be whole; zero while that is not
// known, as while nobody reads.
func (l *live) known(mirror []mirrorState) time.Time {
	if l.consumer == nil {
		return time.Time{}
	}
	return earlier(l.consumer.CaughtUp(), mirrored(mirror, l.tally.newest))
}

// delay is the largest delay of late in milliseconds, that of this frame included; -1 when
// there was no message. What waited for its frame since nobody looked was not late.
func (l *live) delay(now time.Time) int64 {
	before := l.watched
	l.watched = l.viewers.Load() > 0
	if at := l.tally.waiting; !at.IsZero() && before && l.watched {
		l.delays = append(l.delays, delay{now, max(0, now.Sub(at))})
	}
	most := time.Duration(-1)
	kept := l.delays[:0]
	for _, d := range l.delays {
		if now.Sub(d.at) < delaySpan {
			kept = append(kept, d)
			most = max(most, d.max)
		}
	}
	l.delays = kept
	if most < 0 {
		return -1
	}
	return most.Milliseconds()
}
