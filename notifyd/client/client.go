package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// Config is a client's configuration; the zero value of each field is its default.
type Config struct {
	// Addrs are brokers, host:port. One that lives is enough: the others are found
	// through it, and used when it fails. Default 127.0.0.1:7700.
	Addrs []string
	// Refresh is how often the live brokers are listed while they are called.
	// Default 30 s.
	Refresh time.Duration
	// Logger gets changes of state: attached, detached, reconnecting. Default: none.
	Logger *slog.Logger
	// Patience is how long a publish is tried again while no broker can be reached
	// or brokers answer that it may succeed later. Default 30 s; negative: until
	// the context ends.
	Patience time.Duration
	// RetryMin and RetryMax bound the backoff between tries. Default 50 ms and 5 s.
	RetryMin time.Duration
	RetryMax time.Duration
	// DialTimeout bounds connecting to one broker. Default 3 s.
	DialTimeout time.Duration
	// PingAfter is how long a connection may be silent before it is asked whether
	// it lives, and PingTimeout how long it has to answer. Default 3 s and 3 s.
	PingAfter   time.Duration
	PingTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"127.0.0.1:7700"}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.Refresh, 30*time.Second)
	setDefault(&c.Patience, 30*time.Second)
	setDefault(&c.RetryMin, 50*time.Millisecond)
	setDefault(&c.RetryMax, 5*time.Second)
	setDefault(&c.DialTimeout, 3*time.Second)
	setDefault(&c.PingAfter, 3*time.Second)
	setDefault(&c.PingTimeout, 3*time.Second)
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Client talks to the brokers of one cluster. It is safe for concurrent use.
type Client struct {
	cfg     Config
	dir     *directory
	http    *http.Client
	batches *http.Client // a batch's stream must not hold up the other calls
}

// New returns a client. Nothing is connected to until it is used. The error
// names an address that is not host:port.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	for _, a := range cfg.Addrs {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return nil, fmt.Errorf("broker address %q: want host:port, such as 127.0.0.1:7700", a)
		}
	}
	return &Client{
		cfg: cfg, dir: &directory{configured: cfg.Addrs, refresh: cfg.Refresh},
		http: newHTTPClient(cfg), batches: newHTTPClient(cfg),
	}, nil
}

// Close drops idle connections. Publishers, Consumers and CheckListeners close
// their own.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.batches.CloseIdleConnections()
}

// Publish stores one message and returns when it is durable. Errors are *Error:
// with ReasonResultUnknown the message may be stored. Under an idempotency key,
// which is the message's id unless opts says otherwise, all failures that a retry
// may mend are retried for Config.Patience; without one, only those that promise
// that nothing was stored. The answer's ID is set also beside an error: the same
// message published again with that ID is no duplicate.
func (c *Client) Publish(ctx context.Context, m Message, opts PublishOptions) (Published, error) {
	req, err := publishRequest(m, opts)
	if err != nil {
		return Published{}, err
	}
	out := Published{ID: req.GetMessage().GetId()}
	again := func(e *Error) bool {
		return e.Retryable || e.Reason == ReasonResultUnknown && req.GetIdempotencyKey() != ""
	}
	err = c.retry(ctx, again, func(addr string) error {
		resp, err := c.messaging(c.http, addr).Publish(ctx, connect.NewRequest(req))
		if err != nil {
			return publishError(callError(addr, err))
		}
		out = Published{ID: resp.Msg.GetId(), Duplicate: resp.Msg.GetDuplicate(), InMemory: resp.Msg.GetInMemory()}
		return nil
	})
	return out, err
}

// retry calls f with brokers until it succeeds, fails in a way that is not to be
// tried again, ctx ends, or the patience is over.
func (c *Client) retry(ctx context.Context, again func(*Error) bool, f func(addr string) error) error {
	bo := backoff{min: c.cfg.RetryMin, max: c.cfg.RetryMax}
	begun := time.Now()
	for {
		err := c.anyBroker(ctx, f)
		var e *Error
		if err == nil || !errors.As(err, &e) || !again(e) || ctx.Err() != nil || c.outOfPatience(begun) {
			return err
		}
		if bo.wait(ctx, nil); ctx.Err() != nil {
			return err
		}
	}
}

// repeatable is what may be tried again of a call that can be repeated without harm.
func repeatable(e *Error) bool { return !e.permanent() }

// publishError says what a publish that got no answer is: unknown, unless
// nothing reached the broker.
func publishError(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Reason == ReasonUnspecified && !e.Retryable && !e.permanent() {
		e.Reason = ReasonResultUnknown
		e.Message = fmt.Sprintf("result unknown: broker %s gave no answer, the message may be stored: %v", e.Addr, e.cause)
	}
	return err
}

