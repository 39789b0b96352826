package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// pileGroups get every message; the first of them is the one that goes down alone.
	pileGroups = 5
	// pileRate is how many messages are published per second where the delay of single ones is measured.
	pileRate = 500
	// rampUp is how long a drain is given to find its rate.
	rampUp = 6 * time.Second
)

// pileBench compares a store in which messages pile up for groups that are away with one whose groups all listen.
type pileBench struct {
	*bench
	db          *database
	shards      int
	piled, calm *crowd
	bare        *broker // without a group
}

func measurePiled(ctx context.Context, b *bench) (_ []number, err error) {
	p := &pileBench{bench: b}
	if p.db, err = b.startDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.db.stop()) }()
	var brokers [3]*broker
	names := groupNames(pileGroups)
	for i, name := range []string{"piled", "calm", "bare"} {
		dsn, info, err := p.db.install(ctx, name)
		if err != nil {
			return nil, err
		}
		p.shards = info.Shards
		if name != "bare" {
			if err := b.missed(ctx, dsn, topicName, names...); err != nil {
				return nil, err
			}
		}
		if name == "piled" {
			if err := p.db.pileUp(ctx, name, names[0], info.Shards, b.pile); err != nil {
				return nil, err
			}
		}
		if brokers[i], err = b.startBroker(ctx, dsn, "", "notifyd-"+name); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, brokers[i].stop()) }()
	}
	p.piled, p.calm, p.bare = newCrowd(brokers[0], names), newCrowd(brokers[1], names), brokers[2]
	defer func() { err = errors.Join(err, p.piled.leave(), p.calm.leave()) }()
	return p.measure(ctx)
}

