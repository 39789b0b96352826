package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

type subscribeStream = connect.BidiStreamForClient[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]

// ackFrame is the most settlements in one frame.
const ackFrame = 5000

// attachment is one Subscribe stream to one broker, from its opening to its end.
type attachment struct {
	c    *Consumer
	addr string
	out  *outbox

	ackWait atomic.Int64
	broken  atomic.Bool

	mu     sync.Mutex
	credit credit
}

func newAttachment(c *Consumer, addr string) *attachment {
	least := uint32(c.cfg.Concurrency)
	most := max(least, uint32(c.cfg.Credit))
	a := &attachment{c: c, addr: addr, out: newOutbox(), credit: credit{min: least, max: most, now: min(2*least, most)}}
	a.ackWait.Store(int64(5 * time.Second))
	return a
}

// run attaches and receives until the stream ends, and says why: also after
// finish, when the broker ends it. attached is called once the broker has
// accepted.
func (a *attachment) run(ctx context.Context, h *http.Client, attached func()) error {
	ctx, cancel := context.WithCancel(ctx)
	st := a.c.client.messaging(h, a.addr).Subscribe(ctx)
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		a.write(ctx, st)
	}()
	defer func() {
		a.broken.Store(true)
		cancel()
		<-writing
		_ = st.CloseResponse()
		a.c.undelivered(a.addr, a.out.fail())
	}()
	first, err := st.Receive()
	if err != nil {
		return callError(a.addr, streamEnded(err))
	}
	if first.GetAttached() == nil {
		return callError(a.addr, connect.NewError(connect.CodeUnimplemented, errors.New("first frame of the stream is not attached")))
	}
	if ms := first.GetAttached().GetAckWaitMs(); ms > 0 {
		a.ackWait.Store(int64(ms) * int64(time.Millisecond))
	}
	attached()
	for {
		resp, err := st.Receive()
		if err != nil {
			return callError(a.addr, streamEnded(err))
		}
		a.receive(resp)
	}
}

func (a *attachment) receive(resp *notifyv1.SubscribeResponse) {
	now := time.Now()
	if ds := resp.GetDeliveries(); len(ds) > 0 {
		items := make([]received, len(ds))
		for i, d := range ds {
			wait := time.Duration(a.ackWait.Load())
			if ms := d.GetAckWaitMs(); ms > 0 {
				wait = time.Duration(ms) * time.Millisecond
			}
			items[i] = received{
				Delivery: Delivery{Message: messageFrom(d.GetMessage()), Attempt: int(d.GetAttempt()), Deadline: now.Add(wait), Broker: a.addr, Replayed: d.GetReplayed(),
					extend: func() bool { return a.out.extends(d.GetToken()) }},
				token: d.GetToken(), from: a, at: now, extended: now,
			}
		}
		a.c.queue.push(items)
	}
	if tokens := resp.GetNotOwner(); len(tokens) > 0 {
		a.c.refused(a.addr, tokens)
	}
}

// write sends the attach frame, then all settlements that have gathered as one
// frame, again and again. It always half-closes the stream; see Publisher.write.
func (a *attachment) write(ctx context.Context, st *subscribeStream) {
	defer func() { _ = st.CloseRequest() }()
	err := st.Send(&notifyv1.SubscribeRequest{
		Attach: &notifyv1.Attach{Group: a.c.cfg.Group, Instance: a.c.cfg.Instance, Subscriptions: subscriptions(a.c.cfg.Subscriptions)},
		Credit: a.window(),
	})
	for err == nil {
		frame, taken, last := a.out.next(ackFrame)
		switch {
		case last:
			return
		case frame == nil:
			select {
			case <-a.out.ready:
			case <-ctx.Done():
				return
			}
		default:
			if err = st.Send(frame); err != nil {
				a.c.undelivered(a.addr, taken)
			}
		}
	}
}

func (a *attachment) window() uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.credit.now
}

// settle queues acks and nacks; false when the stream has broken.
func (a *attachment) settle(s ...settlement) bool { return a.out.add(s...) }

// waited tells how long a delivery waited for a handler.
func (a *attachment) waited(d time.Duration) {
	a.mu.Lock()
	changed := a.credit.observe(d, time.Duration(a.ackWait.Load()))
	now := a.credit.now
	a.mu.Unlock()
	if changed {
		a.out.setCredit(now)
	}
}

func (a *attachment) isBroken() bool { return a.broken.Load() }

// finish lets the stream end once its settlements are written.
func (a *attachment) finish() { a.out.end() }
