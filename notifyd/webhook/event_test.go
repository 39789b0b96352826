package webhook

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"pgregory.net/rapid"
)

// received sends an event over a real connection and returns what the server got.
func received(t interface{ Fatal(...any) }, e Event, body []byte) (h http.Header, got []byte) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h = r.Header
		got, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	req, err := http.NewRequest(http.MethodPost, server.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = e.Header()
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return h, got
}

func TestThePublicReaderOfCloudEventsTakesEveryMessage(t *testing.T) {
	at := time.UnixMicro(1795967921843576)
	rapid.Check(t, func(t *rapid.T) {
		headers := map[string]string{}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			name := rapid.SampledFrom([]string{"ce-type", "Ce-Subject", "ce-source", "ce-id", "ce-specversion", "ce-time", "ce-my ext", "ce-tenant",
				"content-type", "traceparent", "Host", "Content-Length", "Transfer-Encoding", "x y", "größe", "a\r\nb"}).Draw(t, "name")
			headers[name] = rapid.SampledFrom([]string{"", "x", "text/plain", "a b", "ü\"%", "1\r\nX-Evil: 2", "2026-01-02T03:04:05Z", "\x00\x7f"}).Draw(t, "value")
		}
		e := Event{ID: "0199-id", Topic: "orders.v1", Key: rapid.SampledFrom([]string{"", "42", "ü k"}).Draw(t, "key"), Group: "g", Headers: headers, BornAt: at, Attempt: 3}
		body := []byte(`{"a": 1}`)
		h, got := received(t, e, body)
		if !bytes.Equal(got, body) || h.Get("X-Evil") != "" {
			t.Fatalf("received %q with %v", got, h)
		}
		event, err := binding.ToEvent(context.Background(), cehttp.NewMessage(h, io.NopCloser(bytes.NewReader(got))))
		if err != nil {
			t.Fatalf("%v: %v", h, err)
		}
		if err := event.Validate(); err != nil {
			t.Fatalf("%v: %v", h, err)
		}
		if event.ID() != e.ID || event.SpecVersion() != "1.0" || !bytes.Equal(event.Data(), body) {
			t.Errorf("event %v", event)
		}
		for name, value := range headers { // nothing of the message is lost
			plain, err := url.PathUnescape(h.Get(HeaderPrefix + escape(name, tokenByte)))
			asIs := h.Get(name)
			if decoded, _ := url.PathUnescape(asIs); name != "Host" && (asIs == value || decoded == value) {
				continue
			}
			if err != nil || plain != value {
				t.Errorf("header %q: %q arrived as %q", name, value, plain)
			}
		}
	})
}

func TestAttributesComeFromTheMessage(t *testing.T) {
	e := Event{ID: "id-1", Topic: "orders", Key: "a b", Group: "billing", BornAt: time.UnixMicro(1795967921843576), Attempt: 2,
		Headers: map[string]string{"Content-Type": "application/json", "ce-type": "com.shop.order", "trace id": "ü"}}
	h := e.Header()
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "id-1", "ce-source": "/notify/topics/orders", "ce-type": "com.shop.order", "ce-partitionkey": "a%20b",
		"ce-time": "2026-11-29T15:58:41.843576Z", "content-type": "application/json", "notify-group": "billing", "notify-topic": "orders", "notify-attempt": "2",
		"notify-header-trace%20id": "%C3%BC",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := (Event{Topic: "orders"}).Header(); got.Get("content-type") != "application/octet-stream" || got.Values("ce-partitionkey") != nil {
		t.Errorf("without key and headers: %v", got)
	}
	for name := range h {
		if strings.ContainsAny(name, " \r\n") {
			t.Errorf("header name %q", name)
		}
	}
}
