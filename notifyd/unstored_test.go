package notifyd_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// memoryTopic declares a topic whose messages are never stored, and its groups.
func (s *stage) memoryTopic(addr, topic string, subs ...*notifyv1.Subscription) {
	s.t.Helper()
	code, answer := s.post(addr, "Admin/CreateTopic", fmt.Sprintf(`{"topic":{"name":%q,"durability":"DURABILITY_MEMORY"}}`, topic))
	if code != http.StatusOK || fmt.Sprint(answer["topic"].(map[string]any)["mirrored"]) != "false" {
		s.t.Fatalf("CreateTopic: %d %v", code, answer)
	}
	for _, sub := range subs {
		sub.Topic = topic
		s.add(addr, sub)
	}
}

func TestAMemoryTopicIsPushedAndRetriedAndNeverStored(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, func(c *notifyd.Config) {
		c.RetryMin, c.RetryMax = notifyd.Duration(100*time.Millisecond), notifyd.Duration(100*time.Millisecond)
	})
	c := s.client(addr)
	s.memoryTopic(addr, "ticks", &notifyv1.Subscription{Group: "works"}, &notifyv1.Subscription{Group: "nacks"}, &notifyv1.Subscription{Group: "rejects"},
		&notifyv1.Subscription{Group: "sleeps", Delivery: &notifyv1.DeliverySettings{AckWaitMs: 300}}, &notifyv1.Subscription{Group: "all", Mode: notifyv1.Mode_MODE_BROADCAST}, &notifyv1.Subscription{Group: "later"})
	s.memoryTopic(addr, "bad", &notifyv1.Subscription{Group: "fails", Delivery: &notifyv1.DeliverySettings{MaxAttempts: 2}})
	for i := range 8 { // an INSERT that was deleted since would show too
		s.exec(fmt.Sprintf("CREATE TRIGGER t_%02d BEFORE INSERT ON message_%02d FOR EACH ROW SIGNAL SQLSTATE '45000'", i, i))
	}
	last := func(d client.Delivery) bool { return d.Attempt > 1 }
	works := s.consume(c, "works", nil)
	nacks := s.consume(c, "nacks", func(d client.Delivery) error {
		if last(d) {
			return nil
		}
		return client.RetryAfter(50*time.Millisecond, errors.New("later"))
	})
	sleeps := s.consume(c, "sleeps", func(d client.Delivery) error {
		if last(d) {
			return nil
		}
		return client.ErrUnsettled
	})
	fails := s.consume(c, "fails", func(client.Delivery) error { return errors.New("no") })
	rejects := s.consume(c, "rejects", func(client.Delivery) error { return client.Reject(errors.New("no")) })
	one, two := s.consume(c, "all", nil), s.consume(c, "all", nil)
	s.until("all are attached", func() bool { return s.instances(addr, "all") == 2 && s.instances(addr, "works") == 1 })
	const n = 20
	ms := make([]client.Message, n-1)
	for i := range ms {
		ms[i] = client.Message{Topic: "ticks", Key: "k", Body: []byte(fmt.Sprint(i))}
	}
	results, err := c.PublishBatch(t.Context(), ms)
	if err != nil || !results[0].InMemory {
		t.Fatalf("PublishBatch = %+v, %v", results, err)
	}
	if p, err := c.Publish(t.Context(), client.Message{Topic: "ticks"}, client.PublishOptions{}); err != nil || !p.InMemory {
		t.Fatalf("Publish = %+v, %v", p, err)
	}
	s.publish(c, client.Message{Topic: "bad"})
	s.until("every group has them", func() bool {
		return works.count() == n && nacks.count() == n && sleeps.count() == n && rejects.count() == n && one.count() == n && two.count() == n
	})
	later := s.consume(c, "later", nil)
	s.until("one that came later has them", func() bool { return later.count() == n })
	dropped := `# HELP notify_memory_dropped_total Deliveries of memory topics that ended without an acknowledgement.
# TYPE notify_memory_dropped_total counter
notify_memory_dropped_total{group="fails",reason="max_attempts",topic="bad"} 1
notify_memory_dropped_total{group="rejects",reason="rejected",topic="ticks"} 20
# HELP notify_memory_messages Messages of memory topics that are held for their groups.
# TYPE notify_memory_messages gauge
notify_memory_messages 0
`
	s.until("nothing is held, and what was out of attempts is counted", func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader(dropped), "notify_memory_dropped_total", "notify_memory_messages") == nil
	})
	if fails.count() != 1 || fails.last.Attempt != 2 {
		t.Errorf("%d messages failed, the last at attempt %d", fails.count(), fails.last.Attempt)
	}
	if !s.empty() {
		t.Error("there are rows in the store")
	}
}

