package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Delivery is one attempt to hand a message to a group.
type Delivery struct {
	Message
	// Attempt is 1 for the first delivery to this group. A crash of the broker may
	// repeat a number.
	Attempt int
	// Deadline is when the broker will deliver again unless it was acknowledged.
	// An ack after it still completes, if another instance has not been faster.
	Deadline time.Time
	// Broker is the host:port that delivered.
	Broker string
	// Replayed is true when the message comes from a replay of the mirror: the group may
	// have had it long ago, and what came since may be handled already.
	Replayed bool

	extend func() bool
}

// Extend begins the ack wait anew: a handler that takes longer than it calls Extend now and
// then, at least each third of it. It reports false when the stream has broken: the
// broker delivers again. What only waits for a handler is extended by the Consumer.
func (d Delivery) Extend() bool { return d.extend != nil && d.extend() }

// ConsumerConfig is a consumer's configuration; the zero value of each optional
// field is its default.
type ConsumerConfig struct {
	// Group is the consumer group, which must exist. Required.
	Group string
	// Subscriptions are what this program takes the group's subscriptions to be. When the broker
	// has another definition of one, or none, Run ends with ReasonDefinedOtherwise or
	// ReasonUnknownSubscription and shows the differences. Those not named are not compared.
	Subscriptions []Subscription
	// Instance names this process in listings. Default: host name and process id.
	Instance string
	// Handler handles one delivery and returns what becomes of it:
	//
	//   - nil acknowledges: this group is done with the message;
	//   - an error has it delivered again after the group's backoff;
	//   - RetryAfter has it delivered again after a delay of the handler's choice;
	//   - Reject makes it a dead letter at once;
	//   - ErrUnsettled leaves it to its deadline.
	//
	// These may be anywhere in the error's chain; its text is the reason that the
	// operator sees. Deliveries may repeat, so a handler must bear to see a message
	// twice. The context ends when Run stops and Drain has passed. Required.
	Handler func(context.Context, Delivery) error
	// Concurrency is how many handlers run at once. Default 32.
	Concurrency int
	// Credit is the most deliveries that one broker may have under way; the
	// consumer asks for fewer while handlers are slow. At least Concurrency.
	// Default 1024.
	Credit int
	// Refresh is how often brokers are listed. Default 5 s.
	Refresh time.Duration
	// Drain is how long running handlers may go on when Run is stopped. Default 5 s.
	Drain time.Duration
}

// Consumer makes this process an instance of a group at every broker.
type Consumer struct {
	client *Client
	cfg    ConsumerConfig
	queue  *queue
	// handled is when a handler began or ended last, nanoseconds since 1970.
	handled atomic.Int64
	moved   chan struct{} // offer rerouted settlements now

	mu       sync.Mutex
	attached map[string]*attachment // by address
	reroute  *reroute
}

// NewConsumer returns a consumer; Run drives it, once.
func (c *Client) NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if cfg.Group == "" {
		return nil, errors.New("consumer group: missing")
	}
	if cfg.Handler == nil {
		return nil, errors.New("consumer handler: missing")
	}
	if err := setInstance(&cfg.Instance); err != nil {
		return nil, err
	}
	setDefault(&cfg.Concurrency, 32)
	setDefault(&cfg.Credit, 1024)
	setDefault(&cfg.Refresh, 5*time.Second)
	setDefault(&cfg.Drain, 5*time.Second)
	return &Consumer{
		client: c, cfg: cfg, queue: newQueue(), moved: make(chan struct{}, 1),
		attached: map[string]*attachment{}, reroute: newReroute(),
	}, nil
}

// Run consumes until ctx ends (nil), or until a broker refuses the group before
// any has accepted it (*Error, such as ReasonUnknownGroup). Brokers that cannot be
// reached are tried for ever. When ctx ends, what was not begun is left to be
// delivered to others, running handlers may finish, and their acks are sent.
func (c *Consumer) Run(ctx context.Context) error {
	h := newHTTPClient(c.client.cfg)
	defer h.CloseIdleConnections()
	// Streams and handlers outlive ctx: it only says to stop taking.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()

	var handlers sync.WaitGroup
	for range c.cfg.Concurrency {
		handlers.Go(func() { c.handle(work) })
	}
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	var rerouting sync.WaitGroup
	rerouting.Go(func() { c.offerAgain(taking) })
	rerouting.Go(func() { c.extendQueued(taking) })
	m := &members{c: c.client, h: h, log: c.client.cfg.Logger.With("group", c.cfg.Group), refresh: c.cfg.Refresh, open: c.open}
	err := m.supervise(taking, work)
	stopTaking()
	rerouting.Wait()

	c.queue.close()
	drain := time.AfterFunc(c.cfg.Drain, stopWork)
	handlers.Wait()
	drain.Stop()
	c.offer(time.Now())
	for _, a := range c.streams() {
		a.finish()
	}
	flush := time.AfterFunc(time.Second, stopWork)
	m.wait()
	flush.Stop()
	return err
}

