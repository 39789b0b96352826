package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// members keeps one attachment to every live broker. Brokers come and go: the
// list is read every Refresh, and at once when a stream breaks.
type members struct {
	c     *Consumer
	h     *http.Client
	fatal chan error
	wg    sync.WaitGroup

	mu     sync.Mutex
	listed []string        // addresses in the last list
	kept   map[string]bool // addresses that have a goroutine
}

func newMembers(c *Consumer, h *http.Client) *members {
	return &members{c: c, h: h, fatal: make(chan error, 1), kept: map[string]bool{}}
}

// supervise lists brokers and attaches to new ones until ctx ends (nil) or a
// broker refuses the group. Streams live as long as work.
func (m *members) supervise(ctx, work context.Context) error {
	refresh := time.NewTimer(0)
	defer refresh.Stop()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	bo := backoff{min: m.c.client.cfg.RetryMin, max: m.c.cfg.Refresh}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-m.fatal:
			return err
		case <-m.c.look:
			refresh.Reset(bo.min)
			continue
		case <-m.c.moved:
		case <-again.C:
		case <-refresh.C:
			if m.list(ctx) {
				bo.reset()
				refresh.Reset(m.c.cfg.Refresh)
			} else {
				refresh.Reset(bo.next(0.5))
			}
			m.attachNew(ctx, work)
		}
		if m.c.offer(time.Now()) {
			again.Reset(m.c.reroute.pause)
		}
	}
}

// wait blocks until every stream has ended.
func (m *members) wait() { m.wg.Wait() }

// list asks attached brokers, then the configured addresses, for the live ones.
func (m *members) list(ctx context.Context) bool {
	var ask []string
	for _, a := range m.c.streams() {
		ask = append(ask, a.addr)
	}
	for _, addr := range m.c.client.cfg.Addrs {
		if !slices.Contains(ask, addr) {
			ask = append(ask, addr)
		}
	}
	for _, addr := range ask {
		one, cancel := context.WithTimeout(ctx, m.c.client.cfg.DialTimeout)
		brokers, err := m.c.client.brokersKnownTo(one, m.h, addr)
		cancel()
		if err != nil || len(brokers) == 0 {
			continue
		}
		listed := make([]string, 0, len(brokers))
		for _, b := range brokers {
			listed = append(listed, b.Addr)
		}
		m.mu.Lock()
		m.listed = listed
		m.mu.Unlock()
		return true
	}
	return false
}

func (m *members) attachNew(ctx, work context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range m.listed {
		if m.kept[addr] || ctx.Err() != nil {
			continue
		}
		m.kept[addr] = true
		m.wg.Go(func() { m.keep(ctx, work, addr) })
	}
}

// keep attaches to one broker again and again while it is listed.
func (m *members) keep(ctx, work context.Context, addr string) {
	defer func() {
		m.mu.Lock()
		delete(m.kept, addr)
		m.mu.Unlock()
	}()
	log := m.c.client.cfg.Logger.With("group", m.c.cfg.Group, "addr", addr)
	bo := backoff{min: m.c.client.cfg.RetryMin, max: m.c.client.cfg.RetryMax}
	for {
		a := newAttachment(m.c, addr)
		// An attempt that is not accepted yet ends with ctx; a stream with work.
		opening, cancel := context.WithCancel(work)
		stop := context.AfterFunc(ctx, cancel)
		accepted := false
		err := a.run(opening, m.h, func(brokerID string) {
			stop()
			accepted = true
			bo.reset()
			m.c.join(a)
			log.Info("attached", "broker", brokerID)
		})
		stop()
		cancel()
		if accepted {
			m.c.leave(a)
		}
		if ctx.Err() != nil {
			return
		}
		if m.refusal(err) {
			select {
			case m.fatal <- err:
			default:
			}
			return
		}
		if accepted {
			log.Info("detached", "err", err)
		}
		poke(m.c.look)
		bo.wait(ctx, nil)
		if ctx.Err() != nil || !m.isListed(addr) {
			return
		}
	}
}

// refusal reports whether err ends the consumer: a broker wants no such group,
// and none has ever accepted it. Later the same answer may be a broker that has
// not read the registry yet.
func (m *members) refusal(err error) bool {
	var e *Error
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return !m.c.ever && errors.As(err, &e) && e.permanent()
}

func (m *members) isListed(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.listed, addr)
}

// join makes an accepted stream the one for its address.
func (c *Consumer) join(a *attachment) {
	c.mu.Lock()
	c.attached[a.addr] = a
	c.ever = true
	c.mu.Unlock()
	poke(c.moved)
}

func (c *Consumer) leave(a *attachment) {
	c.mu.Lock()
	if c.attached[a.addr] == a {
		delete(c.attached, a.addr)
	}
	c.mu.Unlock()
}
