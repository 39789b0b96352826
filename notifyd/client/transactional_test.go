package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// halfLog is a broker's end of transactions: halves and the decisions that arrived.
type halfLog struct {
	mu       sync.Mutex
	prepared []*notifyv1.PrepareRequest
	decided  []string // "commit ID"
}

func (l *halfLog) prepare(_ context.Context, r *notifyv1.PrepareRequest) (*notifyv1.PrepareResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prepared = append(l.prepared, r)
	return &notifyv1.PrepareResponse{Id: r.GetMessage().GetId(), Handle: []byte(r.GetMessage().GetId())}, nil
}

func (l *halfLog) decide(_ context.Context, d string, r *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided = append(l.decided, d+" "+string(r.GetHandle()))
	return &notifyv1.DecideResponse{Id: string(r.GetHandle())}, nil
}

func (l *halfLog) decisions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.decided...)
}

func transactional(t *testing.T, c *client.Client, cfg client.TransactionalConfig) *client.TransactionalProducer {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "shop"
	}
	p, err := c.NewTransactionalProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPrepareTriedAgainIsTheSameHalf(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: func(ctx context.Context, r *notifyv1.PrepareRequest) (*notifyv1.PrepareResponse, error) {
		resp, err := l.prepare(ctx, r)
		switch len(l.prepared) {
		case 1:
			panic(http.ErrAbortHandler) // stored, and the answer is lost
		case 2:
			return nil, refusal(connect.CodeUnknown, &notifyv1.ErrorDetail{Reason: client.ReasonResultUnknown, Message: "result unknown"})
		}
		return resp, err
	}}).start(t, "")
	p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{CheckAfter: time.Minute, CheckURL: "http://shop/check"})
	h, err := p.Prepare(t.Context(), client.Message{Topic: "orders", Key: "k", Body: []byte("x")})
	if err != nil || len(l.prepared) != 3 {
		t.Fatalf("%v after %d calls", err, len(l.prepared))
	}
	if _, err := uuid.Parse(h.ID); err != nil || string(h.Handle) != h.ID {
		t.Fatalf("half %+v, %v", h, err)
	}
	for _, r := range l.prepared {
		if r.GetMessage().GetId() != h.ID || r.GetProducerGroup() != "shop" || r.GetCheckAfterMs() != 60_000 || r.GetCheckUrl() != "http://shop/check" {
			t.Errorf("broker got %v", r)
		}
	}
}

func TestDecisionIsTriedAgainUntilItIsAnswered(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{decide: func(ctx context.Context, d string, r *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error) {
		resp, err := l.decide(ctx, d, r)
		switch len(l.decisions()) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			return nil, refusal(connect.CodeUnavailable, &notifyv1.ErrorDetail{Reason: client.ReasonUnavailable, Message: "stopping", Retryable: true})
		}
		return resp, err
	}}).start(t, "")
	p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{})
	if err := p.Commit(t.Context(), client.Half{ID: "h", Handle: []byte("h")}); err != nil {
		t.Fatal(err)
	}
	if got := l.decisions(); fmt.Sprint(got) != "[commit h commit h commit h]" {
		t.Errorf("broker got %v", got)
	}
}

func TestRefusedDecisionsAreTyped(t *testing.T) {
	for reason, want := range map[client.Reason]error{
		client.ReasonDecidedOtherwise: client.ErrDecidedOtherwise,
		client.ReasonUnknownHalf:      client.ErrUnknownHalf,
		client.ReasonNotYours:         client.ErrNotYours,
	} {
		calls := 0
		b := (&fakeBroker{decide: func(context.Context, string, *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error) {
			calls++
			return nil, refusal(connect.CodeFailedPrecondition, &notifyv1.ErrorDetail{Reason: reason, Message: "no: rollback"})
		}}).start(t, "")
		p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{})
		err := p.Commit(t.Context(), client.Half{ID: "h", Handle: []byte("h")})
		var e *client.Error
		if !errors.Is(err, want) || !errors.As(err, &e) || e.Reason != reason || errors.Is(err, client.ErrUndecided) || calls != 1 {
			t.Errorf("%s: got %v after %d calls", reason, err, calls)
		}
	}
}

