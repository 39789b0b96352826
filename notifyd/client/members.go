package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// members keeps one stream to every live broker. Brokers come and go: the list is
// read every refresh, and at once when a stream breaks.
type members struct {
	c       *Client
	h       *http.Client
	log     *slog.Logger
	refresh time.Duration
	// open runs one stream to a broker until it ends, and says why. It calls
	// accepted once the broker has accepted it.
	open func(ctx context.Context, h *http.Client, addr string, accepted func()) error

	look  chan struct{} // list brokers now
	fatal chan error
	wg    sync.WaitGroup

	mu       sync.Mutex
	listed   []string        // addresses in the last list
	kept     map[string]bool // addresses that have a goroutine; true: attached
	accepted bool            // some broker has accepted a stream
}

// supervise lists brokers and attaches to new ones until ctx ends (nil) or a
// broker refuses the stream for good. Streams live as long as work.
func (m *members) supervise(ctx, work context.Context) error {
	m.kept, m.look, m.fatal = map[string]bool{}, make(chan struct{}, 1), make(chan error, 1)
	refresh := time.NewTimer(0)
	defer refresh.Stop()
	bo := backoff{min: m.c.cfg.RetryMin, max: m.refresh}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-m.fatal:
			return err
		case <-m.look:
			refresh.Reset(bo.min)
			continue
		case <-refresh.C:
		}
		if m.list(ctx) {
			bo.reset()
			refresh.Reset(m.refresh)
		} else {
			refresh.Reset(bo.next(rand.Float64()))
		}
		m.attachNew(ctx, work)
	}
}

// wait blocks until every stream has ended.
func (m *members) wait() { m.wg.Wait() }

// list asks attached brokers, then the others known, for the live ones.
func (m *members) list(ctx context.Context) bool {
	for _, addr := range m.ask() {
		one, cancel := context.WithTimeout(ctx, m.c.cfg.DialTimeout)
		brokers, err := m.c.brokersKnownTo(one, m.h, addr)
		cancel()
		if err != nil || len(brokers) == 0 {
			continue
		}
		m.c.dir.set(addresses(brokers), time.Now())
		m.mu.Lock()
		m.listed = addresses(brokers)
		m.mu.Unlock()
		return true
	}
	return false
}

// ask returns the addresses that may know the live brokers, attached ones first.
func (m *members) ask() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for addr, attached := range m.kept {
		if attached {
			out = append(out, addr)
		}
	}
	for _, addr := range m.c.dir.order() {
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

func (m *members) attachNew(ctx, work context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range m.listed {
		if _, ok := m.kept[addr]; ok || ctx.Err() != nil {
			continue
		}
		m.kept[addr] = false
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
	log := m.log.With("addr", addr)
	bo := backoff{min: m.c.cfg.RetryMin, max: m.c.cfg.RetryMax}
	for {
		// An attempt that is not accepted yet ends with ctx; a stream with work.
		opening, cancel := context.WithCancel(work)
		stop := context.AfterFunc(ctx, cancel)
		attached := false
		err := m.open(opening, m.h, addr, func() {
			stop()
			attached = true
			bo.reset()
			m.attached(addr, true)
			log.Info("attached")
		})
		stop()
		cancel()
		m.attached(addr, false)
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
		if attached {
			log.Info("detached", "err", err)
		}
		poke(m.look)
		bo.wait(ctx, nil)
		if ctx.Err() != nil || !m.isListed(addr) {
			return
		}
	}
}

func (m *members) attached(addr string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[addr] = is
	m.accepted = m.accepted || is
}

// refusal reports whether err ends the supervision: a broker wants no such group,
// and none has ever accepted it. Later the same answer may be a broker that has
// not read the registry yet.
func (m *members) refusal(err error) bool {
	var e *Error
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.accepted && errors.As(err, &e) && e.permanent()
}

func (m *members) isListed(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.listed, addr)
}
