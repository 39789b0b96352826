package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

func TestBatchAnswersEachMessageInItsPlace(t *testing.T) {
	var l storeLog
	b := (&fakeBroker{publishStream: func(_ context.Context, s *pubStream) error {
		for {
			req, err := s.Receive()
			if err != nil {
				return nil
			}
			l.add(req.GetPublishes()...)
			resp := &notifyv1.PublishStreamResponse{}
			for _, r := range req.GetPublishes() {
				res := &notifyv1.PublishResult{Id: r.GetMessage().GetId()}
				if string(r.GetMessage().GetBody()) == "3" {
					res = &notifyv1.PublishResult{Error: &notifyv1.ErrorDetail{Reason: client.ReasonTooLarge, Message: "too large"}}
				}
				resp.Results = append(resp.Results, res)
			}
			if err := s.Send(resp); err != nil {
				return err
			}
		}
	}}).start(t, "")
	c := fastClient(t, b.addr)
	var ms []client.Message
	for i := range 10 {
		ms = append(ms, client.Message{Topic: "t", Body: fmt.Append(nil, i)})
	}
	ms[5].Key = "\xff" // refused here
	for range 2 {      // the connection is used again
		results, err := c.PublishBatch(t.Context(), ms)
		var e *client.Error
		if !errors.As(err, &e) || e.Reason != client.ReasonTooLarge || len(results) != len(ms) {
			t.Fatalf("%d results, %v", len(results), err)
		}
		for i, r := range results {
			switch i {
			case 3, 5:
				if !errors.As(r.Err, &e) || r.ID == "" {
					t.Errorf("%d: got %+v", i, r)
				}
			default:
				if r.Err != nil || r.ID == "" {
					t.Errorf("%d: got %+v", i, r)
				}
			}
		}
		sent := 0
		for i := range ms {
			if i == 5 {
				continue
			}
			if r := l.all[sent]; string(r.GetMessage().GetBody()) != fmt.Sprint(i) || r.GetMessage().GetId() != results[i].ID || r.GetIdempotencyKey() != results[i].ID {
				t.Errorf("%d: broker got %v", i, r)
			}
			sent++
		}
		l.all = nil
	}
	if results, err := c.PublishBatch(t.Context(), nil); results != nil || err != nil {
		t.Errorf("empty batch: %v, %v", results, err)
	}
}

func TestBatchWhoseContextEndsTellsWhatMayBeStored(t *testing.T) {
	got := make(chan struct{})
	b := (&fakeBroker{publishStream: func(ctx context.Context, s *pubStream) error {
		if _, err := s.Receive(); err != nil {
			return err
		}
		close(got)
		<-ctx.Done()
		return ctx.Err()
	}}).start(t, "")
	p := fastClient(t, b.addr).NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(t.Context()) }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-got
		cancel()
	}()
	results, err := p.PublishBatch(ctx, []client.Message{{Topic: "t"}})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonResultUnknown || !errors.Is(err, context.Canceled) || results[0].ID == "" {
		t.Errorf("got %+v, %v", results, err)
	}
	b.stop()
	p.Close()
	again := &fakeBroker{publishStream: new(storeLog).answerAll}
	again.start(t, b.addr)
	if err := await(t, "publisher's end", ran); err != nil {
		t.Error(err)
	}
}
