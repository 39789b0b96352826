package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// outcome is what done was called with, in order.
type outcome struct {
	n   int
	r   client.Published
	err error
}

// sendAll sends n messages, closes, and returns the outcomes and Run's error.
func sendAll(t *testing.T, p *client.Publisher, n int) ([]outcome, error) {
	t.Helper()
	ran := make(chan error, 1)
	go func() { ran <- p.Run(t.Context()) }()
	var out []outcome
	for i := range n {
		m := client.Message{Topic: "t", Key: "k", Body: fmt.Appendf(nil, "%d", i)}
		if err := p.Send(t.Context(), m, client.PublishOptions{}, func(r client.Published, err error) { out = append(out, outcome{i, r, err}) }); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	return out, await(t, "publisher", ran)
}

func TestPublisherAnswersInOrderWithThousandsUnderWay(t *testing.T) {
	const n = 20_000
	var stored storeLog
	var frames atomic.Int64
	b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		// Answers only once a third of the window waits: the client must not need
		// an answer to go on sending.
		var open []*notifyv1.PublishRequest
		for {
			req, err := s.Receive()
			if errors.Is(err, io.EOF) {
				return s.Send(results(open))
			}
			if err != nil {
				return err
			}
			frames.Add(1)
			stored.add(req.GetPublishes()...)
			if open = append(open, req.GetPublishes()...); len(open) > 2500 {
				if err := s.Send(results(open)); err != nil {
					return err
				}
				open = nil
			}
		}
	}}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}}).NewPublisher(client.PublisherConfig{})
	out, err := sendAll(t, p, n)
	if err != nil || len(out) != n {
		t.Fatalf("%d outcomes, %v", len(out), err)
	}
	for i, o := range out {
		if o.n != i || o.err != nil || o.r.ID != fmt.Sprintf("id-%d", i) {
			t.Fatalf("outcome %d is %+v", i, o)
		}
	}
	if frames.Load() > n/2 {
		t.Errorf("%d messages went in %d frames", n, frames.Load())
	}
}

func TestPublisherSendsTheUnansweredAgainInOrderWithTheSameKeys(t *testing.T) {
	const n = 3000
	var stored storeLog
	var streams atomic.Int64
	b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		if streams.Add(1) >= 4 {
			return stored.answerAll(ctx, s)
		}
		// Stores one frame, answers half of it, and ends as after a failed batch.
		req, err := s.Receive()
		if err != nil {
			return err
		}
		stored.add(req.GetPublishes()...)
		if err := s.Send(results(req.GetPublishes()[:len(req.GetPublishes())/2])); err != nil {
			return err
		}
		return refusal(connect.CodeUnavailable, &notifyv1.ErrorDetail{Reason: client.ReasonBehindFailure, Message: "an earlier message failed", Retryable: true})
	}}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond}).NewPublisher(client.PublisherConfig{})
	out, err := sendAll(t, p, n)
	if err != nil || len(out) != n {
		t.Fatalf("%d outcomes, %v", len(out), err)
	}
	keys := map[string]string{}
	var first []string
	for _, r := range stored.all {
		body := string(r.GetMessage().GetBody())
		if r.GetIdempotencyKey() == "" || r.GetIdempotencyKey() != r.GetMessage().GetId() {
			t.Fatalf("message %s: id %q, idempotency key %q", body, r.GetMessage().GetId(), r.GetIdempotencyKey())
		}
		if k, seen := keys[body]; !seen {
			keys[body] = r.GetIdempotencyKey()
			first = append(first, body)
		} else if k != r.GetIdempotencyKey() {
			t.Fatalf("message %s was sent again under another key", body)
		}
	}
	if len(first) != n || !slices.IsSortedFunc(first, byNumber) {
		t.Fatalf("%d messages, first arrivals in order: %v", len(first), slices.IsSortedFunc(first, byNumber))
	}
	for i, o := range out {
		if o.n != i || o.err != nil {
			t.Fatalf("outcome %d is %+v", i, o)
		}
	}
}

