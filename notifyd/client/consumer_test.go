package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// session is the broker's end of one Subscribe stream.
type session struct {
	*subStream
	attach *notifyv1.SubscribeRequest
}

// subscribeScript answers attach and hands the session to f.
func subscribeScript(ackWait time.Duration, f func(context.Context, session) error) func(context.Context, *subStream) error {
	return func(ctx context.Context, s *subStream) error {
		first, err := s.Receive()
		if err != nil {
			return err
		}
		if err := s.Send(&notifyv1.SubscribeResponse{Attached: &notifyv1.Attached{BrokerId: "b", AckWaitMs: uint32(ackWait.Milliseconds())}}); err != nil {
			return err
		}
		return f(ctx, session{s, first})
	}
}

func (s session) deliver(names ...string) error {
	resp := &notifyv1.SubscribeResponse{}
	for _, n := range names {
		resp.Deliveries = append(resp.Deliveries, &notifyv1.Delivery{Token: []byte(n), Attempt: 1, Message: &notifyv1.Message{Id: n, Topic: "t", Body: []byte(n)}})
	}
	return s.Send(resp)
}

// each gives f the settlements in frames until the client half-closes. What a nack
// asks for stands before its reason.
func (s session) each(f func(token string, nack bool, reason string)) error {
	for {
		req, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, a := range req.GetAcks() {
			f(string(a), false, "")
		}
		for _, n := range req.GetNacks() {
			reason := n.GetReason()
			if n.GetDelayMs() > 0 {
				reason = fmt.Sprintf("in %d ms: %s", n.GetDelayMs(), reason)
			}
			if n.GetReject() {
				reason = "never: " + reason
			}
			f(string(n.GetToken()), true, reason)
		}
	}
}

// consume runs a consumer until stop is called; stop returns Run's error.
func consume(t *testing.T, c *client.Client, cfg client.ConsumerConfig) (stop func() error) {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "g"
	}
	consumer, err := c.NewConsumer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runUntilStopped(t, "consumer's end", consumer.Run)
}

