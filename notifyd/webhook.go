package notifyd

import (
	"context"
	"net/http"
	"sync"
	"time"

	"notifymirror/notifyd/egress"
	"notifymirror/notifyd/store"
	"notifymirror/notifyd/webhook"
)

const (
	// webhookGrace is how much longer than its request a delivery over HTTP stays in flight, so
	// that its outcome comes from the request and not from the clock.
	webhookGrace = 2 * time.Second
	// webhookStart is how long after its delivery took off a request may begin.
	webhookStart = webhookGrace / 2
)

// webhookIdle is how many idle connections to one receiver are kept.
const webhookIdle = 64

// webhooks keeps a pusher for every endpoint that is enabled.
type webhooks struct {
	b     *Broker
	ring  *webhook.Ring
	guard *egress.Guard
	http  *http.Client
	quiet chan struct{} // closed: no new request
	ended chan struct{} // closed: run has ended

	all      sync.WaitGroup // pushers
	mu       sync.Mutex
	pushers  map[int32]*pusher // by group id
	problems map[int32]problem
}

// A problem is why the endpoint of a revision cannot be pushed to from here.
type problem struct {
	changedAt int64
	text      string
}

func newWebhooks(b *Broker, ring *webhook.Ring, guard *egress.Guard) *webhooks {
	return &webhooks{b: b, ring: ring, guard: guard, http: guard.Client(webhook.MaxTimeout, webhookIdle), quiet: make(chan struct{}), ended: make(chan struct{}),
		pushers: map[int32]*pusher{}, problems: map[int32]problem{}}
}

// run follows the registry until ctx is done or all is to be quiet, and ends with the last
// request. It may be called once.
func (w *webhooks) run(ctx context.Context) {
	defer close(w.ended)
	defer w.http.CloseIdleConnections()
	defer w.all.Wait()
	for {
		w.follow(ctx, w.b.declared.load())
		select {
		case <-ctx.Done():
			return
		case <-w.quiet:
			return
		case <-w.b.declared.changed:
		}
	}
}

// webhookPatience is how long a stopping broker waits for answers while it still owns their shards.
const webhookPatience = 5 * time.Second

// quiesce ends all pushing, and waits until ctx is done for requests under way. run must
// have been called.
func (w *webhooks) quiesce(ctx context.Context) {
	close(w.quiet)
	select {
	case <-w.ended:
	case <-ctx.Done():
	}
}

// follow makes the pushers those of a version of the registry. An endpoint that changed gets
// a new one; the old one still waits for its requests.
func (w *webhooks) follow(ctx context.Context, v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.pushers {
		if e, ok := v.Endpoints[id]; !ok || e.Disabled || e.ChangedAt != p.target.ChangedAt {
			p.stop()
			delete(w.pushers, id)
		}
	}
	for id := range w.problems {
		if e, ok := v.Endpoints[id]; !ok || e.ChangedAt != w.problems[id].changedAt {
			delete(w.problems, id)
		}
	}
	for id, e := range v.Endpoints {
		if e.Disabled || w.pushers[id] != nil || w.problems[id].text != "" {
			continue
		}
		name := v.GroupNames[id]
		t, err := w.aim(name, e)
		if err != nil {
			w.problems[id] = problem{e.ChangedAt, err.Error()}
			w.b.log.Error("webhook cannot be pushed to from this broker", "group", name, "err", err)
			continue
		}
		p := newPusher(w, t)
		w.pushers[id] = p
		w.all.Go(func() { p.run(ctx) })
	}
}

// A target is an endpoint that can be sent to.
type target struct {
	store.Endpoint
	group   string
	secrets []webhook.Secret // as in Endpoint
}

// aim opens the secrets of an endpoint.
func (w *webhooks) aim(group string, e store.Endpoint) (*target, error) {
	t := &target{Endpoint: e, group: group}
	for _, s := range e.Secrets {
		secret, err := w.ring.Open(s.Key, s.Sealed, sealOwner(e.GroupID))
		if err != nil {
			return nil, err
		}
		t.secrets = append(t.secrets, secret)
	}
	return t, nil
}

// signers are the secrets in force at a time of the store's clock, microseconds.
func (t *target) signers(now int64) (list []webhook.Secret) {
	for i, s := range t.Secrets {
		if s.Until == 0 || now < s.Until {
			list = append(list, t.secrets[i])
		}
	}
	return list
}

// state is what the broker knows of an endpoint beside the registry.
func (w *webhooks) state(group int32) (inFlight int, pausedUntil time.Time, problem string) {
	w.mu.Lock()
	p, problem := w.pushers[group], w.problems[group].text
	w.mu.Unlock()
	if p == nil {
		return 0, time.Time{}, problem
	}
	if until := p.pausedUntil.Load(); until != nil {
		pausedUntil = *until
	}
	return int(p.running.Load()), pausedUntil, ""
}
