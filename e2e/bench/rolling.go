package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// rollingRate is how many messages are published per second while the brokers are restarted.
const rollingRate = 1000

// measureRolling restarts two brokers, one after the other, under load, and counts what is
// delivered twice and what is lost.
func measureRolling(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	first, err := b.startBroker(ctx, dsn, latencyGroup, "")
	if err != nil {
		return nil, err
	}
	brokers := []*broker{first, nil}
	defer func() {
		for _, br := range brokers {
			if br != nil {
				err = errors.Join(err, br.stop())
			}
		}
	}()
	if brokers[1], err = b.joinBroker(ctx, dsn, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	var acked, repeats, lost int
	for range b.pairs {
		n, again, gone, err := b.roll(ctx, dsn, brokers)
		if err != nil {
			return nil, err
		}
		b.say("  %d messages, %d repeated, %d lost", n, again, gone)
		acked, repeats, lost = acked+n, repeats+again, lost+gone
	}
	numbers := []number{share(fmt.Sprintf("deliveries repeated by rolling restarts at %d msg/s", rollingRate), repeats, acked, 0.005, "what is in flight when a shard moves")}
	return append(numbers, number{what: "messages lost by them", value: strconv.Itoa(lost), want: "0", missed: lost > 0,
		limit: "nothing: stored before acknowledged", runsHead: "lost", runs: []string{strconv.Itoa(lost)}}), nil
}

// roll publishes, restarts each broker, and waits for every acknowledged message.
func (b *bench) roll(ctx context.Context, dsn string, brokers []*broker) (acked, repeats, lost int, err error) {
	t, sent := newTally(), newTally()
	for i := range 2 {
		stop, err := listen(ctx, brokers[i].addr, client.ConsumerConfig{Group: latencyGroup, Instance: fmt.Sprint("rolling-", i),
			Handler: func(_ context.Context, d client.Delivery) error { t.handled(d.Headers[headerNumber]); return nil }})
		if err != nil {
			return 0, 0, 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	l, err := newLine(ctx, client.PublisherConfig{}, brokers[0].addr, brokers[1].addr)
	if err != nil {
		return 0, 0, 0, err
	}
	load, enough := context.WithCancel(ctx)
	defer enough()
	var g errgroup.Group
	g.Go(func() error {
		err := paced(load, rollingRate, 24*time.Hour, func(i int) error {
			n := strconv.Itoa(i)
			return l.send(load, n, func() { sent.handled(n) })
		})
		if load.Err() != nil {
			err = ctx.Err()
		}
		return errors.Join(err, l.close())
	})
	err = b.restart(ctx, dsn, brokers)
	enough()
	if err = errors.Join(err, g.Wait()); err != nil {
		return 0, 0, 0, err
	}
	acked, _ = sent.counts()
	patience, cancel := context.WithTimeout(ctx, arrivalPatience)
	defer cancel()
	_ = every(patience, 20*time.Millisecond, func() (bool, error) { n, _ := t.counts(); return n >= acked, nil }) // what has not come is lost
	come, repeats := t.counts()
	return acked, repeats, max(0, acked-come), ctx.Err()
}

// restart stops each broker and starts it again at its address, with some time between.
func (b *bench) restart(ctx context.Context, dsn string, brokers []*broker) error {
	for i, br := range brokers {
		if err := pause(ctx, b.window/4); err != nil {
			return err
		}
		brokers[i] = nil
		if err := br.stop(); err != nil {
			return err
		}
		next, err := b.joinBroker(ctx, dsn, br.addr)
		if err != nil {
			return err
		}
		brokers[i] = next
	}
	return pause(ctx, b.window/4)
}

// joinBroker starts one more broker of a store and returns when it owns some of the shards.
func (b *bench) joinBroker(ctx context.Context, dsn, listen string) (*broker, error) {
	k, err := b.spawn(roleBroker, brief{DSN: dsn, Listen: listen})
	if err != nil {
		return nil, err
	}
	w, err := k.next(ctx)
	if err == nil {
		err = ownsSome(ctx, w.Addr)
	}
	if err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return &broker{kid: k, addr: w.Addr}, nil
}

func ownsSome(ctx context.Context, addr string) error {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return err
	}
	defer c.Close()
	return every(ctx, 20*time.Millisecond, func() (some bool, err error) {
		err = c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
			r, err := a.ListShards(ctx, connect.NewRequest(&notifyv1.ListShardsRequest{}))
			for _, s := range r.Msg.GetShards() {
				some = some || s.GetHere()
			}
			return err
		})
		return some, err
	})
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
