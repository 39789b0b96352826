package notifyd_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
)

// A shop is an application with a database of its own, in which it records each of
// its transactions under the id of its message.
type shop struct {
	*sql.DB
	producer *client.TransactionalProducer
}

func (s *stage) shop(c *client.Client, cfg client.TransactionalConfig) shop {
	s.t.Helper()
	db, err := sql.Open("mysql", dbtest.Schema(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE sales (id CHAR(36) PRIMARY KEY)"); err != nil {
		s.t.Fatal(err)
	}
	cfg.Group = "shop"
	p, err := c.NewTransactionalProducer(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return shop{DB: db, producer: p}
}

func (s shop) sale(ctx context.Context, tx *sql.Tx, h client.Half) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO sales VALUES (?)", h.ID)
	return err
}

// check answers from the shop's database.
func (s shop) check(ctx context.Context, c client.Check) (client.Decision, error) {
	var n int
	if err := s.QueryRowContext(ctx, "SELECT COUNT(*) FROM sales WHERE id = ?", c.ID).Scan(&n); err != nil {
		return client.Unknown, err
	}
	if n == 0 {
		return client.Rollback, nil
	}
	return client.Commit, nil
}

// listen runs the shop's check listener until stop is called.
func (s *stage) listen(c *client.Client, sh shop) (stop func()) {
	s.t.Helper()
	l, err := c.NewCheckListener(client.CheckListenerConfig{Group: "shop", Handler: sh.check})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				s.t.Errorf("listener: %v", err)
			}
		})
	}
	s.t.Cleanup(stop)
	return stop
}

func TestAMessageIsDeliveredIfAndOnlyIfItsLocalTransactionCommitted(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(quickChecks)
	c := s.client(addr)
	s.subscribe(c, "sales", "g")
	r := s.consume(c, "g", nil)
	sh := s.shop(c, client.TransactionalConfig{})
	refused := errors.New("out of stock")
	m := client.Message{Topic: "sales", Body: []byte("x")}

	cases := map[string]func(context.Context, *sql.Tx, client.Half) error{
		"commits": sh.sale,
		"refuses": func(ctx context.Context, tx *sql.Tx, h client.Half) error {
			return errors.Join(sh.sale(ctx, tx, h), refused)
		},
		"commits itself and then fails": func(ctx context.Context, tx *sql.Tx, h client.Half) error {
			return errors.Join(sh.sale(ctx, tx, h), tx.Commit(), refused)
		},
		"panics": func(ctx context.Context, tx *sql.Tx, h client.Half) error {
			if err := sh.sale(ctx, tx, h); err != nil {
				t.Error(err)
			}
			panic(refused)
		},
	}
	want := map[string][2]client.Decision{ // local, decided at once
		"commits":                       {client.Commit, client.Commit},
		"refuses":                       {client.Rollback, client.Rollback},
		"commits itself and then fails": {client.Unknown, client.Unknown},
	}
	for name, local := range cases {
		func() {
			defer func() {
				if p := recover(); p != nil && name != "panics" {
					panic(p)
				}
			}()
			out, err := sh.producer.TransactSQL(t.Context(), sh, m, local)
			if (err != nil) != (name != "commits") || err != nil && !errors.Is(err, refused) || out.Local != want[name][0] || out.Decision != want[name][1] {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, err := sh.producer.TransactSQL(ctx, sh, m, func(ctx context.Context, tx *sql.Tx, h client.Half) error {
		defer cancel()
		return sh.sale(ctx, tx, h)
	})
	if !errors.Is(err, context.Canceled) || out.Local != client.Unknown {
		t.Errorf("context that ends before the local commit: %+v, %v", out, err)
	}

	stop := s.listen(c, sh)
	s.until("every half is decided, and what committed is delivered", func() bool {
		return s.rows("half")+s.rows("message")+s.rows("pending") == 0
	})
	stop()
	r.stop()
	var ids []string
	rows, err := sh.Query("SELECT id FROM sales")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil || len(ids) != 2 || r.count() != 2 || r.got[ids[0]] != 1 || r.got[ids[1]] != 1 {
		t.Errorf("sold %v, delivered %v, %v", ids, r.got, err)
	}
}

func TestADecisionThatReachedNoBrokerIsMadeByCheckBack(t *testing.T) {
	s := newStage(t)
	first, stop := s.broker(quickChecks)
	c := s.client(first)
	s.subscribe(c, "sales", "g")
	sh := s.shop(c, client.TransactionalConfig{DecideWait: 200 * time.Millisecond})
	out, err := sh.producer.TransactSQL(t.Context(), sh, client.Message{Topic: "sales"}, func(ctx context.Context, tx *sql.Tx, h client.Half) error {
		stop() // between Prepare and Commit
		return sh.sale(ctx, tx, h)
	})
	if err != nil || out.Local != client.Commit || out.Decision != client.Unknown || !errors.Is(out.Cause, client.ErrUndecided) {
		t.Fatalf("%+v, %v", out, err)
	}
	second, _ := s.broker(quickChecks)
	c = s.client(second)
	r := s.consume(c, "g", nil)
	s.listen(c, sh)
	s.until("delivered once", func() bool {
		return r.count() == 1 && s.rows("half")+s.rows("message")+s.rows("pending") == 0
	})
}

func TestAsynchronousDecisionsOfManyTransactionsAllArrive(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	two, _ := s.broker(nil)
	c := s.client(one, two)
	s.subscribe(c, "sales", "g")
	p := s.shop(c, client.TransactionalConfig{}).producer
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	const n = 200
	var refused sync.Map
	for i := range n {
		h, err := p.Prepare(t.Context(), client.Message{Topic: "sales", Body: fmt.Append(nil, i)})
		if err != nil {
			t.Fatal(err)
		}
		decide := p.CommitAsync
		if i%4 == 0 {
			decide = p.RollbackAsync
		}
		if err := decide(t.Context(), h, func(err error) {
			if err != nil {
				refused.Store(h.ID, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	refused.Range(func(id, err any) bool { t.Errorf("%v: %v", id, err); return true })
	if half, msg := s.rows("half"), s.rows("message"); half != 0 || msg != n*3/4 {
		t.Errorf("%d halves, %d messages; want 0 and %d", half, msg, n*3/4)
	}
}