// runUntilStopped runs until stop is called; stop returns run's error, the first time.
func runUntilStopped(t *testing.T, what string, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- run(ctx) }()
	var once sync.Once
	stop = func() (err error) {
		once.Do(func() {
			cancel()
			err = await(t, what, ran)
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func fastClient(t *testing.T, addrs ...string) *client.Client {
	return newClient(t, client.Config{Addrs: addrs, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond})
}

func TestConsumerAcksWhatIsHandledAndNacksWhatFailed(t *testing.T) {
	type s struct {
		token, reason string
		nack          bool
	}
	settled := make(chan s, 10)
	b := (&fakeBroker{subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		if se.attach.GetAttach().GetGroup() != "g" || se.attach.GetCredit() == 0 {
			return fmt.Errorf("attach frame %v", se.attach)
		}
		if err := se.deliver("good", "bad", "left", "later", "never"); err != nil {
			return err
		}
		return se.each(func(token string, nack bool, reason string) { settled <- s{token, reason, nack} })
	})}).start(t, "")
	handled := make(chan client.Delivery, 10)
	stop := consume(t, fastClient(t, b.addr), client.ConsumerConfig{Concurrency: 1, Handler: func(_ context.Context, d client.Delivery) error {
		handled <- d
		switch string(d.Body) {
		case "bad":
			return errors.New("no such account")
		case "left":
			return client.ErrUnsettled
		case "later":
			return fmt.Errorf("bank: %w", client.RetryAfter(time.Minute, errors.New("closed")))
		case "never":
			return fmt.Errorf("order: %w", client.Reject(errors.New("not JSON")))
		}
		return nil
	}})
	if got := await(t, "ack", settled); got != (s{token: "good"}) {
		t.Errorf("got %+v", got)
	}
	if got := await(t, "nack", settled); got != (s{"bad", "no such account", true}) {
		t.Errorf("got %+v", got)
	}
	if got := await(t, "nack", settled); got != (s{"later", "in 60000 ms: bank: closed (retry after 1m0s)", true}) {
		t.Errorf("got %+v", got)
	}
	if got := await(t, "nack", settled); got != (s{"never", "never: order: not JSON", true}) {
		t.Errorf("got %+v", got)
	}
	if d := await(t, "delivery", handled); d.ID != "good" || d.Topic != "t" || d.Attempt != 1 || d.Broker != b.addr || d.Deadline.IsZero() {
		t.Errorf("got %+v", d)
	}
	for range 4 {
		await(t, "delivery", handled)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if len(settled) != 0 {
		t.Errorf("ErrUnsettled was settled: %+v", <-settled)
	}
}

func TestConsumerAttachesToBrokersAsTheyComeAndGo(t *testing.T) {
	var mu sync.Mutex
	var list []string
	attached := make(chan string, 100)
	newBroker := func(addr string) *fakeBroker {
		var b *fakeBroker
		b = &fakeBroker{
			brokers: func() []string { mu.Lock(); defer mu.Unlock(); return list },
			subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
				attached <- b.addr
				return se.each(func(string, bool, string) {})
			}),
		}
		return b.start(t, addr)
	}
	setList := func(a ...string) { mu.Lock(); defer mu.Unlock(); list = a }
	a := newBroker("")
	b := newBroker("")
	setList(a.addr)
	stop := consume(t, fastClient(t, a.addr), client.ConsumerConfig{Refresh: 10 * time.Millisecond, Handler: func(context.Context, client.Delivery) error { return nil }})
	if got := await(t, "first broker", attached); got != a.addr {
		t.Fatalf("attached to %s", got)
	}
	setList(a.addr, b.addr)
	if got := await(t, "second broker", attached); got != b.addr {
		t.Fatalf("attached to %s", got)
	}
	// The only configured address dies. The list is then read from the other one,
	// and a third is found.
	setList(b.addr)
	a.stop()
	c := newBroker("")
	setList(b.addr, c.addr)
	if got := await(t, "third broker", attached); got != c.addr {
		t.Fatalf("attached to %s", got)
	}
	// A broker that restarts at its address is attached to again.
	b.stop()
	newBroker(b.addr)
	if got := await(t, "restarted broker", attached); got != b.addr {
		t.Fatalf("attached to %s", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestSettlementsThatABrokerMayNotTakeGoToTheOwner(t *testing.T) {
	var addrs []string
	settled := make(chan string, 10)
	both := make(chan struct{})
	var attachedCount atomic.Int64
	arrived := func() {
		if attachedCount.Add(1) == 2 {
			close(both)
		}
	}
	var refusals atomic.Int64
	owner := (&fakeBroker{brokers: func() []string { return addrs }, subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		arrived()
		// Not the owner yet: the first offers are refused too.
		return se.each(func(token string, nack bool, reason string) {
			if refusals.Add(1) <= 3 {
				_ = se.Send(&notifyv1.SubscribeResponse{NotOwner: [][]byte{[]byte(token)}})
				return
			}
			settled <- fmt.Sprint(token, nack, reason)
		})
	})}).start(t, "")
	old := (&fakeBroker{brokers: func() []string { return addrs }, subscribe: subscribeScript(time.Minute, func(ctx context.Context, se session) error {
		arrived()
		select {
		case <-both:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := se.deliver("done", "failed", "rejected"); err != nil {
			return err
		}
		return se.each(func(token string, nack bool, reason string) {
			_ = se.Send(&notifyv1.SubscribeResponse{NotOwner: [][]byte{[]byte(token)}})
		})
	})}).start(t, "")
	addrs = []string{old.addr, owner.addr}
	stop := consume(t, fastClient(t, old.addr), client.ConsumerConfig{Handler: func(_ context.Context, d client.Delivery) error {
		switch d.ID {
		case "failed":
			return client.RetryAfter(time.Second, errors.New("why"))
		case "rejected":
			return client.Reject(errors.New("why"))
		}
		return nil
	}})
	got := map[string]bool{await(t, "settlement", settled): true, await(t, "settlement", settled): true, await(t, "settlement", settled): true}
	if !got["donefalse"] || !got["failedtruein 1000 ms: why (retry after 1s)"] || !got["rejectedtruenever: why"] {
		t.Fatalf("owner got %v", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAckOfABrokenStreamGoesToTheNextOne(t *testing.T) {
	settled := make(chan string, 10)
	handling, broken := make(chan struct{}), make(chan struct{})
	var streams atomic.Int64
	b := (&fakeBroker{subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		if streams.Add(1) == 1 {
			if err := se.deliver("m"); err != nil {
				return err
			}
			<-handling
			return connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
		}
		close(broken)
		return se.each(func(token string, nack bool, reason string) { settled <- token })
	})}).start(t, "")
	consume(t, fastClient(t, b.addr), client.ConsumerConfig{Handler: func(context.Context, client.Delivery) error {
		close(handling)
		<-broken
		return nil
	}})
	if got := await(t, "ack", settled); got != "m" {
		t.Fatalf("got %q", got)
	}
}

func TestUnknownGroupEndsTheConsumer(t *testing.T) {
	b := (&fakeBroker{subscribe: func(_ context.Context, s *subStream) error {
		_, _ = s.Receive()
		return refusal(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: client.ReasonUnknownGroup, Message: "no group g"})
	}}).start(t, "")
	c, err := fastClient(t, b.addr).NewConsumer(client.ConsumerConfig{Group: "g", Handler: func(context.Context, client.Delivery) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()
	var e *client.Error
	if err := await(t, "run", ran); !errors.As(err, &e) || e.Reason != client.ReasonUnknownGroup {
		t.Fatalf("got %v", err)
	}
}

func TestStoppedConsumerFinishesHandlersAndSendsTheirAcks(t *testing.T) {
	settled := make(chan string, 10)
	b := (&fakeBroker{subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		if err := se.deliver("running", "waiting"); err != nil {
			return err
		}
		return se.each(func(token string, nack bool, reason string) { settled <- token })
	})}).start(t, "")
	handling, finish := make(chan struct{}), make(chan struct{})
	stop := consume(t, fastClient(t, b.addr), client.ConsumerConfig{Concurrency: 1, Handler: func(ctx context.Context, d client.Delivery) error {
		if d.ID == "waiting" {
			t.Error("a delivery was begun after the stop")
		}
		close(handling)
		<-finish
		return ctx.Err()
	}})
	await(t, "handler", handling)
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("ended beside a running handler: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := await(t, "end", stopped); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "ack", settled); got != "running" {
		t.Fatalf("got %q", got)
	}
}

func TestAcksShareFramesAndThousandsAreInFlight(t *testing.T) {
	const n = 50_000
	done := make(chan int64, 1)
	b := (&fakeBroker{subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		credit := int(se.attach.GetCredit())
		sent, acked := 0, 0
		var frames int64
		for acked < n {
			var names []string
			for ; sent < n && sent-acked < credit; sent++ {
				names = append(names, fmt.Sprint(sent))
			}
			if len(names) > 0 {
				if err := se.deliver(names...); err != nil {
					return err
				}
			}
			req, err := se.Receive()
			if err != nil {
				return err
			}
			frames++
			acked += len(req.GetAcks())
			if req.GetCredit() > 0 {
				credit = int(req.GetCredit())
			}
		}
		done <- frames
		return se.each(func(string, bool, string) {})
	})}).start(t, "")
	consume(t, fastClient(t, b.addr), client.ConsumerConfig{Credit: 8192, Handler: func(context.Context, client.Delivery) error { return nil }})
	if frames := await(t, "all acks", done); frames > n/2 {
		t.Errorf("%d acks went in %d frames", n, frames)
	}
}