func TestDecisionThatReachesNoBrokerIsLeftToCheckBack(t *testing.T) {
	c := newClient(t, client.Config{Addrs: []string{closedPort(t)}, Patience: time.Millisecond, RetryMin: time.Millisecond})
	err := transactional(t, c, client.TransactionalConfig{}).Rollback(t.Context(), client.Half{ID: "h"})
	if !errors.Is(err, client.ErrUndecided) || !errors.Is(err, client.ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
}

func TestTransactDecidesByTheLocalResult(t *testing.T) {
	broke := errors.New("broke")
	for _, c := range []struct {
		name  string
		local client.Decision
		err   error
		want  client.Decision
	}{
		{"commit", client.Commit, nil, client.Commit},
		{"rollback", client.Rollback, broke, client.Rollback},
		{"rollback without an error", client.Rollback, nil, client.Rollback},
		{"unknown", client.Unknown, broke, client.Unknown},
		{"an error beside commit", client.Commit, broke, client.Unknown},
		{"no decision at all", client.Decision(7), nil, client.Unknown},
	} {
		var l halfLog
		b := (&fakeBroker{prepare: l.prepare, decide: l.decide}).start(t, "")
		p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{})
		out, err := p.Transact(t.Context(), client.Message{Topic: "t"}, func(_ context.Context, h client.Half) (client.Decision, error) {
			if len(l.prepared) != 1 || l.prepared[0].GetMessage().GetId() != h.ID {
				t.Errorf("%s: local ran before the half was stored", c.name)
			}
			return c.local, c.err
		})
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || out.Decision != c.want || out.Local != c.want || out.Cause != nil || out.ID != l.prepared[0].GetMessage().GetId() {
			t.Errorf("%s: got %+v, %v", c.name, out, err)
		}
		decided := fmt.Sprint(l.decisions())
		if want := fmt.Sprintf("[%s %s]", c.want, out.ID); c.want != client.Unknown && decided != want || c.want == client.Unknown && decided != "[]" {
			t.Errorf("%s: broker got %s", c.name, decided)
		}
	}
}

func TestTransactDoesNotRunTheLocalTransactionWithoutAHalf(t *testing.T) {
	b := (&fakeBroker{prepare: func(context.Context, *notifyv1.PrepareRequest) (*notifyv1.PrepareResponse, error) {
		return nil, refusal(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: client.ReasonUnknownTopic, Message: "no topic"})
	}}).start(t, "")
	out, err := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{}).
		Transact(t.Context(), client.Message{Topic: "t"}, func(context.Context, client.Half) (client.Decision, error) {
			t.Error("local ran")
			return client.Commit, nil
		})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonUnknownTopic || out != (client.Outcome{}) {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestContextThatEndsAfterTheLocalCommitStillCommits(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: l.prepare, decide: l.decide}).start(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	out, err := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{}).
		Transact(ctx, client.Message{Topic: "t"}, func(context.Context, client.Half) (client.Decision, error) {
			cancel()
			return client.Commit, nil
		})
	if err != nil || out.Decision != client.Commit || fmt.Sprint(l.decisions()) != "[commit "+out.ID+"]" {
		t.Errorf("got %+v, %v; broker got %v", out, err, l.decisions())
	}
}

