package main

import (
	"context"
	"errors"
	"fmt"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// pushGroups are how many groups the two brokers of measurePush push to, and pushWants what is required of each.
var (
	pushGroups = [...]int{1, 3}
	pushWants  = [...]float64{0.35, 0.25}
)

// pushBench compares messages that go all the way, from publish to delete, with raw inserts.
type pushBench struct {
	*bench
	db     *database
	shards int
	sides  [len(pushGroups)]*broker
	raw    *rawInserts
}

func measurePush(ctx context.Context, b *bench) (_ []number, err error) {
	p := &pushBench{bench: b}
	if p.db, err = b.startDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.db.stop()) }()
	for i, n := range pushGroups {
		dsn, info, err := p.db.install(ctx, pushSchema(n))
		if err != nil {
			return nil, err
		}
		p.shards = info.Shards
		if p.sides[i], err = b.startBroker(ctx, dsn, "", fmt.Sprint("notifyd-push-", n)); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.sides[i].stop()) }()
		if err := subscribe(ctx, p.sides[i].addr, topicName, groupNames(n)...); err != nil {
			return nil, err
		}
	}
	rawDSN, _, err := p.db.install(ctx, "raw")
	if err != nil {
		return nil, err
	}
	pool, err := openPool(rawDSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	p.raw = &rawInserts{pool: pool}
	return p.measure(ctx)
}

func pushSchema(groups int) string { return fmt.Sprint("push_", groups) }

// groupNames are n names of groups.
func groupNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("group-", i))
	}
	return names
}

// subscribe declares groups that get a topic.
func subscribe(ctx context.Context, addr, topic string, groups ...string) error {
	var subs []*notifyv1.Subscription
	for _, group := range groups {
		subs = append(subs, &notifyv1.Subscription{Group: group, Topic: topic})
	}
	return addSubscriptions(ctx, addr, subs...)
}

// measure makes runs in turn: one group, raw inserts, three groups.
func (p *pushBench) measure(ctx context.Context) ([]number, error) {
	var pairs [len(pushGroups)][]pair
	var used [len(pushGroups)]usage
	for range p.pairs {
		var ours [len(pushGroups)]float64
		var other float64
		for i, n := range pushGroups {
			rate, u, err := p.pushed(ctx, p.sides[i], p.db, groupNames(n)...)
			if err == nil {
				err = errors.Join(p.db.rest(ctx, pushSchema(n), p.shards), p.db.forget(ctx))
			}
			if err == nil && i == 0 {
				other, err = p.inserts(ctx)
			}
			if err != nil {
				return nil, err
			}
			ours[i], used[i] = rate, used[i].add(u)
		}
		p.say("  1 group %.0f, 3 groups %.0f, raw %.0f msg/s", ours[0], ours[1], other)
		for i := range pairs {
			pairs[i] = append(pairs[i], pair{ours[i], other})
		}
	}
	var numbers []number
	for i, n := range pushGroups {
		what := fmt.Sprintf("publish, push to %d groups, acknowledge, delete / raw inserts", n)
		if n == 1 {
			what = "publish, push to 1 group, acknowledge, delete / raw inserts"
		}
		x := compared(what, "msg/s", pairs[i], atLeast(pushWants[i]))
		x.limit = used[i].limit()
		numbers = append(numbers, x)
	}
	return numbers, nil
}

// inserts is the raw limit.
func (p *pushBench) inserts(ctx context.Context) (float64, error) {
	perSecond, _, err := rate(ctx, p.window, map[string]int{"database": p.db.PID()}, &p.raw.rows, p.raw.run)
	if err == nil {
		err = errors.Join(p.db.clear(ctx, "raw", rawConnections), p.db.rest(ctx, pushSchema(pushGroups[0]), p.shards), p.db.forget(ctx))
	}
	return perSecond, err
}
