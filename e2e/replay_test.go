package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/notifyd/client"
)

// A group has lost its data. The range is pushed to it again from the mirror; the command is
// killed in the middle, and then the broker. The same command goes on each time, until the group
// has everything. Nothing is stored again, and so nothing mirrored.
func TestAGroupThatLostItsDataIsRebuiltFromTheMirror(t *testing.T) {
	const n = 600
	s := stage.New(t)
	broker := s.Notifyd("a").Start()
	s.Canald("m").Start()
	c := s.Client(broker)
	s.Subscribe(c, "books", "orders")
	messages := make([]client.Message, n)
	for i := range messages {
		messages[i] = client.Message{Topic: "orders", Key: fmt.Sprint("k", i%50), Body: fmt.Append(nil, i)}
	}
	results, err := c.PublishBatch(t.Context(), messages)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, n)
	for i, r := range results {
		ids[i] = r.ID
	}
	mirror := s.Mirror("orders")
	mirror.Await(n, time.Minute)
	books := newBooks(s, c)
	stage.Eventually(t, time.Minute, "the group has everything", books.has(n, 0))
	books.lose()

	replay := func() *stage.Program {
		p := stage.NewProgram(t, "notify", "replay", "orders", "--group", "books", "--from", "oldest", "--rate", "200",
			"--prefix", s.Prefix, "--server", broker.Addr, "--kafka", s.Kafka)
		p.Launch()
		return p
	}
	first := replay()
	stage.Eventually(t, time.Minute, "a part is replayed", books.has(100, 100))
	first.Kill()
	second := replay()
	stage.Eventually(t, time.Minute, "more is replayed", books.has(250, 250))
	broker.Kill()
	broker.Start()
	second.Says("rejected 0, failed 0, beside what an earlier run of this replay has done", time.Minute)
	stage.Eventually(t, time.Minute, "the group has everything again", books.has(n, n))
	for _, id := range ids {
		if books.replayed[id] == 0 {
			t.Fatalf("message %s was not replayed", id)
		}
	}
	again := 0
	for _, times := range books.replayed {
		again += times - 1
	}
	t.Logf("%d of %d messages were replayed more than once, %d deliveries too many", again, n, again)
	if mirror.Rest(); len(mirror.Records) != n {
		t.Errorf("%d records are in the mirror, want %d", len(mirror.Records), n)
	}
}

// books is an instance of a group that can lose what it knows.
type books struct {
	mu             sync.Mutex
	seen, replayed map[string]int
}

func newBooks(s *stage.Stage, c *client.Client) *books {
	b := &books{}
	b.lose()
	s.Consume(c, client.ConsumerConfig{Group: "books", Refresh: time.Second, Handler: b.handle})
	return b
}

func (b *books) handle(_ context.Context, d client.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[d.ID]++
	if d.Replayed {
		b.replayed[d.ID]++
	}
	return nil
}

func (b *books) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.replayed = map[string]int{}, map[string]int{}
}

// has tells whether it knows so many messages, so many of them by a replay.
func (b *books) has(seen, replayed int) func() error {
	return func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.seen) < seen || len(b.replayed) < replayed {
			return fmt.Errorf("%d messages, %d replayed", len(b.seen), len(b.replayed))
		}
		return nil
	}
}