func publishRequest(m Message, opts PublishOptions) (*notifyv1.PublishRequest, error) {
	if opts.IdempotencyKey == "" && !opts.NoDedup {
		if err := nameMessage(&m); err != nil {
			return nil, err
		}
		opts.IdempotencyKey = m.ID
	}
	if err := checkText(m, opts.IdempotencyKey); err != nil {
		return nil, err
	}
	return &notifyv1.PublishRequest{Message: m.proto(), IdempotencyKey: opts.IdempotencyKey}, nil
}

// nameMessage gives a message an id unless it has one.
func nameMessage(m *Message) error {
	if m.ID != "" {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("message id: %w", err)
	}
	m.ID = id.String()
	return nil
}

// checkText refuses what protobuf could not encode: on a stream it would take the
// messages beside it down.
func checkText(m Message, idempotencyKey string) error {
	bad := func(field, text string) error {
		return &Error{Reason: ReasonInvalid, Field: field, Size: int64(len(text)), Message: fmt.Sprintf("%s %q: not UTF-8; nothing was stored", field, text)}
	}
	for _, f := range [...][2]string{{"id", m.ID}, {"topic", m.Topic}, {"key", m.Key}, {"idempotency_key", idempotencyKey}} {
		if !utf8.ValidString(f[1]) {
			return bad(f[0], f[1])
		}
	}
	for name, value := range m.Headers {
		if !utf8.ValidString(name) {
			return bad("headers", name)
		}
		if !utf8.ValidString(value) {
			return bad("headers", value)
		}
	}
	return nil
}

// Broker is a live broker.
type Broker struct {
	ID string
	// Addr is the host:port it advertises.
	Addr string
	// Version is the program's.
	Version string
	// SeenAt is when it last renewed, by the store's clock.
	SeenAt time.Time
}

// Brokers asks any broker for the live ones. Errors are *Error.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	var out []Broker
	err := c.anyBroker(ctx, func(addr string) error {
		var err error
		if out, err = c.brokersKnownTo(ctx, c.http, addr); err == nil {
			c.dir.set(addresses(out), time.Now())
		}
		return err
	})
	return out, err
}

func (c *Client) brokersKnownTo(ctx context.Context, h *http.Client, addr string) ([]Broker, error) {
	resp, err := c.messaging(h, addr).ListBrokers(ctx, connect.NewRequest(&notifyv1.ListBrokersRequest{}))
	if err != nil {
		return nil, callError(addr, err)
	}
	out := make([]Broker, 0, len(resp.Msg.GetBrokers()))
	for _, b := range resp.Msg.GetBrokers() {
		out = append(out, Broker{ID: b.GetId(), Addr: b.GetAddress(), Version: b.GetVersion(), SeenAt: time.UnixMicro(b.GetSeenAtUs()).UTC()})
	}
	return out, nil
}

// Admin calls f with the administration of a broker that can be reached, and
// again with the next broker's when f returned that it could not. Errors of the
// broker come back as *Error.
func (c *Client) Admin(ctx context.Context, f func(notifyv1connect.AdminClient) error) error {
	return c.anyBroker(ctx, func(addr string) error {
		return callError(addr, f(notifyv1connect.NewAdminClient(c.http, "http://"+addr, callOptions()...)))
	})
}

// anyBroker calls f with one address after the other, the one that answered last
// first, while f returns that nothing reached the broker. After any other
// failure that a retry may mend, the next call begins with the next address.
func (c *Client) anyBroker(ctx context.Context, f func(addr string) error) error {
	c.refresh(ctx, c.http)
	var err error
	for _, addr := range c.dir.order() {
		err = f(addr)
		var e *Error
		if !errors.As(err, &e) || e.permanent() {
			c.dir.worked(addr)
			return err
		}
		c.dir.failed(addr)
		if !e.unreachable || !e.Retryable || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// refresh lists brokers when that is due. A broker that does not answer this does
// not stop the call that it precedes.
func (c *Client) refresh(ctx context.Context, h *http.Client) {
	if !c.dir.take(time.Now()) {
		return
	}
	one, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	if brokers, err := c.brokersKnownTo(one, h, c.dir.order()[0]); err == nil {
		c.dir.set(addresses(brokers), time.Now())
	}
}

// keepListed lists brokers every Refresh until ctx ends.
func (c *Client) keepListed(ctx context.Context, h *http.Client) {
	t := time.NewTicker(c.cfg.Refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			c.refresh(ctx, h)
		}
	}
}

func addresses(brokers []Broker) []string {
	out := make([]string, len(brokers))
	for i, b := range brokers {
		out[i] = b.Addr
	}
	return out
}

func (c *Client) messaging(h *http.Client, addr string) notifyv1connect.MessagingClient {
	return notifyv1connect.NewMessagingClient(h, "http://"+addr, callOptions()...)
}

func (c *Client) outOfPatience(since time.Time) bool {
	return c.cfg.Patience >= 0 && time.Since(since) >= c.cfg.Patience
}
