package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"notifymirror/notifyd/client"
)

// A crowd is an instance of each group of a broker, in this process.
type crowd struct {
	broker  *broker
	groups  []string
	stops   []func() error
	lead    atomic.Pointer[lead]     // waits for all groups but the first
	current atomic.Pointer[crossing] // of which arrivals are noted
	handled atomic.Int64
}

func newCrowd(br *broker, groups []string) *crowd { return &crowd{broker: br, groups: groups} }

// attach attaches the groups from a number on.
func (c *crowd) attach(ctx context.Context, from int) error {
	for i := from; i < len(c.groups); i++ {
		stop, err := listen(ctx, c.broker.addr, client.ConsumerConfig{Group: c.groups[i], Credit: 4096, Handler: func(_ context.Context, d client.Delivery) error {
			c.handled.Add(1)
			if l := c.lead.Load(); l != nil && i > 0 {
				l.handled()
			}
			if x := c.current.Load(); x != nil {
				x.arrived(i, d.Headers[headerNumber])
			}
			return nil
		}})
		if err != nil {
			return err
		}
		c.stops = append(c.stops, stop)
	}
	return nil
}

// leave detaches all groups.
func (c *crowd) leave() (err error) {
	for _, stop := range c.stops {
		err = errors.Join(err, stop())
	}
	c.stops = nil
	return err
}

// A crossing is one run of messages to several groups: when each was sent, and came to each of the groups from a
// number on. Times are nanoseconds since began; 0 is never.
type crossing struct {
	began   time.Time
	name    string // tells this run's messages from another's
	from    int
	sent    []int64
	came    [][]atomic.Int64 // by group
	missing atomic.Int64
	done    chan struct{}
}

func newCrossing(messages, groups, from int) *crossing {
	x := &crossing{began: time.Now(), from: from, sent: make([]int64, messages), came: make([][]atomic.Int64, groups), done: make(chan struct{})}
	x.name = strconv.FormatInt(x.began.UnixNano(), 36)
	for i := from; i < groups; i++ {
		x.came[i] = make([]atomic.Int64, messages)
	}
	x.missing.Store(int64(messages * (groups - from)))
	return x
}

// run publishes the messages at a rate on one stream, and returns when all have come.
func (x *crossing) run(ctx context.Context, addr string, perSecond int) error {
	l, err := newLine(ctx, client.PublisherConfig{NoDedup: true}, addr)
	if err != nil {
		return err
	}
	window := time.Duration(len(x.sent)) * time.Second / time.Duration(perSecond)
	err = paced(ctx, perSecond, window, func(i int) error {
		x.sent[i] = int64(time.Since(x.began))
		return l.send(ctx, x.name+" "+strconv.Itoa(i), func() {})
	})
	if err = errors.Join(err, l.close()); err != nil {
		return err
	}
	limit := time.NewTimer(arrivalPatience)
	defer limit.Stop()
	select {
	case <-x.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("%d arrivals are missing after %s", x.missing.Load(), arrivalPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrived notes the first arrival of a message at a group.
func (x *crossing) arrived(group int, number string) {
	name, n, _ := strings.Cut(number, " ")
	i, err := strconv.Atoi(n)
	if name != x.name || err != nil || group < x.from || i < 0 || i >= len(x.sent) {
		return
	}
	if x.came[group][i].CompareAndSwap(0, max(1, int64(time.Since(x.began)))) && x.missing.Add(-1) == 0 {
		close(x.done)
	}
}

// delays are those of all groups.
func (x *crossing) delays() (out []time.Duration) {
	for _, list := range x.came {
		for i := range list {
			out = append(out, time.Duration(list[i].Load()-x.sent[i]))
		}
	}
	return out
}
