package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"notifymirror/stream/board"
)

const (
	// boardRate is how many messages per second are on the board.
	boardRate = 5000
	// boardTransactions is how many Kafka transactions per second they come in.
	boardTransactions = 50
	// boardFrames is what a board promises its pages.
	boardFrames = 10
)

// watchFrames notes the number of each frame that comes to the page, on a line of its own. Frames whose number is left
// out were skipped by the server, since the page was slow.
const watchFrames = `window.frames_ = []; new EventSource(location.pathname.replace(/\/$/, "") + "/events").onmessage = (e) => frames_.push(Number(e.lastEventId))`

// measureBoard writes messages into the mirror at a steady rate and sees which frames a board's page draws.
func measureBoard(ctx context.Context, b *bench) (_ []number, err error) {
	kafka, err := b.startKafka(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	h, err := newHistory(ctx, kafka.addr)
	if err != nil {
		return nil, err
	}
	defer h.close()
	fields := map[string]board.Field{}
	for _, text := range []string{"json.symbol", "json.side", "key", "json.price"} {
		if fields[text], err = board.ParseField(text); err != nil {
			return nil, err
		}
	}
	shown := board.Board{Topic: topicName, Amount: fields["json.price"], Bars: []board.Field{fields["json.symbol"], fields["json.side"]},
		Top: []board.Field{fields["key"]}, Recent: []board.Field{fields["key"]}}
	return onBoard(ctx, kafka.addr, shown, func(ctx context.Context, url string) ([]number, error) {
		return b.watchBoard(ctx, h, url, kafka)
	})
}

// onBoard serves a board over a topic of the mirror while measure measures, given the page's URL.
func onBoard(ctx context.Context, kafka string, shown board.Board, measure func(ctx context.Context, url string) ([]number, error)) (numbers []number, err error) {
	server, err := board.New(board.Config{Kafka: board.KafkaConfig{Brokers: []string{kafka}}, Boards: map[string]board.Board{"bench": shown}}, board.Deps{})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	g, work := errgroup.WithContext(stop)
	g.Go(func() error { return server.Run(work, listener, server.Handler()) })
	g.Go(func() (err error) {
		defer cancel()
		numbers, err = measure(work, fmt.Sprintf("http://%s/boards/bench", listener.Addr()))
		return err
	})
	return numbers, g.Wait()
}

// watchBoard makes the runs on one page.
func (b *bench) watchBoard(ctx context.Context, h *history, url string, kafka *kafka) (_ []number, err error) {
	page, closePage, err := b.openPage(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closePage()) }()
	s := &screen{page: page}
	if err := s.feed(ctx, h, time.Second); err != nil { // the first messages have everything attached
		return nil, err
	}
	if _, err := s.changes(ctx); err != nil {
		return nil, err
	}
	if err := chromedp.Do(page, chromedp.Evaluate[chromedp.Void](watchFrames)); err != nil {
		return nil, err
	}
	n := number{what: fmt.Sprintf("a board's page at %d messages/s: frames a second that it draws, and frames that it missed", boardRate),
		want: fmt.Sprintf("%d a second (0.9 of them), none missed, the number right at the end", boardFrames), runsHead: "runs"}
	var drawn []float64
	var all usage
	missed := 0
	for range b.pairs {
		m := newMeter(map[string]int{"kafka": kafka.pid})
		perSecond, lost, err := s.watch(ctx, h, b.window)
		if err != nil {
			return nil, err
		}
		all = all.add(m.used())
		drawn, missed = append(drawn, perSecond), missed+lost
		n.runs = append(n.runs, fmt.Sprintf("%.1f a second, %d missed", perSecond, lost))
		b.say("  board %s", n.runs[len(n.runs)-1])
	}
	n.value = fmt.Sprintf("%.1f frames a second, %d missed", median(drawn), missed)
	n.missed, n.limit = missed > 0 || median(drawn) < 0.9*boardFrames, all.limit()
	return []number{n}, nil
}

// feed writes at the board's rate for a while, and waits until the page has counted all.
func (s *screen) feed(ctx context.Context, h *history, d time.Duration) error {
	tick := time.NewTicker(time.Second / boardTransactions)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := h.commit(ctx, boardRate/boardTransactions, func(int) time.Time { return time.Now().Truncate(time.Millisecond) }); err != nil {
			return err
		}
		s.count += boardRate / boardTransactions
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watch is one run. A frame is drawn when the page's number changes: at this rate it does with every frame.
func (s *screen) watch(ctx context.Context, h *history, d time.Duration) (perSecond float64, missed int, err error) {
	if err := chromedp.Do(s.page, chromedp.Evaluate[chromedp.Void](`frames_.length = 0`)); err != nil {
		return 0, 0, err
	}
	if err := s.feed(ctx, h, d); err != nil {
		return 0, 0, err
	}
	changes, err := s.changes(ctx) // it fails when the number is not right
	if err != nil {
		return 0, 0, err
	}
	numbers, err := chromedp.Run(s.page, chromedp.Evaluate[[]int](`frames_.splice(0)`))
	if err != nil {
		return 0, 0, err
	}
	if len(changes) < 2 || len(numbers) < 2 { // on a machine that is too slow to say more
		return 0, 0, nil
	}
	slices.Sort(numbers)
	sent := numbers[len(numbers)-1] - numbers[0] + 1
	took := max(1, changes[len(changes)-1][1]-changes[0][1]) // milliseconds
	return float64(len(changes)-1) * 1000 / took, max(0, sent-len(numbers)), nil
}
