package notifyd_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"

	"connectrpc.com/connect"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// A stage is one store with brokers on it.
type stage struct {
	t   *testing.T
	dsn string
	db  *sql.DB
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &stage{t: t, dsn: dsn, db: db}
}

// broker starts one and waits until it is ready. stop ends it gracefully.
func (s *stage) broker(change func(*notifyd.Config)) (addr string, stop func()) {
	s.t.Helper()
	return s.brokerWith(notifyd.Deps{}, change)
}

func (s *stage) brokerWith(deps notifyd.Deps, change func(*notifyd.Config)) (addr string, stop func()) {
	s.t.Helper()
	cfg := notifyd.Config{Listen: "127.0.0.1:0", Stores: map[string]notifyd.StoreConfig{"a": {DSN: s.dsn}}}
	if change != nil {
		change(&cfg)
	}
	b, err := notifyd.New(cfg, deps)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				s.t.Errorf("broker: %v", err)
			}
		})
	}
	s.t.Cleanup(stop)
	s.until("broker ready", func() bool {
		select {
		case err := <-done:
			s.t.Fatalf("broker ended: %v", err)
		default:
		}
		return b.Ready() == nil
	})
	return b.Addr(), stop
}

// until waits for a condition.
func (s *stage) until(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %s: %s", patience, what)
		}
		<-tick.C
	}
}

func (s *stage) count(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// rows counts the rows of a table in all shards.
func (s *stage) rows(table string) (n int) {
	for i := range 8 {
		n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM %s_%02d", table, i))
	}
	return n
}

func (s *stage) client(addrs ...string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{Addrs: addrs})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func (s *stage) subscribe(c *client.Client, topic string, groups ...string) {
	s.t.Helper()
	err := c.Admin(s.t.Context(), func(a notifyv1connect.AdminClient) error {
		_, err := a.CreateTopic(s.t.Context(), connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: topic}}))
		for _, g := range groups {
			if err == nil {
				_, err = a.AddSubscription(s.t.Context(), connect.NewRequest(&notifyv1.AddSubscriptionRequest{
					Subscription: &notifyv1.Subscription{Group: g, Topic: topic}}))
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// A receiver is a consumer of one group that notes what it got.
type receiver struct {
	mu   sync.Mutex
	got  map[string]int // by id
	last client.Delivery
	stop func()
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (s *stage) consume(c *client.Client, group string, handle func(client.Delivery) error) *receiver {
	s.t.Helper()
	r := &receiver{got: map[string]int{}}
	con, err := c.NewConsumer(client.ConsumerConfig{Group: group, Refresh: 200 * time.Millisecond, Handler: func(_ context.Context, d client.Delivery) error {
		r.mu.Lock()
		r.got[d.ID]++
		r.last = d
		r.mu.Unlock()
		if handle != nil {
			return handle(d)
		}
		return nil
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- con.Run(ctx) }()
	var once sync.Once
	r.stop = func() { once.Do(func() { cancel(); <-done }) }
	s.t.Cleanup(r.stop)
	return r
}

func (s *stage) publish(c *client.Client, m client.Message) string {
	s.t.Helper()
	p, err := c.Publish(s.t.Context(), m, client.PublishOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return p.ID
}

func TestAMessageIsStoredThenPushedToEveryGroupThenDeleted(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock", "mail")
	id := s.publish(c, client.Message{Topic: "orders", Key: "k", Headers: map[string]string{"a": "ü"}, Body: []byte("hello")})
	if n := s.rows("message"); n != 1 {
		t.Fatalf("%d message rows after the acknowledgement, want 1", n)
	}
	stock, mail := s.consume(c, "stock", nil), s.consume(c, "mail", nil)
	s.until("both groups have it", func() bool { return stock.count() == 1 && mail.count() == 1 })
	stock.mu.Lock()
	defer stock.mu.Unlock()
	if d := stock.last; d.ID != id || d.Key != "k" || string(d.Body) != "hello" || d.Headers["a"] != "ü" || d.Topic != "orders" {
		t.Errorf("delivered %+v", d)
	}
	s.until("its rows are deleted", func() bool { return s.rows("message")+s.rows("pending") == 0 })
}
