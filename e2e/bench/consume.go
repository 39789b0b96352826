package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// listen attaches an instance of a group to a broker, and returns when it is attached. stop detaches it, and may be called twice.
func listen(ctx context.Context, addr string, cfg client.ConsumerConfig) (stop func() error, err error) {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return nil, err
	}
	cfg.Instance = cmp.Or(cfg.Instance, cfg.Group)
	consumer, err := c.NewConsumer(cfg)
	if err != nil {
		c.Close()
		return nil, err
	}
	consume, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return consumer.Run(consume) })
	stop = sync.OnceValue(func() error {
		defer c.Close()
		end()
		return g.Wait()
	})
	if err := every(ctx, 10*time.Millisecond, func() (bool, error) { return attached(ctx, c, cfg.Group, cfg.Instance) }); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// attached asks whether an instance of a group is attached.
func attached(ctx context.Context, c *client.Client, group, instance string) (is bool, err error) {
	err = c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
		r, err := a.GetGroup(ctx, connect.NewRequest(&notifyv1.GetGroupRequest{Name: group}))
		if err != nil {
			return err
		}
		is = slices.ContainsFunc(r.Msg.GetGroup().GetInstances(), func(i *notifyv1.Instance) bool { return i.GetName() == instance })
		return nil
	})
	return is, err
}

// mostAhead is how many messages are published and not handled yet at most, so that no side piles them up.
const mostAhead = 8000

// A lead keeps publishing from running ahead of some groups.
type lead struct {
	groups int
	ahead  chan struct{} // one for each group and message on its way
}

func newLead(groups int) *lead { return &lead{groups, make(chan struct{}, groups*mostAhead)} }

// room waits until one more message may be published. It is for onStreams.
func (l *lead) room(work context.Context) bool {
	for range l.groups {
		select {
		case l.ahead <- struct{}{}:
		case <-work.Done():
			return false
		}
	}
	return work.Err() == nil
}

// handled notes that a group has a message.
func (l *lead) handled() {
	select {
	case <-l.ahead:
	default: // a repeat
	}
}

// rest waits for what is on its way; a message whose Send was given up never comes.
func (l *lead) rest(ctx context.Context) error {
	until := time.Now().Add(5 * time.Second)
	return every(ctx, 20*time.Millisecond, func() (bool, error) { return len(l.ahead) == 0 || time.Now().After(until), nil })
}

// pushed is the rate at which messages are published, pushed to every group and acknowledged.
func (b *bench) pushed(ctx context.Context, br *broker, db *database, groups ...string) (perSecond float64, used usage, err error) {
	limit := newLead(len(groups))
	var handled atomic.Int64
	for _, group := range groups {
		stop, err := listen(ctx, br.addr, client.ConsumerConfig{Group: group, Credit: 4096, Handler: func(context.Context, client.Delivery) error {
			handled.Add(1)
			limit.handled()
			return nil
		}})
		if err != nil {
			return 0, used, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	perSecond, used, err = rate(ctx, b.window, map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()}, &handled, func(ctx context.Context) error {
		return onStreams(ctx, br.addr, b.streams/4+1, limit.room, func() {})
	})
	if err == nil {
		err = limit.rest(ctx)
	}
	return perSecond / float64(len(groups)), used, err
}