func (p *pileBench) measure(ctx context.Context) ([]number, error) {
	if err := errors.Join(p.piled.attach(ctx, 1), p.calm.attach(ctx, 0)); err != nil {
		return nil, err
	}
	one, err := p.oneDown(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.piled.leave(); err != nil {
		return nil, err
	}
	all, err := p.allDown(ctx)
	if err != nil {
		return nil, err
	}
	back, err := p.back(ctx)
	return append(append(one, all), back...), err
}

// oneDown compares publishing, and pushing to four groups, while messages pile up for a fifth.
func (p *pileBench) oneDown(ctx context.Context) ([]number, error) {
	var rates, delays []pair
	var used usage
	for i := range p.pairs {
		var perSecond, p99 [2]float64
		for _, side := range [][]int{{0, 1}, {1, 0}}[i%2] {
			c := []*crowd{p.piled, p.calm}[side]
			r, u, err := p.load(ctx, c, newLead(pileGroups-1))
			if err != nil {
				return nil, err
			}
			if p99[side], err = p.delay(ctx, c, 1); err != nil {
				return nil, err
			}
			if perSecond[side] = r; side == 0 {
				used = used.add(u)
			}
		}
		p.say("  one of five down: %.0f / %.0f msg/s, p99 %.1f / %.1f ms", perSecond[0], perSecond[1], p99[0], p99[1])
		rates = append(rates, pair{perSecond[0], perSecond[1]})
		delays = append(delays, pair{p99[0], p99[1]})
	}
	beside := fmt.Sprintf("one of five groups down above %d messages / none", p.pile)
	rate := compared("publish rate with "+beside, "msg/s", rates, atLeast(0.9))
	rate.limit = used.limit()
	delay := compared(fmt.Sprintf("p99 of push to the other four at %d msg/s with %s", pileRate, beside), "ms", delays, atMost(1.1))
	delay.limit = "the transaction that stores the message"
	return []number{rate, delay}, nil
}

// load is the rate at which a side publishes, no further ahead of its groups than the lead, if there is one. It returns when
// what can be is delivered and settled.
func (p *pileBench) load(ctx context.Context, c *crowd, l *lead) (float64, usage, error) {
	c.lead.Store(l)
	defer c.lead.Store(nil)
	perSecond, used, err := p.published(ctx, c.broker, p.db, l)
	if err == nil && l != nil {
		err = l.rest(ctx)
	}
	if err == nil {
		err = errors.Join(p.db.settled(ctx, map[*crowd]string{p.piled: "piled", p.calm: "calm"}[c], p.shards), p.db.forget(ctx))
	}
	return perSecond, used, err
}

// allDown compares publishing with all groups down with publishing to all of them.
func (p *pileBench) allDown(ctx context.Context) (number, error) {
	var pairs []pair
	var used usage
	for i := range p.pairs {
		var perSecond [2]float64
		for _, side := range [][]int{{0, 1}, {1, 0}}[i%2] {
			c := []*crowd{p.piled, p.calm}[side]
			var l *lead // with nobody there, nothing to wait for
			if c == p.calm {
				l = newLead(pileGroups - 1)
			}
			r, u, err := p.load(ctx, c, l)
			if err != nil {
				return number{}, err
			}
			if perSecond[side] = r; side == 0 {
				used = used.add(u)
			}
		}
		p.say("  all five down: %.0f / %.0f msg/s", perSecond[0], perSecond[1])
		pairs = append(pairs, pair{perSecond[0], perSecond[1]})
	}
	n := compared("publish rate with all five groups down / none", "msg/s", pairs, atLeast(0.9))
	n.limit = used.limit()
	return n, nil
}

// back lets the groups return: how fast they get what piled up, and what that does to the live flow.
func (p *pileBench) back(ctx context.Context) ([]number, error) {
	var drains, delays []pair
	var used usage
	for range p.pairs {
		d, u, err := p.drained(ctx)
		if err != nil {
			return nil, err
		}
		drains, delays, used = append(drains, d[0]), append(delays, d[1]), used.add(u)
		p.say("  all five back: drain %.0f deliveries/s, %.0f msg/s are published without groups; p99 %.1f / %.1f ms", d[0].ours, d[0].other, d[1].ours, d[1].other)
	}
	drain := compared("deliveries of a drain / publishes without groups", "per second", drains, atLeast(0.5))
	drain.limit = used.limit()
	live := compared(fmt.Sprintf("p99 of push at %d msg/s beside a drain / without", pileRate), "ms", delays, atMost(1.25))
	live.limit = used.limit()
	return []number{drain, live}, nil
}

// drained is a run of a drain alone, then beside a live flow, and what each is compared with.
func (p *pileBench) drained(ctx context.Context) (out [2]pair, used usage, err error) {
	if err := errors.Join(p.calm.leave(), p.piled.attach(ctx, 0)); err != nil {
		return out, used, err
	}
	if err := pause(ctx, min(rampUp, p.window)); err != nil {
		return out, used, err
	}
	m, before := newMeter(map[string]int{"notifyd": p.piled.broker.cmd.Process.Pid, "database": p.db.PID()}), p.piled.handled.Load()
	if err := pause(ctx, p.window); err != nil {
		return out, used, err
	}
	used = m.used()
	out[0].ours = float64(p.piled.handled.Load()-before) / used.wall.Seconds()
	if _, err = p.delay(ctx, p.piled, 0); err == nil { // the drain gives way to a live flow that begins
		out[1].ours, err = p.delay(ctx, p.piled, 0)
	}
	if err != nil {
		return out, used, err
	}
	if err := errors.Join(p.piled.leave(), p.db.forget(ctx)); err != nil {
		return out, used, err
	}
	if out[0].other, _, err = p.published(ctx, p.bare, p.db, nil); err != nil {
		return out, used, err
	}
	if err := errors.Join(p.db.rest(ctx, "bare", p.shards), p.db.forget(ctx), p.calm.attach(ctx, 0)); err != nil {
		return out, used, err
	}
	out[1].other, err = p.delay(ctx, p.calm, 0)
	return out, used, err
}

// delay is the p99 from publish to push, in milliseconds, of messages at a steady rate, to the groups from a number on.
func (p *pileBench) delay(ctx context.Context, c *crowd, from int) (float64, error) {
	x := newCrossing(max(1, int((p.window/2).Seconds()*pileRate)), pileGroups, from)
	c.current.Store(x)
	defer c.current.Store(nil)
	if err := x.run(ctx, c.broker.addr, pileRate); err != nil {
		return 0, err
	}
	return milliseconds(percentile(x.delays(), 0.99)), nil
}

// published is the rate at which messages are published on streams, no further ahead than the lead, if there is one.
func (b *bench) published(ctx context.Context, br *broker, db *database, l *lead) (float64, usage, error) {
	room := func(work context.Context) bool { return work.Err() == nil }
	if l != nil {
		room = l.room
	}
	var acked atomic.Int64
	return rate(ctx, b.window, map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()}, &acked, func(ctx context.Context) error {
		return onStreams(ctx, br.addr, b.streams/4+1, room, func() { acked.Add(1) })
	})
}
