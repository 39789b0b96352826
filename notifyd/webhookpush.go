package notifyd

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"notifymirror/notifyd/webhook"
)

const (
	// webhookTakeBytes bounds one taking from the outbox; credit is the bound that counts.
	webhookTakeBytes = 1 << 30
	// lateAckPatience is how long an acknowledgement is offered to a shard that this broker
	// is taking again, and lateAckPeriod how often.
	lateAckPatience = 5 * time.Second
	lateAckPeriod   = 100 * time.Millisecond
	// disablePeriod is how often it is tried to disable an endpoint that is gone.
	disablePeriod = time.Second
)

// A pusher is the instance of a group that sends its deliveries to one endpoint. Its own
// goroutine takes them; each request has one.
type pusher struct {
	w      *webhooks
	target *target
	group  *pushGroup
	inst   *instance

	end      chan struct{} // closed: no new request
	stop     func()        // closes end
	verdicts chan webhook.Verdict
	requests sync.WaitGroup

	running     atomic.Int64
	pausedUntil atomic.Pointer[time.Time] // nil: not paused
}

func newPusher(w *webhooks, t *target) *pusher {
	p := &pusher{w: w, target: t, group: w.b.hub.group(t.GroupID), end: make(chan struct{}), verdicts: make(chan webhook.Verdict)}
	p.stop = sync.OnceFunc(func() { close(p.end) })
	return p
}

// run pushes until the endpoint is stopped or gone, or the broker stops. It returns when its
// requests have ended.
func (p *pusher) run(ctx context.Context) {
	wait := time.Duration(p.target.Timeout)*time.Microsecond + webhookGrace
	p.inst = p.group.join(&instance{name: transportWebhook, peer: host(p.target.URL), transport: transportWebhook,
		wait: wait.Microseconds(), credit: p.target.Concurrency})
	gauge := p.w.b.metrics.subscribers.WithLabelValues(p.target.group, transportWebhook)
	gauge.Inc()
	p.w.b.wakeReaders()
	gone := p.push(ctx)
	p.group.setCredit(p.inst, 0)
	p.settle()
	p.group.detach(p.inst)
	gauge.Dec()
	p.w.b.wakeReaders()
	if gone {
		p.disable(ctx)
	}
}

// host is all that listings of instances and the log show of a URL: the rest may be secret.
func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// push sends what the group gives. It reports true when the receiver is gone.
func (p *pusher) push(ctx context.Context) (gone bool) {
	resume := time.NewTimer(0)
	<-resume.C
	defer resume.Stop()
	for {
		ready := p.inst.wake
		if p.pausedUntil.Load() != nil {
			ready = nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.w.quiet:
			return false
		case <-p.end:
			return false
		case <-ready:
			for _, f := range p.group.take(p.inst, p.target.Concurrency, webhookTakeBytes) {
				p.running.Add(1)
				p.requests.Go(func() { p.attempt(ctx, f) })
			}
		case v := <-p.verdicts:
			if v.Gone {
				return true
			}
			p.pause(resume, v.Pause)
		case <-resume.C:
			p.pausedUntil.Store(nil)
			p.w.b.log.Info("webhook pushed to again", "group", p.target.group, "host", p.inst.peer)
			p.group.setCredit(p.inst, p.target.Concurrency)
			wake(p.inst.wake)
			p.w.b.wakeReaders()
		}
	}
}

// pause sends nothing for d; it never shortens a pause.
func (p *pusher) pause(resume *time.Timer, d time.Duration) {
	until := time.Now().Add(d)
	was := p.pausedUntil.Load()
	if was != nil && !until.After(*was) {
		return
	}
	if was == nil {
		p.w.b.log.Warn("webhook paused, the receiver asks for it", "group", p.target.group, "host", p.inst.peer, "for", d)
	}
	p.pausedUntil.Store(&until)
	p.group.setCredit(p.inst, 0)
	resume.Reset(d)
}

// settle waits for the requests under way and passes their verdicts over.
func (p *pusher) settle() {
	ended := make(chan struct{})
	go func() { p.requests.Wait(); close(ended) }()
	for {
		select {
		case <-p.verdicts:
		case <-ended:
			return
		}
	}
}

// attempt is one request and what follows from its answer.
func (p *pusher) attempt(ctx context.Context, f *flight) {
	v := p.w.send(ctx, p.target, p.event(f), f.msg.Body).Verdict
	p.running.Add(-1)
	if v.Acked {
		p.acked(ctx, f)
	} else if got := p.group.finish(f.key(), f.attempt); got != nil {
		got.from.failed(got, failure{err: v.Reason, kind: v.Kind, delay: v.Pause})
	}
	p.group.pump()
	p.w.b.wakeReaders()
	if v.Gone || v.Pause > 0 {
		p.verdicts <- v // push or settle takes it
	}
}

func (p *pusher) event(f *flight) webhook.Event {
	m := f.msg
	return webhook.Event{ID: m.ID.String(), Topic: m.Topic, Key: m.Key, Group: p.target.group, Headers: m.Headers,
		BornAt: time.UnixMicro(m.BornAt), Attempt: f.attempt, Replayed: f.replayed}
}

// acked settles a delivery, also a late one. What cannot be settled here is repeated by the
// shard's next owner.
func (p *pusher) acked(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, lateAckPatience)
	defer cancel()
	t := time.NewTicker(lateAckPeriod)
	defer t.Stop()
	for {
		if done, err := p.w.b.settleAck(f.token); done || err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// disable takes the endpoint out of use at every broker, unless somebody has changed it.
func (p *pusher) disable(ctx context.Context) {
	p.w.b.log.Warn("webhook disabled, the receiver answered 410 Gone", "group", p.target.group, "host", p.inst.peer)
	t := time.NewTicker(disablePeriod)
	defer t.Stop()
	for {
		if p.w.b.disableGone(ctx, p.target) == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.w.quiet:
			return
		case <-p.end:
			return
		case <-t.C:
		}
	}
}
