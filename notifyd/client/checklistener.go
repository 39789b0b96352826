package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Check asks what became of the local transaction of a half that nobody has decided.
type Check struct {
	// Message is the half's. Its ID is the name under which the local transaction
	// should have recorded that it happened; BornAt is when it was prepared.
	Message
	// Number is 1 for the first check of this half.
	Number int
	// Broker is the host:port that asks.
	Broker string
}

// CheckListenerConfig is a check listener's configuration; the zero value of each
// optional field is its default.
type CheckListenerConfig struct {
	// Group is the producer group whose halves are asked about. Required.
	Group string
	// Instance names this process in listings. Default: host name and process id.
	Instance string
	// Handler says what became of one local transaction. It must answer from the
	// data that the transaction wrote, not from this process's memory: any instance
	// of the group is asked, also about what another one has prepared. Unknown, any
	// error and a panic leave the half undecided: it is asked about again, at
	// growing intervals, until the broker's budget of checks is spent and it is
	// parked. Rollback is for a transaction that never will commit; one that may
	// still be running is Unknown. It must return when its context ends. Required.
	Handler func(context.Context, Check) (Decision, error)
	// Concurrency is how many handlers run at once; more checks are not read, and
	// the brokers then ask other instances. Default 16.
	Concurrency int
	// Timeout is when the context of a handler ends. Default 10 s.
	Timeout time.Duration
	// Refresh is how often brokers are listed. Default 5 s.
	Refresh time.Duration
	// Drain is how long running handlers may go on when Run is stopped. Default 5 s.
	Drain time.Duration
}

// CheckListener makes this process an instance of a producer group at every broker,
// to be asked about halves that nobody has decided.
type CheckListener struct {
	client   *Client
	cfg      CheckListenerConfig
	log      *slog.Logger
	slots    *semaphore.Weighted // handlers that may run
	handlers sync.WaitGroup      // handlers that run

	mu       sync.Mutex
	stopping bool // no more handlers are begun
	streams  map[*checkStream]bool
}

// NewCheckListener returns a check listener; Run drives it, once.
func (c *Client) NewCheckListener(cfg CheckListenerConfig) (*CheckListener, error) {
	if cfg.Group == "" {
		return nil, errors.New("producer group: missing")
	}
	if cfg.Handler == nil {
		return nil, errors.New("check handler: missing")
	}
	if err := setInstance(&cfg.Instance); err != nil {
		return nil, err
	}
	setDefault(&cfg.Concurrency, 16)
	setDefault(&cfg.Timeout, 10*time.Second)
	setDefault(&cfg.Refresh, 5*time.Second)
	setDefault(&cfg.Drain, 5*time.Second)
	return &CheckListener{
		client: c, cfg: cfg, log: c.cfg.Logger.With("producer_group", cfg.Group),
		slots: semaphore.NewWeighted(int64(cfg.Concurrency)), streams: map[*checkStream]bool{},
	}, nil
}

// Run answers checks until ctx ends (nil), or until a broker refuses the group
// before any has accepted it (*Error, such as ReasonInvalid). Brokers that cannot
// be reached are tried for ever. When ctx ends, running handlers may finish, and
// their answers are sent.
func (l *CheckListener) Run(ctx context.Context) error {
	h := newHTTPClient(l.client.cfg)
	defer h.CloseIdleConnections()
	// Streams and handlers outlive ctx: it only says to stop taking.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	m := &members{c: l.client, h: h, log: l.log, refresh: l.cfg.Refresh, open: l.open}
	err := m.supervise(taking, work)
	stopTaking()

	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	drain := time.AfterFunc(l.cfg.Drain, stopWork)
	l.handlers.Wait()
	drain.Stop()
	l.mu.Lock()
	for s := range l.streams {
		s.out.end()
	}
	l.mu.Unlock()
	flush := time.AfterFunc(time.Second, stopWork)
	m.wait()
	flush.Stop()
	return err
}

// open runs one stream to addr.
func (l *CheckListener) open(ctx context.Context, h *http.Client, addr string, accepted func()) error {
	s := &checkStream{l: l, addr: addr, out: newAnswers()}
	l.mu.Lock()
	l.streams[s] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.streams, s)
		l.mu.Unlock()
	}()
	return s.run(ctx, h, accepted)
}

// begin starts the handler of a check once a slot is free. Once the listener stops,
// and when ctx ends first, the check is dropped: it will be asked again.
func (l *CheckListener) begin(ctx context.Context, c Check, answered func(Decision)) {
	if l.slots.Acquire(ctx, 1) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		l.slots.Release(1)
		return
	}
	l.handlers.Go(func() {
		defer l.slots.Release(1)
		answered(l.handle(ctx, c))
	})
}

// handle runs the handler for one check.
func (l *CheckListener) handle(ctx context.Context, c Check) (d Decision) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			l.log.Error("check handler panicked", "half", c.ID, "panic", r, "stack", string(debug.Stack()))
			d = Unknown
		}
	}()
	d, err := l.cfg.Handler(ctx, c)
	if err != nil {
		l.log.Debug("check left undecided", "half", c.ID, "err", err)
		return Unknown
	}
	return d
}