// setInstance names this process unless it has a name.
func setInstance(name *string) error {
	if *name != "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("instance name: %w", err)
	}
	*name = fmt.Sprintf("%s-%d", host, os.Getpid())
	return nil
}

// open runs one stream to addr; while it is accepted it is the one for its address.
func (c *Consumer) open(ctx context.Context, h *http.Client, addr string, accepted func()) error {
	a := newAttachment(c, addr)
	defer func() {
		c.mu.Lock()
		if c.attached[addr] == a {
			delete(c.attached, addr)
		}
		c.mu.Unlock()
	}()
	return a.run(ctx, h, func() {
		accepted()
		c.mu.Lock()
		c.attached[addr] = a
		c.mu.Unlock()
		poke(c.moved)
	})
}

// handle runs the handler for one delivery after the other.
func (c *Consumer) handle(ctx context.Context) {
	for {
		r, ok := c.queue.pop(time.Now)
		if !ok {
			return
		}
		c.handled.Store(time.Now().UnixNano())
		err := c.cfg.Handler(ctx, r.Delivery)
		c.handled.Store(time.Now().UnixNano())
		s, settled := settlementOf(r.token, err)
		if !settled {
			continue
		}
		if s.nack {
			c.mu.Lock()
			c.reroute.sentNack(s, 8192+4*c.cfg.Credit*len(c.attached))
			c.mu.Unlock()
		}
		if !r.from.settle(s) {
			c.undelivered(r.from.addr, []settlement{s})
		}
	}
}

// extendPeriod is how often queued deliveries are looked at.
const extendPeriod = 200 * time.Millisecond

// extendQueued keeps what waits for a handler from being delivered again, as long as handlers
// begin or end at all: what a stuck process holds goes to others.
func (c *Consumer) extendQueued(ctx context.Context) {
	t := time.NewTicker(extendPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			c.queue.extend(now, time.Unix(0, c.handled.Load()))
		}
	}
}

// reasonText cuts an error's text to what the broker keeps, in valid UTF-8.
func reasonText(err error) string {
	const most = 1000
	text := err.Error()
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// undelivered takes settlements whose stream, to addr, broke before they were sent.
func (c *Consumer) undelivered(addr string, left []settlement) {
	if len(left) == 0 {
		return
	}
	now := time.Now()
	c.mu.Lock()
	for _, s := range left {
		c.reroute.lost(s, addr, now)
	}
	c.mu.Unlock()
	poke(c.moved)
}

// refused takes tokens that the broker at addr may not settle any more.
func (c *Consumer) refused(addr string, tokens [][]byte) {
	now := time.Now()
	c.mu.Lock()
	for _, t := range tokens {
		c.reroute.refused(t, addr, now)
	}
	c.mu.Unlock()
	poke(c.moved)
}

// offerAgain offers rerouted settlements when something has moved, and again while
// some are left, until ctx ends.
func (c *Consumer) offerAgain(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.moved:
		case <-again.C:
		}
		if c.offer(time.Now()) {
			again.Reset(c.reroute.pause)
		}
	}
}

// offer sends rerouted settlements that are due. It reports whether some are left.
func (c *Consumer) offer(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	addrs := make([]string, 0, len(c.attached))
	for addr := range c.attached {
		addrs = append(addrs, addr)
	}
	for addr, s := range c.reroute.due(addrs, now) {
		if c.attached[addr].settle(s...) {
			continue
		}
		for _, one := range s {
			c.reroute.lost(one, addr, now)
		}
	}
	return !c.reroute.idle()
}

func (c *Consumer) streams() []*attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*attachment, 0, len(c.attached))
	for _, a := range c.attached {
		out = append(out, a)
	}
	return out
}

// poke leaves one token in a channel of capacity one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