func TestAMemoryTopicIsBoundedAndRefusesWhatItCannotKeep(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.UnstoredMessages, c.UnstoredMemory, c.MaxBodyBytes = 11, 76_000, 10_000 })
	s.memoryTopic(addr, "ticks", &notifyv1.Subscription{Group: "g"})
	s.subscribe(s.client(addr), "orders", "g2")
	m, ctx := raw(addr), t.Context()
	large := publishOf("ticks", "", strings.Repeat("x", 9_000))
	for range 8 {
		s.want("publish", outcome(m.Publish(ctx, large)), "")
	}
	s.want("publish above the bound of bytes", outcome(m.Publish(ctx, large)), "OVERLOADED")
	for range 3 {
		s.want("publish", outcome(m.Publish(ctx, publishOf("ticks", "", "x"))), "")
	}
	s.want("publish above the bound of messages", outcome(m.Publish(ctx, publishOf("ticks", "", "4"))), "OVERLOADED")
	s.want("publish of a durable topic", outcome(m.Publish(ctx, publishOf("orders", "", "x"))), "")
	r := s.consume(s.client(addr), "g", nil)
	s.until("there is room again", func() bool { return r.count() == 11 && outcome(m.Publish(ctx, publishOf("ticks", "", "4"))) == "" })

	id := uuid.NewString()
	own := publishOf("ticks", id, "x")
	own.Msg.Message.Id = id
	s.until("its own id is no key, and a repeat no duplicate", func() bool {
		res, err := m.Publish(ctx, own)
		return err == nil && !res.Msg.Duplicate && res.Msg.InMemory
	})
	for body, want := range map[string]string{
		`Messaging/Publish {"idempotencyKey":"k","message":{"topic":"ticks"}}`:          "topic: ticks is in memory only and takes no idempotency keys",
		`Messaging/Publish {"message":{"topic":"ticks","delayMs":1000}}`:                "topic: ticks is in memory only and takes no delayed messages",
		`Messaging/Prepare {"producerGroup":"shop","message":{"topic":"ticks"}}`:        "topic: ticks is in memory only and takes no halves",
		`Admin/UpdateTopic {"name":"ticks","durability":"DURABILITY_DURABLE"}`:          "durability: a topic is in memory for good, or never",
		`Admin/UpdateTopic {"name":"orders","durability":"DURABILITY_MEMORY"}`:          "durability: a topic is in memory for good, or never",
		`Admin/CreateTopic {"topic":{"name":"x","durability":"DURABILITY_REPLICATED"}}`: "no semi-synchronous replication",
	} {
		method, text, _ := strings.Cut(body, " ")
		if code, answer := s.post(addr, method, text); code == http.StatusOK || !strings.Contains(fmt.Sprint(answer["message"]), want) {
			t.Errorf("%s: %d %v, want %q", body, code, answer, want)
		}
	}
	insertOutbox(t, s.db, "ticks", "", "row")
	s.until("an outbox row is put aside", func() bool {
		return s.count("SELECT COUNT(*) FROM outbox_rejected WHERE reason LIKE '%ticks is in memory only and takes no outbox rows%'") == 1
	})
}

// A lockedBuffer takes a log.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestAStoppingBrokerGivesItsMemoryAwayAndSaysWhatIsLost(t *testing.T) {
	s := newStage(t)
	log := &lockedBuffer{}
	addr, stop := s.brokerWith(notifyd.Deps{Logger: slog.New(slog.NewTextHandler(log, nil))}, nil)
	c := s.client(addr)
	s.memoryTopic(addr, "ticks", &notifyv1.Subscription{Group: "slow"})
	s.memoryTopic(addr, "lost", &notifyv1.Subscription{Group: "away"})
	s.memoryTopic(addr, "nobody")
	begun, finish := make(chan struct{}, 10), make(chan struct{})
	r := s.consume(c, "slow", func(client.Delivery) error {
		begun <- struct{}{}
		<-finish
		return nil
	})
	s.until("it is attached", func() bool { return s.instances(addr, "slow") == 1 })
	m := raw(addr)
	for range 2 {
		s.want("publish", outcome(m.Publish(t.Context(), publishOf("ticks", "", "x"))), "")
		s.want("publish", outcome(m.Publish(t.Context(), publishOf("lost", "", "x"))), "")
	}
	<-begun
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	s.until("no more is taken", func() bool { return outcome(m.Publish(t.Context(), publishOf("nobody", "", "x"))) == "UNAVAILABLE" })
	close(finish)
	<-stopped
	log.mu.Lock()
	defer log.mu.Unlock()
	if text := log.String(); r.count() != 2 || !strings.Contains(text, "messages of memory topics are lost") || !strings.Contains(text, "messages=2") {
		t.Errorf("%d delivered; the log says %s", r.count(), text)
	}
}

// Nobody takes anything of the group; its messages are in nobody's way once they are too old.
func TestAMemoryTopicLetsGoOfWhatExpiresWhileItsGroupIsAway(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, func(c *notifyd.Config) { c.UnstoredMessages = 3 })
	s.memoryTopic(addr, "ticks", &notifyv1.Subscription{Group: "away"}, &notifyv1.Subscription{Group: "old", Delivery: &notifyv1.DeliverySettings{MaxAgeMs: 200}})
	m, ctx := raw(addr), t.Context()
	for range 3 {
		p := publishOf("ticks", "", "x")
		p.Msg.Message.TtlMs = 300
		s.want("publish", outcome(m.Publish(ctx, p)), "")
	}
	if n := s.inMemory(addr, "away"); n != "3" {
		t.Errorf("%s messages are said to be held for the group, want 3", n)
	}
	dropped := `# HELP notify_memory_dropped_total Deliveries of memory topics that ended without an acknowledgement.
# TYPE notify_memory_dropped_total counter
notify_memory_dropped_total{group="away",reason="expired",topic="ticks"} 3
notify_memory_dropped_total{group="old",reason="expired",topic="ticks"} 3
`
	s.until("they are dropped", func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader(dropped), "notify_memory_dropped_total") == nil
	})
	s.want("publish into the room that they have left", outcome(m.Publish(ctx, publishOf("ticks", "", "x"))), "")
}

// inMemory is how many messages a broker says it holds for a group.
func (s *stage) inMemory(addr, group string) string {
	_, answer := s.post(addr, "Admin/GetGroup", fmt.Sprintf(`{"name":%q}`, group))
	g, _ := answer["group"].(map[string]any)
	return fmt.Sprint(g["inMemory"])
}
