package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

func TestPublishCarriesTheMessageAndReturnsItsID(t *testing.T) {
	var got *notifyv1.PublishRequest
	b := (&fakeBroker{publish: func(_ context.Context, r *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
		got = r
		return &notifyv1.PublishResponse{Id: "the-id", Duplicate: true}, nil
	}}).start(t, "")
	c := newClient(t, client.Config{Addrs: []string{b.addr}})
	r, err := c.Publish(t.Context(), client.Message{Topic: "orders", Key: "42", Headers: map[string]string{"a": "b"}, Body: []byte("hi")}, client.PublishOptions{IdempotencyKey: "k"})
	if err != nil || r.ID != "the-id" || !r.Duplicate {
		t.Fatalf("got %+v, %v", r, err)
	}
	m := got.GetMessage()
	if m.GetTopic() != "orders" || m.GetKey() != "42" || m.GetHeaders()["a"] != "b" || string(m.GetBody()) != "hi" || got.GetIdempotencyKey() != "k" {
		t.Fatalf("broker got %v", got)
	}
}

func TestRefusalComesBackTyped(t *testing.T) {
	calls := 0
	b := (&fakeBroker{publish: func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
		calls++
		return nil, refusal(connect.CodeInvalidArgument, &notifyv1.ErrorDetail{Reason: client.ReasonTooLarge, Message: "key has 300 bytes, at most 255", Field: "key", Size: 300, Limit: 255})
	}}).start(t, "")
	c := newClient(t, client.Config{Addrs: []string{b.addr}})
	_, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{})
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("not a *client.Error: %v", err)
	}
	if e.Reason != client.ReasonTooLarge || e.Field != "key" || e.Size != 300 || e.Limit != 255 || e.Retryable || e.Error() != "key has 300 bytes, at most 255" || e.Code() != connect.CodeInvalidArgument {
		t.Fatalf("got %+v", e)
	}
	if calls != 1 {
		t.Fatalf("a permanent refusal was tried %d times", calls)
	}
}

func TestRetryableRefusalIsTriedAgain(t *testing.T) {
	calls := 0
	b := (&fakeBroker{publish: func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
		if calls++; calls < 3 {
			return nil, refusal(connect.CodeResourceExhausted, &notifyv1.ErrorDetail{Reason: client.ReasonOverloaded, Message: "overloaded", Retryable: true})
		}
		return &notifyv1.PublishResponse{Id: "x"}, nil
	}}).start(t, "")
	c := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond})
	if r, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil || r.ID != "x" || calls != 3 {
		t.Fatalf("got %+v, %v after %d calls", r, err, calls)
	}
}

func TestLostAnswerIsUnknownUnlessAnIdempotencyKeyAllowsARetry(t *testing.T) {
	for _, idempotent := range []bool{false, true} {
		var keys []string
		b := (&fakeBroker{publish: func(_ context.Context, r *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
			keys = append(keys, r.GetIdempotencyKey())
			if len(keys) == 1 {
				panic(http.ErrAbortHandler) // the connection's stream is reset without an answer
			}
			return &notifyv1.PublishResponse{Id: r.GetMessage().GetId(), Duplicate: true}, nil
		}}).start(t, "")
		c := newClient(t, client.Config{Addrs: []string{b.addr}, RetryMin: time.Millisecond})
		r, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{NoDedup: !idempotent})
		var e *client.Error
		switch {
		case idempotent:
			if err != nil || !r.Duplicate || len(keys) != 2 || keys[0] != keys[1] || r.ID != keys[0] {
				t.Errorf("idempotent: got %+v, %v, keys %q", r, err, keys)
			}
		case !errors.As(err, &e) || e.Reason != client.ReasonResultUnknown || len(keys) != 1:
			t.Errorf("plain: got %+v, %v, %d calls", r, err, len(keys))
		}
	}
}

func TestNextAddressIsTriedWhenOneCannotBeReached(t *testing.T) {
	b := (&fakeBroker{publish: func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
		return &notifyv1.PublishResponse{Id: "x"}, nil
	}}).start(t, "")
	c := newClient(t, client.Config{Addrs: []string{closedPort(t), b.addr}})
	if _, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestUnreachableBrokerIsTold(t *testing.T) {
	addr := closedPort(t)
	c := newClient(t, client.Config{Addrs: []string{addr}, Patience: time.Millisecond, RetryMin: time.Millisecond})
	_, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{})
	var e *client.Error
	if !errors.Is(err, client.ErrUnreachable) || !errors.As(err, &e) || e.Addr != addr || !e.Retryable {
		t.Fatalf("got %#v", err)
	}
}

func TestTextThatIsNotUTF8IsRefusedHere(t *testing.T) {
	c := newClient(t, client.Config{Addrs: []string{closedPort(t)}})
	for field, m := range map[string]client.Message{
		"key":     {Topic: "t", Key: "\xff"},
		"topic":   {Topic: "\xff"},
		"headers": {Topic: "t", Headers: map[string]string{"a": "\xff"}},
	} {
		_, err := c.Publish(t.Context(), m, client.PublishOptions{})
		var e *client.Error
		if !errors.As(err, &e) || e.Reason != client.ReasonInvalid || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestAddressWithoutPortIsRefused(t *testing.T) {
	if _, err := client.New(client.Config{Addrs: []string{"localhost"}}); err == nil {
		t.Fatal("accepted")
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
