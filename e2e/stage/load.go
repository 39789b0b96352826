package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"notifymirror/notifyd/client"
)

// Load is producers that publish until they are told to stop, and keep account of what was
// acknowledged. Each has a stream of its own and sends idempotently: what has no answer is
// sent again.
type Load struct {
	s     *Stage
	topic string
	ctx   context.Context // of the producers; over when the test is
	stop  func()
	over  chan struct{} // closed by stop
	done  sync.WaitGroup

	mu    sync.Mutex
	acked []string
	sent  map[string]Place
}

// Place is a message's place among those of its key, counted from 0.
type Place struct {
	Key string
	N   int
}

const (
	// loadTick is the pause between two bursts of a producer, loadBurst their size.
	loadTick  = 10 * time.Millisecond
	loadBurst = 5
	// loadKeys is the number of keys of each producer.
	loadKeys = 40
)

// Load starts producers, each sending about 500 messages a second.
func (s *Stage) Load(c *client.Client, topic string, producers int) *Load {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	l := &Load{s: s, topic: topic, ctx: ctx, over: make(chan struct{}), sent: map[string]Place{}}
	l.stop = sync.OnceFunc(func() { close(l.over) })
	for n := range producers {
		l.done.Go(func() { l.produce(c, n) })
	}
	s.t.Cleanup(func() {
		cancel()
		l.Stop()
	})
	return l
}

func (l *Load) produce(c *client.Client, producer int) {
	p := c.NewPublisher(client.PublisherConfig{Window: 2048})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(l.ctx) }()
	tick := time.NewTicker(loadTick)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-l.over:
			p.Close()
			l.failed(fmt.Sprintf("producer %d", producer), <-ran)
			return
		case <-tick.C:
		}
		for range loadBurst {
			m := l.message(producer, n)
			n++
			err := p.Send(l.ctx, m, client.PublishOptions{}, func(_ client.Published, err error) { l.answered(m.ID, err) })
			if l.failed(fmt.Sprintf("producer %d", producer), err) {
				return
			}
		}
	}
}

func (l *Load) message(producer, n int) client.Message {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system has no random numbers
	}
	place := Place{fmt.Sprintf("p%d-%d", producer, n%loadKeys), n / loadKeys}
	l.mu.Lock()
	l.sent[id.String()] = place
	l.mu.Unlock()
	return client.Message{ID: id.String(), Topic: l.topic, Key: place.Key, Body: fmt.Appendf(nil, "%s %d %0400d", place.Key, place.N, n)}
}

func (l *Load) answered(id string, err error) {
	if l.failed("message "+id, err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, id)
}

// failed fails the test by an error that is not its end.
func (l *Load) failed(what string, err error) bool {
	if err != nil && l.ctx.Err() == nil {
		l.s.t.Errorf("%s: %v", what, err)
	}
	return err != nil
}

// AwaitMore waits until n more messages were acknowledged.
func (l *Load) AwaitMore(n int, limit time.Duration) {
	l.s.t.Helper()
	before := l.Acked()
	Eventually(l.s.t, limit, "publishes acknowledged", func() error {
		if got := l.Acked() - before; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// Acked is the number of messages that were acknowledged so far.
func (l *Load) Acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// Stop ends the producers once all that they sent is acknowledged, and returns the ids.
func (l *Load) Stop() []string {
	l.stop()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// Place tells where a message stands, and whether it was ever sent.
func (l *Load) Place(id string) (Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.sent[id]
	return p, ok
}
