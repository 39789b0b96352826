package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

// register inserts a user and tells everybody who wants to know: both or neither.
func register(ctx context.Context, db *sql.DB, p *client.TransactionalProducer, name string) error {
	m := client.Message{Topic: "users.registered", Key: name, Body: []byte(name)}
	_, err := p.TransactSQL(ctx, db, m, func(ctx context.Context, tx *sql.Tx, h client.Half) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO users (name, message_id) VALUES (?, ?)", name, h.ID)
		return err
	})
	return err
}

// registered answers a check: it happened if and only if the row is there. The
// producer's CheckAfter is far longer than an INSERT can last, so that a row which
// is not there will not come.
func registered(ctx context.Context, db *sql.DB, c client.Check) (client.Decision, error) {
	var name string
	err := db.QueryRowContext(ctx, "SELECT name FROM users WHERE message_id = ?", c.ID).Scan(&name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return client.Rollback, nil
	case err != nil:
		return client.Unknown, err
	}
	return client.Commit, nil
}

// User registration: the user's row and its message are one transaction, and three
// services hear of it, each in a group of its own. A name that is taken makes no
// message; a service that is not ready gets the message again.
func Example_registration() {
	addr, stop := startBroker("users.registered", "mail", "points", "risk")
	defer stop()
	db, _ := database("CREATE TABLE users (name VARCHAR(50) PRIMARY KEY, message_id CHAR(36) NOT NULL UNIQUE)")
	defer db.Close()

	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var running errgroup.Group

	// The three services, here in one process. Deliveries may repeat: each must
	// bear to see a message twice.
	mail, points, risk := make(chan string, 10), make(chan string, 10), make(chan string, 10)
	for group, handler := range map[string]func(context.Context, client.Delivery) error{
		"mail": func(_ context.Context, d client.Delivery) error {
			mail <- "welcome, " + string(d.Body)
			return nil
		},
		"points": func(_ context.Context, d client.Delivery) error {
			if d.Attempt == 1 {
				return client.RetryAfter(100*time.Millisecond, errors.New("ledger is being closed"))
			}
			points <- "100 for " + string(d.Body)
			return nil
		},
		"risk": func(_ context.Context, d client.Delivery) error {
			if len(d.Body) == 0 {
				return client.Reject(errors.New("user without a name")) // no attempt can mend it
			}
			risk <- "checked " + string(d.Body)
			return nil
		},
	} {
		consumer, err := c.NewConsumer(client.ConsumerConfig{Group: group, Handler: handler})
		if err != nil {
			log.Panic(err)
		}
		running.Go(func() error { return consumer.Run(ctx) })
	}

	// The application: a producer, and a listener for decisions that never came.
	producer, err := c.NewTransactionalProducer(client.TransactionalConfig{Group: "registration", CheckAfter: time.Minute})
	if err != nil {
		log.Panic(err)
	}
	listener, err := c.NewCheckListener(client.CheckListenerConfig{
		Group:   "registration",
		Handler: func(ctx context.Context, c client.Check) (client.Decision, error) { return registered(ctx, db, c) },
	})
	if err != nil {
		log.Panic(err)
	}
	running.Go(func() error { return listener.Run(ctx) })

	fmt.Println("ann registered:", register(ctx, db, producer, "ann") == nil)
	fmt.Println("ann registered again:", register(ctx, db, producer, "ann") == nil)
	fmt.Println("mail:", <-mail)
	fmt.Println("points:", <-points)
	fmt.Println("risk:", <-risk)

	cancel()
	if err := running.Wait(); err != nil {
		log.Panic(err)
	}
	// Output:
	// ann registered: true
	// ann registered again: false
	// mail: welcome, ann
	// points: 100 for ann
	// risk: checked ann
}