func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

func TestRefusedMessageFailsAlone(t *testing.T) {
	b := (&fakeBroker{publishStream: func(_ context.Context, s *pubStream) error {
		for {
			req, err := s.Receive()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			resp := results(req.GetPublishes())
			for i, r := range req.GetPublishes() {
				if string(r.GetMessage().GetBody()) == "1" {
					resp.Results[i] = &notifyv1.PublishResult{Error: &notifyv1.ErrorDetail{Reason: client.ReasonUnknownTopic, Message: "no such topic"}}
				}
			}
			if err := s.Send(resp); err != nil {
				return err
			}
		}
	}}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}}).NewPublisher(client.PublisherConfig{})
	out, err := sendAll(t, p, 3)
	var e *client.Error
	if err != nil || out[0].err != nil || out[2].err != nil || !errors.As(out[1].err, &e) || e.Reason != client.ReasonUnknownTopic {
		t.Fatalf("got %+v, %v", out, err)
	}
}

// A failed batch is answered in line: failures that ask to be sent again between
// answers that stand, then the end of the stream.
func TestFailedResultsAreSentAgainAndTheOthersStand(t *testing.T) {
	var stored storeLog
	unknown := func(r *notifyv1.PublishRequest) *notifyv1.ErrorDetail {
		switch string(r.GetMessage().GetBody()) {
		case "1":
			return &notifyv1.ErrorDetail{Reason: client.ReasonStoreAway, Message: "store away", Retryable: true}
		case "3":
			return &notifyv1.ErrorDetail{Reason: client.ReasonBehindFailure, Message: "behind", Retryable: true}
		case "5":
			return &notifyv1.ErrorDetail{Reason: client.ReasonResultUnknown, Message: "unknown"}
		case "7":
			return &notifyv1.ErrorDetail{Reason: client.ReasonInvalid, Message: "bad"}
		}
		return nil
	}
	for _, idempotent := range []bool{false, true} {
		stored = storeLog{}
		failing := true
		b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
			if !failing {
				return stored.answerAll(ctx, s)
			}
			for len(stored.all) < 8 {
				req, err := s.Receive()
				if err != nil {
					return err
				}
				stored.add(req.GetPublishes()...)
				resp := results(req.GetPublishes())
				for i, r := range req.GetPublishes() {
					if d := unknown(r); d != nil {
						resp.Results[i] = &notifyv1.PublishResult{Error: d}
					}
				}
				if err := s.Send(resp); err != nil {
					return err
				}
				// All eight are on the first stream: the test sends them before Run.
			}
			failing = false
			<-ctx.Done() // the client leaves by itself
			return ctx.Err()
		}}).start(t, "")
		p := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond}).NewPublisher(client.PublisherConfig{NoDedup: !idempotent})
		outcomes := map[int]error{}
		for i := range 8 {
			if err := p.Send(t.Context(), client.Message{Topic: "t", Body: fmt.Appendf(nil, "%d", i)}, client.PublishOptions{}, func(_ client.Published, err error) { outcomes[i] = err }); err != nil {
				t.Fatal(err)
			}
		}
		p.Close()
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []string{"1", "3"}
		if idempotent {
			want = append(want, "5")
		}
		if again := stored.bodies()[8:]; !slices.Equal(again, want) {
			t.Errorf("idempotent %v: sent again %v, want %v", idempotent, again, want)
		}
		for i := range 8 {
			failed := i == 7 || i == 5 && !idempotent
			if got, ok := outcomes[i]; !ok || failed != (got != nil) {
				t.Errorf("idempotent %v: message %d got %v", idempotent, i, got)
			}
		}
	}
}

