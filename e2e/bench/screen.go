package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
	"notifymirror/stream/board"
)

// watchTotal notes each change of the board's number: what it is then, and when.
const watchTotal = `window.seen = []; new MutationObserver(() => seen.push([Number(document.getElementById("total").dataset.count), Date.now()]))
	.observe(document.getElementById("total"), {attributes: true})`

// screen is a board in a browser.
type screen struct {
	page      context.Context // the browser's
	publisher *client.Publisher
	count     int // messages published so far
}

// measureScreen publishes at a steady rate and sees when a board's number, in a browser, counts
// the messages.
func measureScreen(ctx context.Context, b *bench) ([]number, error) {
	return b.withPath(ctx, "", "screen", func(broker, kafka string, pids map[string]int) ([]number, error) {
		c, err := client.New(client.Config{Addrs: []string{broker}})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		s := &screen{publisher: c.NewPublisher(client.PublisherConfig{NoDedup: true})}
		return onBoard(ctx, kafka, board.Board{Topic: topicName}, func(ctx context.Context, url string) (numbers []number, err error) {
			g, work := errgroup.WithContext(ctx)
			g.Go(func() error { return s.publisher.Run(work) })
			g.Go(func() (err error) {
				defer s.publisher.Close()
				numbers, err = s.measure(work, b, url, pids)
				return err
			})
			return numbers, g.Wait()
		})
	})
}

// measure opens the page and makes the runs.
func (s *screen) measure(ctx context.Context, b *bench, url string, pids map[string]int) (_ []number, err error) {
	page, closePage, err := b.openPage(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closePage()) }()
	s.page = page
	// The first run makes the mirror's topic and has everything attached.
	if _, err := s.run(ctx, 50); err != nil {
		return nil, err
	}
	var runs []delay
	var all usage
	for range b.pairs {
		m := newMeter(pids)
		d, err := s.run(ctx, max(1, int(b.window.Seconds()*latencyRate)))
		if err != nil {
			return nil, err
		}
		all = all.add(m.used())
		runs = append(runs, d)
		b.say("  screen %s", d)
	}
	what := fmt.Sprintf("publish to number changed in a browser at %d msg/s", latencyRate)
	return []number{distributed(what, runs, 500*time.Millisecond, "ten frames a second; "+all.limit())}, nil
}

// openPage opens a board in a browser, and has it note the changes of its number.
func (b *bench) openPage(ctx context.Context, url string) (page context.Context, closePage func() error, err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(b.dir+"/chromium"))
	for _, flag := range []string{"no-sandbox", "disable-gpu", "disable-quic", "disable-component-update"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	browsing, stop := chromedp.NewExecAllocator(context.WithoutCancel(ctx), options...)
	page, _ = chromedp.NewContext(browsing)
	closePage = func() error { defer stop(); return chromedp.Cancel(page) }
	if err := chromedp.Do(page, chromedp.Navigate(url)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("chromium: %w", err), closePage())
	}
	if err := chromedp.Do(page, chromedp.Evaluate[chromedp.Void](watchTotal)); err != nil {
		return nil, nil, errors.Join(err, closePage())
	}
	return page, closePage, nil
}

// run publishes n messages and returns when the page has counted them. The k-th message is on
// the screen when the number has reached k.
func (s *screen) run(ctx context.Context, n int) (delay, error) {
	var failure firstError
	sent := make([]time.Time, n)
	if err := steadily(ctx, s.publisher, n, &failure, func(i int) { sent[i] = time.Now() }); err != nil {
		return delay{}, err
	}
	before := s.count
	s.count += n
	changes, err := s.changes(ctx)
	if err != nil {
		return delay{}, err
	}
	times := make([]time.Duration, n)
	for i := range times {
		at := sort.Search(len(changes), func(c int) bool { return int(changes[c][0]) > before+i })
		times[i] = time.UnixMilli(int64(changes[at][1])).Sub(sent[i])
	}
	return delay{percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1)}, failure.get()
}

// changes waits until the page has counted all, and returns what it noted since the last time.
func (s *screen) changes(ctx context.Context) ([][2]float64, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(arrivalPatience)
	for {
		have, err := chromedp.Run(s.page, chromedp.Evaluate[float64](`seen.at(-1)?.[0] ?? 0`))
		if err != nil {
			return nil, err
		}
		if int(have) >= s.count {
			return chromedp.Run(s.page, chromedp.Evaluate[[][2]float64](`seen.splice(0)`))
		}
		select {
		case <-tick.C:
		case <-late:
			return nil, fmt.Errorf("the page shows %.0f of %d messages after %s", have, s.count, arrivalPatience)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
