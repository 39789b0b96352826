package limits

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
)

const patience = 60 * time.Second

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

func TestRealLimitsAreReadAndFollowed(t *testing.T) {
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	limit := "4000"
	if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "x.orders"); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Brokers: server.Addrs(), TopicPrefix: "x."}, slog.New(slog.DiscardHandler))
	r.every = 10 * time.Millisecond
	large := Message{Topic: "orders", Body: make([]byte, 4000)}
	if _, _, ok := r.Fits(large); !ok {
		t.Error("refused before anything is known")
	}
	go r.Run(t.Context())
	fits := func(want bool) func() error {
		return func() error {
			if size, limit, ok := r.Fits(large); ok != want {
				return fmt.Errorf("size %d, limit %d, fits %t", size, limit, ok)
			}
			return nil
		}
	}
	eventually(t, fits(false))
	if _, _, ok := r.Fits(Message{Topic: "orders", Body: make([]byte, 3000)}); !ok {
		t.Error("a message that the topic takes is refused")
	}
	if _, _, ok := r.Fits(Message{Topic: "other", Body: make([]byte, 1<<20)}); !ok {
		t.Error("a message of a topic that Kafka does not have is refused")
	}
	limit = "8000"
	if res, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, "x.orders"); err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	eventually(t, fits(true))
	limit = "4000"
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, "x.orders"); err != nil {
		t.Fatal(err)
	}
	eventually(t, fits(false))
	server.Close()
	if _, err := r.read(); err == nil {
		t.Fatal("Kafka is still there")
	}
	if err := fits(false)(); err != nil {
		t.Errorf("with Kafka away the last known limit counts: %v", err)
	}
}

// What is let through is never larger in the mirror than was counted.
func TestNoRecordIsLargerThanWasCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Message{
			Topic: strings.Repeat("t", rapid.IntRange(1, 127).Draw(t, "topic")), Key: strings.Repeat("k", rapid.IntRange(0, 255).Draw(t, "key")),
			Body:    make([]byte, rapid.IntRange(0, 5000).Draw(t, "body")),
			Headers: rapid.MapOfN(rapid.StringMatching(`[a-m]{1,20}`), rapid.StringN(0, 50, 200), 0, 64).Draw(t, "headers"),
		}
		rec := record.Encode(record.Message{
			ID: uuid.New(), Topic: m.Topic, Key: []byte(m.Key), Headers: record.FromMap(m.Headers), Body: m.Body,
			BornAt: time.Now(), CommitTime: time.Now(), Source: record.Source{Store: uuid.NewString(), Generation: rapid.Uint64().Draw(t, "generation")}, Seq: rapid.Uint64().Draw(t, "seq"),
		})
		real := record.BatchOverhead + record.Size(rec)
		if counted := sizeOf(m); counted < real {
			t.Fatalf("counted %d, takes %d", counted, real)
		}
		r := New(Config{}, nil)
		r.byName.Store(&map[string]int{m.Topic: real - 1})
		if size, _, ok := r.Fits(m); ok {
			t.Fatalf("a record of %d bytes is let through at %d, counted as %d", real, real-1, size)
		}
	})
}