func TestPublisherSurvivesTheBrokersRestart(t *testing.T) {
	var stored storeLog
	half := make(chan struct{})
	b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		if _, err := s.Receive(); err != nil {
			return err
		}
		close(half)
		<-ctx.Done()
		return ctx.Err()
	}}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond}).NewPublisher(client.PublisherConfig{})
	go func() {
		<-half
		b.stop()
		(&fakeBroker{publishStream: stored.answerAll}).start(t, b.addr)
	}()
	out, err := sendAll(t, p, 100)
	if err != nil || len(out) != 100 || len(stored.bodies()) != 100 {
		t.Fatalf("%d outcomes, %d stored, %v", len(out), len(stored.bodies()), err)
	}
}

func TestFrozenBrokerIsNoticedAndTheNextOneAsked(t *testing.T) {
	var stored storeLog
	seen := make(chan struct{}, 1)
	frozen := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		_, err := s.Receive()
		seen <- struct{}{}
		<-ctx.Done()
		return err
	}}).start(t, "")
	net := newProxy(t, frozen.addr)
	healthy := (&fakeBroker{publishStream: stored.answerAll}).start(t, "")
	c := newClient(t, client.Config{Addrs: []string{net.addr, healthy.addr}, PingAfter: 50 * time.Millisecond, PingTimeout: 50 * time.Millisecond, RetryMin: time.Millisecond})
	p := c.NewPublisher(client.PublisherConfig{})
	go func() {
		<-seen
		net.freeze()
	}()
	out, err := sendAll(t, p, 10)
	if err != nil || len(out) != 10 || len(stored.bodies()) != 10 {
		t.Fatalf("%d outcomes, %d stored, %v", len(out), len(stored.bodies()), err)
	}
}

func TestPublisherGivesUpAfterItsPatience(t *testing.T) {
	p := newClient(t, client.Config{Addrs: []string{closedPort(t)}, Patience: 20 * time.Millisecond, RetryMin: time.Millisecond}).NewPublisher(client.PublisherConfig{})
	out, err := sendAll(t, p, 3)
	if !errors.Is(err, client.ErrUnreachable) || len(out) != 3 || !errors.Is(out[0].err, client.ErrUnreachable) {
		t.Fatalf("got %+v, %v", out, err)
	}
	if err := p.Send(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}, nil); !errors.Is(err, client.ErrUnreachable) {
		t.Fatalf("send after the end: %v", err)
	}
}

func TestFullWindowBlocksSendUntilItsContextEnds(t *testing.T) {
	p := newClient(t, client.Config{}).NewPublisher(client.PublisherConfig{Window: 4})
	for range 4 {
		if err := p.Send(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}, func(client.Published, error) {}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() {
		blocked <- p.Send(ctx, client.Message{Topic: "t"}, client.PublishOptions{}, func(client.Published, error) {})
	}()
	cancel()
	if err := await(t, "blocked send", blocked); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestCancelledRunGivesEveryMessageAnAnswer(t *testing.T) {
	got := make(chan struct{})
	b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		_, err := s.Receive()
		close(got)
		<-ctx.Done()
		return err
	}}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}}).NewPublisher(client.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	answered := make(chan error, 1)
	if err := p.Send(ctx, client.Message{Topic: "t"}, client.PublishOptions{}, func(_ client.Published, err error) { answered <- err }); err != nil {
		t.Fatal(err)
	}
	await(t, "first frame", got)
	cancel()
	if err := await(t, "run", ran); !errors.Is(err, client.ErrClosed) {
		t.Fatalf("run: %v", err)
	}
	if err := await(t, "answer", answered); !errors.Is(err, client.ErrClosed) {
		t.Fatalf("answer: %v", err)
	}
}

func TestCancelledRunLeavesAnIdleStream(t *testing.T) {
	var stored storeLog
	b := (&fakeBroker{publishStream: stored.answerAll}).start(t, "")
	p := newClient(t, client.Config{Addrs: []string{b.addr}}).NewPublisher(client.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	if _, err := p.Publish(ctx, client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := await(t, "run", ran); err != nil {
		t.Fatalf("run: %v", err)
	}
}
