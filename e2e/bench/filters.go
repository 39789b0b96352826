package main

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

const (
	// filterGroup is the one group that gets the messages.
	filterGroup = "takes"
	// filterOthers are the groups whose filters let nothing through.
	filterOthers = 9
	// filterText is three of the four terms of each filter; all of them have to be looked at.
	filterText = `headers.kind == "trade" && headers.region != "eu" && key != "" && `
)

// measureFilters compares publishing and pushing where ten subscriptions have filters, of which
// one is true, with one subscription that has none: each message is pushed once on both sides.
func measureFilters(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	var sides [2]*broker
	shards := 0
	for i, name := range []string{"filtered", "plain"} {
		dsn, info, err := db.install(ctx, name)
		if err != nil {
			return nil, err
		}
		shards = info.Shards
		if sides[i], err = b.startBroker(ctx, dsn, "", "notifyd-"+name); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, sides[i].stop()) }()
	}
	if err := errors.Join(addFiltered(ctx, sides[0].addr), addPlain(ctx, sides[1].addr)); err != nil {
		return nil, err
	}
	var pairs []pair
	var costs []float64
	var used usage
	whole := 0.0 // microseconds of processors for a message without filters
	for i := range b.pairs {
		var rates, cost [2]float64
		for _, side := range [][]int{{0, 1}, {1, 0}}[i%2] {
			u := usage{}
			rates[side], u, err = b.pushed(ctx, sides[side], db, filterGroup)
			if err == nil {
				err = errors.Join(db.rest(ctx, []string{"filtered", "plain"}[side], shards), db.forget(ctx))
			}
			if err != nil {
				return nil, err
			}
			n := rates[side] * u.wall.Seconds()
			cost[side] = float64(u.by["notifyd"].Microseconds()) / n
			if side == 1 {
				for _, d := range u.by {
					whole += float64(d.Microseconds()) / n / float64(b.pairs)
				}
			}
			if side == 0 {
				used = used.add(u)
			}
		}
		b.say("  %.0f / %.0f msg/s, %.0f / %.0f us of notifyd a message", rates[0], rates[1], cost[0], cost[1])
		pairs = append(pairs, pair{rates[0], rates[1]})
		costs = append(costs, cost[0]-cost[1])
	}
	n := compared("publish and push with 10 filters / without one", "msg/s", pairs, atLeast(0.9))
	n.limit = fmt.Sprintf("%s; filters add %.0f us to the %.0f us of processors that a message takes", used.limit(), median(costs), whole)
	return []number{n}, nil
}

func addFiltered(ctx context.Context, addr string) error {
	subs := []*notifyv1.Subscription{{Group: filterGroup, Topic: topicName, Filter: filterText + `key.startsWith("account-")`}}
	for i := range filterOthers {
		subs = append(subs, &notifyv1.Subscription{Group: fmt.Sprint("passes-", i), Topic: topicName, Filter: filterText + fmt.Sprintf(`key.startsWith("nobody-%d")`, i)})
	}
	return addSubscriptions(ctx, addr, subs...)
}

func addPlain(ctx context.Context, addr string) error {
	return addSubscriptions(ctx, addr, &notifyv1.Subscription{Group: filterGroup, Topic: topicName})
}

func addSubscriptions(ctx context.Context, addr string, subs ...*notifyv1.Subscription) error {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
		for _, s := range subs {
			if _, err := a.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: s})); err != nil {
				return err
			}
		}
		return nil
	})
}
