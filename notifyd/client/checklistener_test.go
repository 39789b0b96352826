package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// asking attaches a producer, asks about the halves named, and sends each answer to got.
func asking(got chan<- string, names ...string) func(context.Context, *chkStream) error {
	return func(_ context.Context, s *chkStream) error {
		first, err := s.Receive()
		if err != nil {
			return err
		}
		if first.GetAttach().GetProducerGroup() != "shop" {
			return fmt.Errorf("attach frame %v", first)
		}
		if err := s.Send(&notifyv1.CheckBackResponse{Attached: true}); err != nil {
			return err
		}
		for i, n := range names {
			c := &notifyv1.Check{Handle: []byte(n), Number: uint32(i + 1), Message: &notifyv1.Message{Id: n, Topic: "t"}}
			if err := s.Send(&notifyv1.CheckBackResponse{Checks: []*notifyv1.Check{c}}); err != nil {
				return err
			}
		}
		for {
			req, err := s.Receive()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, a := range req.GetAnswers() {
				got <- string(a.GetHandle()) + " " + a.GetDecision().String()
			}
		}
	}
}

// listen runs a listener until stop is called; stop returns Run's error.
func listen(t *testing.T, c *client.Client, cfg client.CheckListenerConfig) (stop func() error) {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "shop"
	}
	l, err := c.NewCheckListener(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runUntilStopped(t, "listener's end", l.Run)
}

func TestChecksAreAnsweredAndWhatGoesWrongAnswersUnknown(t *testing.T) {
	got := make(chan string, 10)
	names := []string{"commit", "rollback", "unknown", "error", "panic", "hang"}
	b := (&fakeBroker{checkBack: asking(got, names...)}).start(t, "")
	stop := listen(t, fastClient(t, b.addr), client.CheckListenerConfig{
		Timeout: 20 * time.Millisecond,
		Handler: func(ctx context.Context, c client.Check) (client.Decision, error) {
			if want := names[c.Number-1]; c.ID != want || c.Topic != "t" || c.Broker != b.addr {
				t.Errorf("check %+v, want %s", c, want)
			}
			switch c.ID {
			case "commit":
				return client.Commit, nil
			case "rollback":
				return client.Rollback, nil
			case "error":
				return client.Commit, errors.New("database down")
			case "panic":
				panic("boom")
			case "hang":
				<-ctx.Done()
				return client.Unknown, ctx.Err()
			}
			return client.Unknown, nil
		},
	})
	answers := map[string]bool{}
	for range names {
		answers[await(t, "answer", got)] = true
	}
	for _, want := range []string{"commit DECISION_COMMIT", "rollback DECISION_ROLLBACK", "unknown DECISION_UNKNOWN", "error DECISION_UNKNOWN", "panic DECISION_UNKNOWN", "hang DECISION_UNKNOWN"} {
		if !answers[want] {
			t.Errorf("no %q in %v", want, answers)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAHandlerThatLeavesItsGoroutineAnswersNothingAndFreesItsSlot(t *testing.T) {
	got := make(chan string, 10)
	b := (&fakeBroker{checkBack: asking(got, "exit", "next")}).start(t, "")
	listen(t, fastClient(t, b.addr), client.CheckListenerConfig{Concurrency: 1, Handler: func(_ context.Context, c client.Check) (client.Decision, error) {
		if c.ID == "exit" {
			runtime.Goexit()
		}
		return client.Commit, nil
	}})
	if a := await(t, "answer", got); a != "next DECISION_COMMIT" {
		t.Errorf("got %q", a)
	}
}

func TestChecksRunOnlySoManyAtOnce(t *testing.T) {
	got := make(chan string, 100)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint(i))
	}
	b := (&fakeBroker{checkBack: asking(got, names...)}).start(t, "")
	var running, most atomic.Int64
	meet := make(chan struct{})
	listen(t, fastClient(t, b.addr), client.CheckListenerConfig{Concurrency: 3, Handler: func(context.Context, client.Check) (client.Decision, error) {
		defer running.Add(-1)
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 3 {
			select {
			case <-meet:
			default:
				close(meet)
			}
		}
		<-meet           // the first three are there at once
		for range 1000 { // and a fourth could come
			runtime.Gosched()
		}
		return client.Commit, nil
	}})
	for range names {
		await(t, "answer", got)
	}
	if most.Load() != 3 {
		t.Errorf("%d handlers at once, want 3", most.Load())
	}
}

func TestListenerAttachesToEveryBrokerAndAgainWhenOneComesBack(t *testing.T) {
	one, two := make(chan string, 10), make(chan string, 10)
	a := &fakeBroker{checkBack: asking(one, "a")}
	b := (&fakeBroker{checkBack: asking(two, "b")}).start(t, "")
	a.start(t, "")
	both := func() []string { return []string{a.addr, b.addr} }
	a.brokers, b.brokers = both, both
	stop := listen(t, fastClient(t, a.addr), client.CheckListenerConfig{
		Refresh: 10 * time.Millisecond,
		Handler: func(context.Context, client.Check) (client.Decision, error) { return client.Commit, nil },
	})
	await(t, "answer to a", one)
	await(t, "answer to b", two)
	b.stop()
	again := &fakeBroker{checkBack: asking(two, "again"), brokers: both}
	again.start(t, b.addr)
	if got := await(t, "answer to b come back", two); got != "again DECISION_COMMIT" {
		t.Errorf("got %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestStoppedListenerFinishesHandlersAndSendsTheirAnswers(t *testing.T) {
	got := make(chan string, 10)
	b := (&fakeBroker{checkBack: asking(got, "slow")}).start(t, "")
	begun, finish := make(chan struct{}), make(chan struct{})
	l, err := fastClient(t, b.addr).NewCheckListener(client.CheckListenerConfig{Group: "shop", Handler: func(ctx context.Context, _ client.Check) (client.Decision, error) {
		close(begun)
		select {
		case <-finish:
		case <-ctx.Done():
		}
		return client.Rollback, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- l.Run(ctx) }()
	await(t, "handler", begun)
	cancel()
	for range 10_000 { // the listener stops meanwhile
		runtime.Gosched()
	}
	close(finish)
	if err := await(t, "listener's end", ran); err != nil {
		t.Error(err)
	}
	if a := await(t, "answer", got); a != "slow DECISION_ROLLBACK" {
		t.Errorf("got %q", a)
	}
}

func TestRefusedProducerGroupEndsTheListener(t *testing.T) {
	b := (&fakeBroker{checkBack: func(context.Context, *chkStream) error {
		return refusal(connect.CodeInvalidArgument, &notifyv1.ErrorDetail{Reason: client.ReasonInvalid, Message: "producer_group: bad"})
	}}).start(t, "")
	l, err := fastClient(t, b.addr).NewCheckListener(client.CheckListenerConfig{Group: "a b", Handler: func(context.Context, client.Check) (client.Decision, error) { return client.Unknown, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- l.Run(t.Context()) }()
	var e *client.Error
	if err := await(t, "Run", ran); !errors.As(err, &e) || e.Reason != client.ReasonInvalid {
		t.Errorf("got %v", err)
	}
}