func TestDeliveryPastItsDeadlineIsNotBegun(t *testing.T) {
	gone := make(chan struct{})
	b := (&fakeBroker{subscribe: subscribeScript(30*time.Millisecond, func(ctx context.Context, se session) error {
		if err := se.deliver("slow", "late"); err != nil {
			return err
		}
		<-gone
		if err := se.deliver("fresh"); err != nil {
			return err
		}
		return se.each(func(string, bool, string) {})
	})}).start(t, "")
	handled := make(chan string, 10)
	consume(t, fastClient(t, b.addr), client.ConsumerConfig{Concurrency: 1, Handler: func(_ context.Context, d client.Delivery) error {
		handled <- d.ID
		if d.ID == "slow" {
			<-time.After(time.Until(d.Deadline.Add(time.Millisecond)))
			close(gone)
		}
		return nil
	}})
	if a, b := await(t, "delivery", handled), await(t, "delivery", handled); a != "slow" || b != "fresh" {
		t.Fatalf("handled %s, %s", a, b)
	}
}

// The broker pays no heed to credit: what waits for the one handler waits longer than an ack wait.
func TestWhatWaitsForAHandlerKeepsItsTime(t *testing.T) {
	b := (&fakeBroker{subscribe: subscribeScript(900*time.Millisecond, func(ctx context.Context, se session) error {
		if err := se.deliver("a", "b", "c", "d", "e", "f"); err != nil {
			return err
		}
		return se.each(func(string, bool, string) {})
	})}).start(t, "")
	handled := make(chan string, 10)
	consume(t, fastClient(t, b.addr), client.ConsumerConfig{Concurrency: 1, Handler: func(_ context.Context, d client.Delivery) error {
		<-time.After(400 * time.Millisecond)
		handled <- d.ID
		return nil
	}})
	for _, want := range []string{"a", "b", "c", "d", "e", "f"} {
		if got := await(t, "delivery", handled); got != want {
			t.Fatalf("handled %s, want %s", got, want)
		}
	}
}