func TestBrokerThatIsAwayAtTheCommitIsNoErrorOfTheTransaction(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: l.prepare}).start(t, "")
	out, err := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{DecideWait: 50 * time.Millisecond}).
		Transact(t.Context(), client.Message{Topic: "t"}, func(context.Context, client.Half) (client.Decision, error) {
			b.stop()
			return client.Commit, nil
		})
	if err != nil || out.Local != client.Commit || out.Decision != client.Unknown || !errors.Is(out.Cause, client.ErrUndecided) {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestTransactTellsThatACheckWasAnsweredTheOtherWay(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: l.prepare, decide: func(context.Context, string, *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error) {
		return nil, refusal(connect.CodeFailedPrecondition, &notifyv1.ErrorDetail{Reason: client.ReasonDecidedOtherwise, Message: "decided otherwise: rollback"})
	}}).start(t, "")
	out, err := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{}).
		Transact(t.Context(), client.Message{Topic: "t"}, func(context.Context, client.Half) (client.Decision, error) { return client.Commit, nil })
	if !errors.Is(err, client.ErrDecidedOtherwise) || out.Local != client.Commit || out.Decision != client.Rollback {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestPanicOfTheLocalTransactionDecidesNothing(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: l.prepare, decide: l.decide}).start(t, "")
	p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{})
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = p.Transact(t.Context(), client.Message{Topic: "t"}, func(context.Context, client.Half) (client.Decision, error) { panic("boom") })
	}()
	if got := l.decisions(); len(got) != 0 {
		t.Errorf("broker got %v", got)
	}
}

func TestTransactSQLRollsBackWhenNoTransactionCouldBegin(t *testing.T) {
	var l halfLog
	b := (&fakeBroker{prepare: l.prepare, decide: l.decide}).start(t, "")
	down := errors.New("database down")
	out, err := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{}).
		TransactSQL(t.Context(), noDatabase{down}, client.Message{Topic: "t"}, func(context.Context, *sql.Tx, client.Half) error {
			t.Error("local ran")
			return nil
		})
	if !errors.Is(err, down) || out.Decision != client.Rollback {
		t.Errorf("got %+v, %v", out, err)
	}
}

type noDatabase struct{ err error }

func (d noDatabase) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, d.err }

func TestCloseFlushesTheAsynchronousDecisions(t *testing.T) {
	var l halfLog
	fails := 3
	b := (&fakeBroker{decide: func(ctx context.Context, d string, r *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error) {
		l.mu.Lock()
		fails--
		fail := fails >= 0
		l.mu.Unlock()
		if fail {
			return nil, refusal(connect.CodeUnavailable, &notifyv1.ErrorDetail{Reason: client.ReasonUnavailable, Message: "stopping", Retryable: true})
		}
		return l.decide(ctx, d, r)
	}}).start(t, "")
	p := transactional(t, fastClient(t, b.addr), client.TransactionalConfig{Concurrency: 8})
	done := make(chan error, 200)
	for i := range 100 {
		h := client.Half{ID: fmt.Sprint(i), Handle: fmt.Append(nil, i)}
		if err := p.CommitAsync(t.Context(), h, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := p.RollbackAsync(t.Context(), h, nil); err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan error, 1)
	go func() { ran <- p.Run(context.Background()) }()
	p.Close()
	if err := await(t, "Run", ran); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := await(t, "callback", done); err != nil {
			t.Error(err)
		}
	}
	if n := len(l.decisions()); n != 200 || len(done) != 0 {
		t.Errorf("%d decisions arrived, %d callbacks too many", n, len(done))
	}
	if err := p.CommitAsync(t.Context(), client.Half{}, nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCancelledRunTellsEveryDecisionThatItIsLeftToCheckBack(t *testing.T) {
	p := transactional(t, newClient(t, client.Config{Addrs: []string{closedPort(t)}, Patience: -1}), client.TransactionalConfig{Concurrency: 2})
	done := make(chan error, 10)
	for range 10 {
		if err := p.CommitAsync(t.Context(), client.Half{}, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	cancel()
	if err := await(t, "Run", ran); !errors.Is(err, client.ErrUndecided) {
		t.Errorf("Run: %v", err)
	}
	for range 10 {
		if err := await(t, "callback", done); !errors.Is(err, client.ErrUndecided) {
			t.Errorf("callback: %v", err)
		}
	}
}

func TestFullWindowOfDecisionsBlocksUntilTheContextEnds(t *testing.T) {
	p := transactional(t, newClient(t, client.Config{}), client.TransactionalConfig{Window: 1})
	if err := p.CommitAsync(t.Context(), client.Half{}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.CommitAsync(ctx, client.Half{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
