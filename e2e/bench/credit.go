package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"notifymirror/notifyd/client"
)

const (
	creditWindow    = 1000
	creditWork      = 100 * time.Millisecond
	creditInstances = 2
	// creditHandlers run at once in each instance: what its credit brings waits for twice the ack wait.
	creditHandlers = 10
)

// A tally counts how often messages were handled, by number.
type tally struct {
	mu    sync.Mutex
	times map[string]int
	calls int
}

func newTally() *tally { return &tally{times: map[string]int{}} }

func (t *tally) handled(n string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.times[n]++
	t.calls++
}

// counts are how many messages were handled, and how often beyond once each.
func (t *tally) counts() (messages, repeats int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.times), t.calls - len(t.times)
}

// measureCredit counts what is delivered twice to slow handlers behind a large credit.
func measureCredit(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	br, err := b.startBroker(ctx, dsn, latencyGroup, "notifyd-credit")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	t := newTally()
	for i := range creditInstances {
		stop, err := listen(ctx, br.addr, client.ConsumerConfig{Group: latencyGroup, Instance: fmt.Sprint("slow-", i), Credit: creditWindow, Concurrency: creditHandlers,
			Handler: func(ctx context.Context, d client.Delivery) error {
				t.handled(d.Headers[headerNumber])
				rest := time.NewTimer(creditWork)
				defer rest.Stop()
				select {
				case <-rest.C:
				case <-ctx.Done():
				}
				return nil
			}})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	n := max(100, int((5*b.window).Seconds()*creditInstances*creditHandlers/creditWork.Seconds()))
	if err := numbered(ctx, br.addr, n); err != nil {
		return nil, err
	}
	handled := func() (bool, error) { done, _ := t.counts(); return done == n, nil }
	patience, cancel := context.WithTimeout(ctx, 10*b.window+arrivalPatience)
	defer cancel()
	if err := every(patience, 20*time.Millisecond, handled); err != nil {
		return nil, fmt.Errorf("wait for %d deliveries: %w", n, err)
	}
	_, repeats := t.counts()
	what := fmt.Sprintf("deliveries repeated, credit %d, %d ms a message, two instances", creditWindow, creditWork.Milliseconds())
	return []number{share(what, repeats, n, 0.001, "the client extends what waits for a handler")}, nil
}

// share is the number of how many of some messages were delivered again; most is the largest part allowed.
func share(what string, repeats, messages int, most float64, limit string) number {
	part := float64(repeats) / float64(messages)
	return number{what: what, value: fmt.Sprintf("%.3f %% (%d of %d messages)", 100*part, repeats, messages),
		want: fmt.Sprintf("below %g %%", 100*most), missed: part >= most, limit: limit, runsHead: "repeats", runs: []string{strconv.Itoa(repeats)}}
}

// numbered publishes messages with the numbers 0 to n-1 as fast as one stream goes.
func numbered(ctx context.Context, addr string, n int) error {
	l, err := newLine(ctx, client.PublisherConfig{NoDedup: true}, addr)
	if err != nil {
		return err
	}
	for i := range n {
		if err = l.send(ctx, strconv.Itoa(i), func() {}); err != nil {
			break
		}
	}
	return errors.Join(err, l.close())
}