func TestConsumerLeavesAFrozenBroker(t *testing.T) {
	attached := make(chan struct{}, 10)
	var p *proxy
	b := (&fakeBroker{brokers: func() []string { return []string{p.addr} }, subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		attached <- struct{}{}
		return se.each(func(string, bool, string) {})
	})}).start(t, "")
	p = newProxy(t, b.addr)
	c := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond, PingAfter: 50 * time.Millisecond, PingTimeout: 50 * time.Millisecond})
	consume(t, c, client.ConsumerConfig{Handler: func(context.Context, client.Delivery) error { return nil }})
	await(t, "attach", attached)
	p.freeze()
	// Nothing comes through; that the connection is closed shows that the client left it.
	await(t, "close of the frozen connection", p.closed)
}

// The broker stops reading, so acks gather here; then the stream breaks.
func TestAcksThatWereNotSentGoToTheNextStream(t *testing.T) {
	const n, tokenSize = 60, 100 << 10
	var streams, handled atomic.Int64
	all := make(chan struct{})
	settled := make(chan string, n)
	b := (&fakeBroker{subscribe: subscribeScript(time.Minute, func(_ context.Context, se session) error {
		if streams.Add(1) > 1 {
			return se.each(func(token string, nack bool, reason string) { settled <- token })
		}
		for i := range n {
			if err := se.deliver(fmt.Sprintf("%0*d", tokenSize, i)); err != nil {
				return err
			}
		}
		<-all
		return connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
	})}).start(t, "")
	stop := consume(t, fastClient(t, b.addr), client.ConsumerConfig{Handler: func(context.Context, client.Delivery) error {
		if handled.Add(1) == n {
			close(all)
		}
		return nil
	}})
	// What fits into the first stream's window is lost with it. The rest is at least
	// half, and comes.
	for range n / 2 {
		await(t, "ack", settled)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
