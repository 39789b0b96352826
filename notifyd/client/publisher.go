package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// PublisherConfig is a publisher's configuration; the zero value of each field is
// its default.
type PublisherConfig struct {
	// Window is the most messages that may be unanswered. Default 8192.
	Window int
	// WindowBytes is about the most bytes of bodies that may be unanswered.
	// Default 32 MiB.
	WindowBytes int64
	// BatchMessages and BatchBytes bound one frame. Default 500 and 1 MiB.
	BatchMessages int
	BatchBytes    int
	// NoDedup is PublishOptions.NoDedup for every message: without an idempotency
	// key, a message whose answer was lost with its stream may be stored twice.
	NoDedup bool
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	setDefault(&c.Window, 8192)
	setDefault(&c.WindowBytes, 32<<20)
	setDefault(&c.BatchMessages, 500)
	setDefault(&c.BatchBytes, 1<<20)
	return c
}

// Publisher publishes pipelined: one stream, many messages under way, answers in
// order. Messages that one goroutine sends keep their order also over a broken
// stream. Use it so:
//
//	p := c.NewPublisher(client.PublisherConfig{})
//	go p.Run(ctx)
//	for _, m := range messages {
//		err := p.Send(ctx, m, client.PublishOptions{}, func(r client.Published, err error) { ... })
//	}
//	p.Close() // Run returns when all is answered
type Publisher struct {
	c    *Client
	cfg  PublisherConfig
	room *semaphore.Weighted
	work chan struct{} // holds one token when the stream's writer should look again

	mu     sync.Mutex
	win    window
	closed bool
	failed error // what Send returns once Run has ended
	// failure is the first result of this stream that asks to send again.
	failure *Error
}

// NewPublisher returns a publisher; Run drives it.
func (c *Client) NewPublisher(cfg PublisherConfig) *Publisher {
	cfg = cfg.withDefaults()
	return &Publisher{c: c, cfg: cfg, room: semaphore.NewWeighted(cfg.WindowBytes), work: make(chan struct{}, 1)}
}

// Send queues one message and returns; it blocks while the window is full. Once
// Send has returned nil, done is called exactly once: with the answer, or with
// what prevented one (*Error, or ErrClosed in its chain). Calls of done follow the
// order of messages, but for those that had to be sent again, and must be short;
// done must not call Send.
func (p *Publisher) Send(ctx context.Context, m Message, opts PublishOptions, done func(Published, error)) error {
	opts.NoDedup = opts.NoDedup || p.cfg.NoDedup
	req, err := publishRequest(m, opts)
	if err != nil {
		return err
	}
	// One semaphore bounds both: a small message weighs its share of the window.
	weight := max(int64(len(m.Body)+overhead), p.cfg.WindowBytes/int64(p.cfg.Window))
	weight = min(weight, p.cfg.WindowBytes)
	if err := p.room.Acquire(ctx, weight); err != nil {
		return err
	}
	p.mu.Lock()
	if p.failed != nil || p.closed {
		err := p.failed
		p.mu.Unlock()
		p.room.Release(weight)
		if err == nil {
			err = ErrClosed
		}
		return err
	}
	p.win.push(entry{req: req, weight: weight, done: done})
	p.mu.Unlock()
	p.wake()
	return nil
}

// Publish sends one message and waits for its answer.
func (p *Publisher) Publish(ctx context.Context, m Message, opts PublishOptions) (Published, error) {
	type answer struct {
		r   Published
		err error
	}
	ch := make(chan answer, 1)
	if err := p.Send(ctx, m, opts, func(r Published, err error) { ch <- answer{r, err} }); err != nil {
		return Published{}, err
	}
	select {
	case a := <-ch:
		return a.r, a.err
	case <-ctx.Done():
		return Published{}, ctx.Err()
	}
}

// Close says that nothing more will be sent. Run returns once all is answered.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wake()
}

// Run opens streams and answers messages until Close was called and all is
// answered (nil), ctx ends with messages unanswered (ErrClosed in the chain; nil
// when there are none), a broker refuses the stream for good, or no broker has
// taken a message for Config.Patience. What is unanswered then gets the error.
func (p *Publisher) Run(ctx context.Context) error {
	h := newHTTPClient(p.c.cfg)
	defer h.CloseIdleConnections()
	listed, stop := context.WithCancel(ctx)
	var listing sync.WaitGroup
	listing.Go(func() { p.c.keepListed(listed, h) })
	defer listing.Wait()
	defer stop()
	return p.runOn(ctx, h)
}

// runOn is Run on the connections of h.
func (p *Publisher) runOn(ctx context.Context, h *http.Client) error {
	err := p.run(ctx, h)
	p.mu.Lock()
	left := p.win.drop()
	p.failed = err
	if err == nil {
		p.failed = ErrClosed
	}
	p.mu.Unlock()
	for _, e := range left {
		e.done(Published{}, p.failed)
		p.room.Release(e.weight)
	}
	if len(left) == 0 && ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *Publisher) run(ctx context.Context, h *http.Client) error {
	bo := backoff{min: p.c.cfg.RetryMin, max: p.c.cfg.RetryMax}
	var failing time.Time // when the first stream failed after the last answer
	for {
		if !p.waitForWork(ctx) {
			return p.ended(ctx)
		}
		answered := false
		err := p.c.anyBroker(ctx, func(addr string) error {
			n, err := p.stream(ctx, h, addr)
			answered = answered || n > 0
			return callError(addr, err)
		})
		p.mu.Lock()
		p.win.rewind()
		p.failure = nil
		idle := p.win.empty()
		p.mu.Unlock()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return p.ended(ctx)
		}
		var e *Error
		if errors.As(err, &e) && e.permanent() {
			return err
		}
		if answered || idle || failing.IsZero() {
			failing = time.Now()
			bo.reset()
		}
		if p.c.outOfPatience(failing) {
			return fmt.Errorf("no broker has taken a message for %s: %w", p.c.cfg.Patience, err)
		}
		p.c.cfg.Logger.Debug("publish stream broke", "err", err)
		if idle {
			failing = time.Time{}
			continue
		}
		bo.wait(ctx, nil)
	}
}

// waitForWork blocks until a message is unanswered. False: closed and all
// answered, or ctx ended.
func (p *Publisher) waitForWork(ctx context.Context) bool {
	for {
		p.mu.Lock()
		empty, closed := p.win.empty(), p.closed
		p.mu.Unlock()
		if ctx.Err() != nil || (empty && closed) {
			return false
		}
		if !empty {
			return true
		}
		select {
		case <-p.work:
		case <-ctx.Done():
		}
	}
}

// ended is what run returns when waitForWork is false.
func (p *Publisher) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

func (p *Publisher) wake() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}
