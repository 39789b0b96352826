package notifyd

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/store"
)

// backlogPeriod is how often an owner counts what waits in its shard, at most.
const backlogPeriod = 5 * time.Second

// backlogShare bounds the time spent counting: the next count waits this many times as long
// as the last one took, up to backlogLongest.
const (
	backlogShare   = 1000
	backlogLongest = 20 * time.Second
)

// A backlog holds what the owners of this broker counted last in the store, for metrics: halves
// and dead letters in each shard, and the outbox in the relay's. A scrape reads it and asks no store.
type backlog struct {
	mu     sync.Mutex
	shards map[*owner]counted

	halves, parked, halfAge     *prometheus.Desc
	outbox, outboxAge, rejected *prometheus.Desc
	dead                        *prometheus.Desc
}

// counted is what one owner counted last.
type counted struct {
	halves []store.HalfCount
	outbox *store.OutboxCount // of the relay's shard
	dead   []store.DeadCount  // kept while none comes or goes: it takes a look at all of them
	oldest int64              // since when its first row has been seen; 0: none
}

func newBacklog() *backlog {
	desc := func(name, help string, label string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{label}, nil)
	}
	return &backlog{shards: map[*owner]counted{},
		halves:    desc("notify_half_messages", "Halves that are not decided, in the shards owned here; counted up to 10000 a shard.", "topic"),
		parked:    desc("notify_half_messages_parked", "Those of notify_half_messages that are out of checks and wait for a person.", "topic"),
		halfAge:   desc("notify_half_message_oldest_age_seconds", "Time since the oldest half that is not decided was prepared.", "topic"),
		outbox:    desc("notify_outbox_rows", "Committed outbox rows that wait for the relay; counted up to 10000.", "store"),
		outboxAge: desc("notify_outbox_oldest_age_seconds", "How long the first outbox row has waited, at least; 0 without rows.", "store"),
		rejected:  desc("notify_outbox_rejected_rows", "Outbox rows put aside because they cannot be messages; counted up to 10000.", "store"),
		dead:      prometheus.NewDesc("notify_dead_letter_messages", "Dead letters in the shards owned here.", []string{"topic", "group"}, nil),
	}
}

func (b *backlog) set(o *owner, c counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shards[o] = c
}

func (b *backlog) drop(o *owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shards, o)
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.halves, b.parked, b.halfAge, b.outbox, b.outboxAge, b.rejected, b.dead} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	age := func(o *owner, since int64) float64 {
		if since == 0 {
			return 0
		}
		return max(0, float64(o.clock.now()-since)/1e6)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	topics := map[string]*topicHalves{}
	type topicGroup struct{ topic, group string }
	dead := map[topicGroup]int{}
	for o, c := range b.shards {
		for _, h := range c.halves {
			t := topics[h.Topic]
			if t == nil {
				t = &topicHalves{}
				topics[h.Topic] = t
			}
			t.add(h, age(o, h.Oldest))
		}
		for _, d := range c.dead {
			dead[topicGroup{d.Topic, o.groupName(d.Group)}] += d.Count
		}
		if c.outbox != nil {
			send(b.outbox, float64(c.outbox.Rows), o.st.Name)
			send(b.outboxAge, age(o, c.oldest), o.st.Name)
			send(b.rejected, float64(c.outbox.Rejected), o.st.Name)
		}
	}
	for l, n := range dead {
		ch <- prometheus.MustNewConstMetric(b.dead, prometheus.GaugeValue, float64(n), l.topic, l.group)
	}
	for topic, t := range topics {
		send(b.halves, float64(t.all), topic)
		send(b.parked, float64(t.parked), topic)
		send(b.halfAge, t.age, topic)
	}
}

// topicHalves sums a topic up over shards.
type topicHalves struct {
	all, parked int
	age         float64 // of the oldest, seconds
}

func (t *topicHalves) add(h store.HalfCount, age float64) {
	t.all += h.Rows
	if h.Parked {
		t.parked += h.Rows
	}
	t.age = max(t.age, age)
}

// countLoop counts what waits in this shard, for metrics.
func (o *owner) countLoop(ctx context.Context) error {
	defer o.backlog.drop(o)
	t := time.NewTimer(0)
	defer t.Stop()
	var rows seqAge
	var c counted
	turn := o.turn(backlogPeriod)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			return nil
		case <-t.C:
		}
		began := time.Now()
		var err error
		c, err = o.countWaiting(ctx, c.dead, &rows)
		switch {
		case err == nil:
			o.backlog.set(o, c)
		case ctx.Err() == nil:
			o.metrics.storeErrors.WithLabelValues(o.st.Name, "count").Inc()
		}
		t.Reset(min(max(backlogPeriod, backlogShare*time.Since(began)), backlogLongest) + turn)
		turn = 0
	}
}

// countWaiting keeps the dead letters counted before while none has come or gone.
func (o *owner) countWaiting(ctx context.Context, dead []store.DeadCount, rows *seqAge) (c counted, err error) {
	c.dead = dead
	if !o.deadKept.Swap(true) {
		if dead, err = o.st.CountDead(ctx, o.no); err != nil {
			o.deadKept.Store(false)
			return c, err
		}
		c.dead = dead
	}
	if c.halves, err = o.st.CountHalves(ctx, o.no, countLimit); err != nil || o.no != relayShard {
		return c, err
	}
	outbox, err := o.st.CountOutbox(ctx, countLimit)
	if err != nil {
		return c, err
	}
	c.outbox, c.oldest = &outbox, rows.see(o.clock.now(), outbox.First, outbox.Last)
	return c, nil
}

// A seqAge tells since when a row is there, of rows whose number grows and which have no time of
// their own, by what the highest number was when.
type seqAge struct{ seen []seqSeen }

type seqSeen struct{ at, last int64 }

// maxSeqSeen bounds what is remembered; beyond it every second sighting is forgotten, which makes an age
// too small, by one period at first.
const maxSeqSeen = 1000

// see notes the lowest and highest number at now, and returns the first sighting of a number as high
// as the lowest: the first row is there since then, or longer. 0: there is no row.
func (s *seqAge) see(now, first, last int64) (since int64) {
	if last == 0 {
		s.seen = nil
		return 0
	}
	for len(s.seen) > 0 && s.seen[0].last < first {
		s.seen = s.seen[1:]
	}
	if n := len(s.seen); n == 0 || s.seen[n-1].last < last {
		s.seen = append(s.seen, seqSeen{now, last})
	}
	if len(s.seen) > maxSeqSeen {
		kept := s.seen[:0:0]
		for i := 0; i < len(s.seen); i += 2 {
			kept = append(kept, s.seen[i])
		}
		s.seen = kept
	}
	return s.seen[0].at
}
