package notifyd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/egress"
	"notifymirror/notifyd/store"
	"notifymirror/notifyd/webhook"
)

// stopPatience bounds a graceful stop; what is not settled by then is the next owner's.
const stopPatience = 20 * time.Second

// A Broker takes messages into a store and pushes them to consumer groups.
type Broker struct {
	*core
	version string
	memory  *semaphore.Weighted // bytes of publishes that are not answered

	// Set by Run before ready.
	main     *keeper // of the main store
	forward  *forwarder
	router   *router
	stores   *storeSet
	addr     atomic.Pointer[string]
	ready    atomic.Bool
	stopping chan struct{} // closed when streams have to end
	routes   sync.Mutex    // one change of the route at a time
	webhooks *webhooks
	inMemory *memoryTopics
	replays  *replays
	pending  *pendingCounts
}

// New checks the configuration; it opens nothing. All problems are reported at once.
func New(cfg Config, deps Deps) (*Broker, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Registerer == nil {
		deps.Registerer = prometheus.NewRegistry()
	}
	c := &core{cfg: cfg, log: deps.Logger, metrics: newMetrics(deps.Registerer), declared: &registry{changed: make(chan struct{}, 1)},
		commits:   newCommitGate(),
		fits:      deps.Fits,
		hub:       newHub(newClock(time.Now())),
		producers: newProducers()}
	c.viewer = newViewer(c)
	c.bodies = newBodyCache(bodyCacheBytes, c.metrics)
	networks, err := egress.ParseNetworks(cfg.EgressNetworks)
	if err != nil {
		return nil, err
	}
	guard := egress.NewGuard(networks)
	c.callbacks = newCallbacks(guard.Client(callbackTimeout, 4))
	c.backlog = newBacklog()
	deps.Registerer.MustRegister(newGroupCollector(c), c.backlog)
	b := &Broker{core: c, version: deps.Version, memory: semaphore.NewWeighted(int64(cfg.PublishMemory)),
		router: newRouter(), stores: newStoreSet(), stopping: make(chan struct{}), pending: newPendingCounts()}
	ring, err := webhook.ParseRing(cfg.SecretKeys)
	if err != nil {
		return nil, fmt.Errorf("secret_keys: %w", err)
	}
	b.inMemory, b.replays = newMemoryTopics(c), newReplays()
	b.webhooks = newWebhooks(b, ring, guard)
	c.decided, c.topic = b.decideAnywhere, b.findTopic
	return b, nil
}

// Run serves until ctx is done, then hands its shards over and ends its streams. The schema
// must be installed. It may be called once.
func (b *Broker) Run(ctx context.Context) error {
	listener, err := net.Listen("tcp", b.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", b.cfg.Listen, err)
	}
	addr := listener.Addr().String()
	advertise := b.cfg.Advertise
	if advertise == "" {
		advertise = addr
	}
	self := store.Broker{ID: b.cfg.ID, Address: advertise, Version: b.version}
	if err := b.openMain(ctx, self); err != nil {
		listener.Close()
		return err
	}
	defer b.main.st.Close()
	b.forward = newForwarder(b.core, b.cfg.ID, b.main.peers)
	b.addr.Store(&addr)
	return b.serve(ctx, listener, self)
}

func (b *Broker) serve(ctx context.Context, listener net.Listener, self store.Broker) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return work },
		ErrorLog:    slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second,
		MaxReceiveBufferPerConnection: 4 << 20, MaxReceiveBufferPerStream: 2 << 20}
	b.reroute(work)

	var all errgroup.Group
	all.Go(func() error { b.hub.run(work, settleAfter, b.declared); return nil })
	all.Go(func() error { b.forward.run(work); return nil })
	failed := make(chan error, 1)
	all.Go(func() error {
		err := server.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		failed <- err
		return fmt.Errorf("listen on %s: %w", b.cfg.Listen, err)
	})
	keep, stopKeeping := context.WithCancel(work)
	defer stopKeeping()
	all.Go(func() error { b.forget(keep); return nil })
	all.Go(func() error { b.becomeReady(ctx); return nil })
	all.Go(func() error { b.webhooks.run(work); return nil })
	all.Go(func() error { b.inMemory.run(work); return nil })
	all.Go(func() error {
		select {
		case <-ctx.Done():
		case <-failed:
		}
		b.ready.Store(false)
		last, cancel := context.WithTimeout(work, memoryPatience)
		defer cancel()
		b.inMemory.quiesce(last)
		wait, cancel := context.WithTimeout(work, webhookPatience)
		defer cancel()
		b.webhooks.quiesce(wait)
		stopKeeping()
		return nil
	})
	var outboxes errgroup.Group
	outboxes.Go(func() error { return b.runOutboxStores(keep, work, self) })
	err := b.main.run(keep, work)
	close(b.stopping)
	err = errors.Join(err, outboxes.Wait())
	stop, cancel := context.WithTimeout(work, stopPatience)
	defer cancel()
	if server.Shutdown(stop) != nil {
		server.Close()
	}
	end()
	b.callbacks.all.Wait()
	return errors.Join(err, all.Wait())
}

