package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/stage"
	"notifymirror/mirror/record"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/stream"
)

// One message goes all the way, whichever door it came in by: to two groups, out of the
// store again, and into the mirror, where three readers find the same.
func TestMessageGoesAllTheWay(t *testing.T) {
	s := stage.New(t)
	broker := s.Notifyd("a").Start()
	s.AwaitShards(30*time.Second, broker)
	s.Canald("one").Start()
	s.Notify(broker, "topic", "create", "orders")
	c := s.Client(broker)
	billing, shipping := s.Listen(c, "billing", "orders"), s.Listen(c, "shipping", "orders")

	sent := map[string]client.Message{}
	remember := func(id string, m client.Message) { m.ID = id; sent[id] = m }
	m := client.Message{Topic: "orders", Key: "42", Headers: map[string]string{"source": "shop", "note": "Grüße"}, Body: []byte("by JSON\n")}
	remember(publishByJSON(t, broker, m), m)
	m = client.Message{Topic: "orders", Key: "42", Body: []byte{0, 0xff, 'g'}}
	remember(publishByGRPC(t, broker, m), m)
	m = client.Message{Topic: "orders", Headers: map[string]string{"h": ""}}
	remember(publishByStream(t, c, m), m)
	m = client.Message{Topic: "orders", Key: "clé", Headers: map[string]string{"a": "b"}, Body: []byte("by the command")}
	remember(strings.TrimSpace(s.Notify(broker, "publish", "orders", string(m.Body), "-k", m.Key, "-H", "a=b")), m)
	if len(sent) != 4 {
		t.Fatalf("ids %v", sent)
	}

	for _, g := range []*stage.Group{billing, shipping} {
		for id, want := range sent {
			g.AwaitAll([]string{id}, 30*time.Second)
			got, times := g.Got(id)
			if times != 1 || got.BornAt.IsZero() {
				t.Errorf("group %s got %s %d times, born at %s", g.Name, id, times, got.BornAt)
			}
			sameMessage(t, "group "+g.Name, got, want)
		}
	}
	s.AwaitEmpty(30 * time.Second)

	r := s.Mirror("orders")
	r.Await(len(sent), 30*time.Second)
	r.Rest()
	if len(r.Records) != len(sent) {
		t.Errorf("%d records of %d messages", len(r.Records), len(sent))
	}
	partition := map[string]int32{}
	for _, rec := range r.Records {
		sameMessage(t, "franz-go", messageOf(rec), sent[stage.Header(rec, "notify-id")])
		if p, known := partition[string(rec.Key)]; known && p != rec.Partition {
			t.Errorf("key %q is in partitions %d and %d", rec.Key, p, rec.Partition)
		}
		partition[string(rec.Key)] = rec.Partition
	}
	for id, got := range readByStream(t, s, "orders", len(sent)) {
		sameMessage(t, "stream", got, sent[id])
	}
	lines := strings.Split(strings.TrimSpace(s.Notify(broker, "mirror", "tail", "orders", "--prefix", s.Prefix, "--from", "oldest", "--count", "4", "-o", "jsonl")), "\n")
	if len(lines) != len(sent) {
		t.Errorf("notify mirror tail printed %q", lines)
	}
	for _, line := range lines {
		got := parseTail(t, line)
		sameMessage(t, "notify mirror tail", got, sent[got.ID])
	}
}

// publishByJSON is what curl does.
func publishByJSON(t *testing.T, broker *stage.Program, m client.Message) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"message": map[string]any{"topic": m.Topic, "key": m.Key, "headers": m.Headers, "text": string(m.Body)}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post("http://"+broker.Addr+"/notify.v1.Messaging/Publish", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var published struct{ ID string }
	if err := json.Unmarshal(text, &published); err != nil || published.ID == "" {
		t.Fatalf("%s: %s", answer.Status, text)
	}
	return published.ID
}

func publishByGRPC(t *testing.T, broker *stage.Program, m client.Message) string {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	messaging := notifyv1connect.NewMessagingClient(&http.Client{Transport: transport}, "http://"+broker.Addr, connect.WithGRPC())
	r, err := messaging.Publish(t.Context(), connect.NewRequest(&notifyv1.PublishRequest{
		Message: &notifyv1.Message{Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body}}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg.GetId()
}

func publishByStream(t *testing.T, c *client.Client, m client.Message) string {
	t.Helper()
	p := c.NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(t.Context()) }()
	r, err := p.Publish(t.Context(), m, client.PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func readByStream(t *testing.T, s *stage.Stage, topic string, n int) map[string]client.Message {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	c, err := stream.New(stream.Config{Brokers: []string{s.Kafka}, Topics: []string{topic}, Prefix: s.Prefix, Group: s.Cluster + "-reader"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]client.Message{}
	for r, err := range c.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		out[r.ID.String()] = client.Message{ID: r.ID.String(), Topic: r.Topic, Key: string(r.Key), Headers: record.ToMap(r.Headers), Body: r.Body}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("stream.Consumer handed out %d records of %d", len(out), n)
	return nil
}

// messageOf reads a record by its documented layout.
func messageOf(rec *kgo.Record) client.Message {
	m := client.Message{ID: stage.Header(rec, "notify-id"), Topic: stage.Header(rec, "notify-topic"), Body: rec.Value}
	if string(rec.Key) != m.ID {
		m.Key = string(rec.Key)
	}
	for _, h := range rec.Headers {
		if !strings.HasPrefix(h.Key, "notify-") {
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			m.Headers[h.Key] = string(h.Value)
		}
	}
	return m
}

func parseTail(t *testing.T, line string) client.Message {
	t.Helper()
	var r struct {
		ID, Topic, Key string
		Headers        map[string]string
		Body           *string
		BodyBase64     []byte `json:"body_base64"`
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	m := client.Message{ID: r.ID, Topic: r.Topic, Key: r.Key, Headers: r.Headers, Body: r.BodyBase64}
	if r.Body != nil {
		m.Body = []byte(*r.Body)
	}
	return m
}

func sameMessage(t *testing.T, reader string, got, want client.Message) {
	t.Helper()
	text := func(m client.Message) string {
		return fmt.Sprintf("id %s topic %s key %q headers %q body %q", m.ID, m.Topic, m.Key, m.Headers, m.Body)
	}
	if text(got) != text(want) {
		t.Errorf("%s\n got %s\nwant %s", reader, text(got), text(want))
	}
}
