package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// Client is a client of the given brokers that tries for as long as the test runs.
func (s *Stage) Client(brokers ...*Program) *client.Client {
	s.t.Helper()
	addrs := make([]string, len(brokers))
	for i, b := range brokers {
		addrs[i] = b.Addr
	}
	c, err := client.New(client.Config{Addrs: addrs, Patience: -1, RetryMax: 500 * time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// Running starts a broker and a canald, which has more settings, and returns them with a client, once the broker
// owns every shard.
func (s *Stage) Running(more ...string) (broker, canald *Program, c *client.Client) {
	s.t.Helper()
	broker = s.Notifyd("a").Start()
	s.AwaitShards(time.Minute, broker)
	return broker, s.Canald("mirror", more...).Start(), s.Client(broker)
}

// Topic declares a topic.
func (s *Stage) Topic(c *client.Client, name string) {
	s.t.Helper()
	err := c.Admin(s.t.Context(), func(admin notifyv1connect.AdminClient) error {
		_, err := admin.CreateTopic(s.t.Context(), connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: name}}))
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Subscribe declares a topic and a group that gets it.
func (s *Stage) Subscribe(c *client.Client, group, topic string) {
	s.t.Helper()
	s.Topic(c, topic)
	s.subscribe(c, group, topic)
}

func (s *Stage) subscribe(c *client.Client, group, topic string) {
	s.t.Helper()
	err := c.Admin(s.t.Context(), func(admin notifyv1connect.AdminClient) error {
		_, err := admin.AddSubscription(s.t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{
			Subscription: &notifyv1.Subscription{Group: group, Topic: topic}}))
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Shards is what a broker says about the store's shards.
func (s *Stage) Shards(broker *Program) ([]*notifyv1.Shard, error) {
	admin := s.Client(broker)
	var shards []*notifyv1.Shard
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	err := admin.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
		r, err := admin.ListShards(ctx, connect.NewRequest(&notifyv1.ListShardsRequest{}))
		if err == nil {
			shards = r.Msg.GetShards()
		}
		return err
	})
	return shards, err
}

// AwaitShards waits until each of the brokers owns at least one shard and no other owns any.
// It returns how long that took.
func (s *Stage) AwaitShards(limit time.Duration, brokers ...*Program) time.Duration {
	s.t.Helper()
	return Eventually(s.t, limit, "all shards owned", func() error { return s.owned(brokers) })
}

func (s *Stage) owned(brokers []*Program) error {
	shards, err := s.Shards(brokers[0])
	if err != nil {
		return err
	}
	owners := map[string]int{}
	for _, b := range brokers {
		owners[b.ID] = 0
	}
	for _, one := range shards {
		if _, ours := owners[one.GetOwner()]; !ours {
			return fmt.Errorf("shard %d is owned by %q", one.GetNumber(), one.GetOwner())
		}
		owners[one.GetOwner()]++
	}
	for id, n := range owners {
		if n == 0 {
			return fmt.Errorf("%s owns no shard of %d", id, len(shards))
		}
	}
	return nil
}

// Group is a consumer group with one instance that keeps account of what it was given.
type Group struct {
	Name string
	s    *Stage

	mu     sync.Mutex
	seen   map[string]int // deliveries by message id
	latest map[string]client.Message
}

// Listen subscribes a group to a topic and consumes until the test ends. Every delivery is
// acknowledged.
func (s *Stage) Listen(c *client.Client, group, topic string) *Group {
	s.t.Helper()
	s.subscribe(c, group, topic)
	return s.Group(c, group)
}

// Group is Listen for a group that is subscribed already.
func (s *Stage) Group(c *client.Client, group string) *Group {
	s.t.Helper()
	g := &Group{Name: group, s: s, seen: map[string]int{}, latest: map[string]client.Message{}}
	s.Consume(c, client.ConsumerConfig{Group: group, Refresh: time.Second, Drain: time.Second, Handler: g.handle})
	return g
}

// Consume runs a consumer until the test ends.
func (s *Stage) Consume(c *client.Client, cfg client.ConsumerConfig) {
	s.t.Helper()
	consumer, err := c.NewConsumer(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- consumer.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			s.t.Errorf("group %s: %v", cfg.Group, err)
		}
	})
}

func (g *Group) handle(_ context.Context, d client.Delivery) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[d.ID]++
	g.latest[d.ID] = d.Message
	return nil
}

// Got is the message as it was delivered last, and how often it was delivered.
func (g *Group) Got(id string) (client.Message, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.latest[id], g.seen[id]
}

// Count is the number of different messages, and of deliveries.
func (g *Group) Count() (messages, deliveries int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.seen {
		deliveries += n
	}
	return len(g.seen), deliveries
}

// AwaitAll waits until every id was delivered.
func (g *Group) AwaitAll(ids []string, limit time.Duration) {
	g.s.t.Helper()
	Eventually(g.s.t, limit, "group "+g.Name+" has everything", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		missing, first := 0, ""
		for _, id := range ids {
			if g.seen[id] == 0 {
				if missing++; missing == 1 {
					first = id
				}
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d messages were never delivered, such as %s", missing, len(ids), first)
		}
		return nil
	})
}