// becomeReady waits until the broker knows who owns which shard.
func (b *Broker) becomeReady(ctx context.Context) {
	select {
	case <-b.main.looked:
		b.ready.Store(true)
		b.log.Info("broker ready", "id", b.cfg.ID, "address", b.Addr())
	case <-ctx.Done():
	}
}

func (b *Broker) handler() http.Handler {
	mux := http.NewServeMux()
	options := []connect.HandlerOption{connect.WithReadMaxBytes(b.maxRequest()), connect.WithCompressMinBytes(1 << 10),
		connect.WithInterceptors(strict{}), connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"})}
	mux.Handle(notifyv1connect.NewMessagingHandler(b, options...))
	mux.Handle(notifyv1connect.NewAdminHandler(b, options...))
	return b.refuse(mux)
}

// maxRequest is the largest request, or frame of a stream, in bytes: the largest body in
// base64, as JSON has it, and room for the rest.
func (b *Broker) maxRequest() int { return int(b.cfg.MaxBodyBytes)*2 + 1<<20 }

// reroute makes publishes follow the set of owned shards.
func (b *Broker) reroute(ctx context.Context) {
	b.routes.Lock()
	defer b.routes.Unlock()
	var sinks []sink
	for _, o := range b.main.owned() {
		sinks = append(sinks, o)
	}
	if len(sinks) == 0 && ctx.Err() == nil {
		sinks = []sink{b.forward}
	}
	b.router.set(ctx, sinks)
}

func (o *owner) put(p *publish) bool { return o.queue.put(p) }

// decisionsKept is how long repeats of a decision are answered.
const decisionsKept = 24 * time.Hour

// forget deletes idempotency keys whose window is over and decisions older than 24 h, in
// bounded batches, as long as this broker owns shard 0.
func (b *Broker) forget(ctx context.Context) {
	const period, most = 10 * time.Second, 1000
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		b.forgetAll(ctx, "forget_keys", most, b.main.st.ForgetKeys)
		b.forgetAll(ctx, "forget_decisions", most, func(ctx context.Context, most int) (int64, error) {
			return b.main.st.ForgetDecisions(ctx, decisionsKept.Microseconds(), most)
		})
	}
}

func (b *Broker) forgetAll(ctx context.Context, op string, most int, some func(context.Context, int) (int64, error)) {
	for b.main.owner(0) != nil && ctx.Err() == nil {
		n, err := some(ctx, most)
		if err != nil {
			b.metrics.storeErrors.WithLabelValues(b.main.st.Name, op).Inc()
		}
		if err != nil || n < int64(most) {
			return
		}
	}
}

// ErrNotReady is returned by Ready while the broker cannot serve.
var ErrNotReady = errors.New("broker is not ready")

// Ready returns nil while the broker serves and its main store answers. An outbox-only store
// that is away shows in notify_store_up.
func (b *Broker) Ready() error {
	if !b.ready.Load() {
		return fmt.Errorf("%w: starting or stopping", ErrNotReady)
	}
	if b.main.isAway() {
		return fmt.Errorf("%w: store %s away", ErrNotReady, b.main.st.Name)
	}
	return nil
}

// Addr is the host:port listened on, or "" before that.
func (b *Broker) Addr() string {
	if a := b.addr.Load(); a != nil {
		return *a
	}
	return ""
}
