package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

// bankA is where money leaves. Its transfers table has one row for each transfer
// that is decided: debited, or refused for ever.
type bankA struct {
	db       *sql.DB
	producer *client.TransactionalProducer
}

var errInsufficient = errors.New("insufficient funds")

func transferMessage(amount int) client.Message {
	return client.Message{Topic: "transfers", Body: []byte(strconv.Itoa(amount))}
}

// transfer debits the account and sends the money: both or neither.
func (a bankA) transfer(ctx context.Context, amount int) (client.Outcome, error) {
	return a.producer.TransactSQL(ctx, a.db, transferMessage(amount), func(ctx context.Context, tx *sql.Tx, h client.Half) error {
		return a.debit(ctx, tx, h, amount)
	})
}

func (a bankA) debit(ctx context.Context, tx *sql.Tx, h client.Half, amount int) error {
	// The record that a check is answered from; it fails when one has refused it.
	if _, err := tx.ExecContext(ctx, "INSERT INTO transfers (id, state) VALUES (?, 'debited')", h.ID); err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - ? WHERE balance >= ?", amount, amount)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errInsufficient, err)
	}
	return nil
}

// check answers for a transfer whose decision never came. The transfer may still be
// running: inserting its key as refused waits for it, and keeps it out if it comes
// later. So whatever is answered stays true.
func (a bankA) check(ctx context.Context, c client.Check) (client.Decision, error) {
	if _, err := a.db.ExecContext(ctx, "INSERT IGNORE INTO transfers (id, state) VALUES (?, 'refused')", c.ID); err != nil {
		return client.Unknown, err
	}
	var state string
	if err := a.db.QueryRowContext(ctx, "SELECT state FROM transfers WHERE id = ?", c.ID).Scan(&state); err != nil {
		return client.Unknown, err
	}
	if state == "debited" {
		return client.Commit, nil
	}
	return client.Rollback, nil
}

// credit is bank B's handler. A delivery may repeat: the id of the message, in the
// same transaction as the credit, keeps the money from arriving twice.
func credit(ctx context.Context, db *sql.DB, d client.Delivery) error {
	amount, err := strconv.Atoi(string(d.Body))
	if err != nil {
		return client.Reject(fmt.Errorf("amount: %w", err)) // no attempt can mend it
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	res, err := tx.ExecContext(ctx, "INSERT IGNORE INTO credits (id) VALUES (?)", d.ID)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // credited before
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ?", amount); err != nil {
		return err
	}
	return tx.Commit()
}

func balance(db *sql.DB) (n int) {
	if err := db.QueryRow("SELECT balance FROM account").Scan(&n); err != nil {
		log.Panic(err)
	}
	return n
}

// Bank transfer: bank A debits in a transaction of its own database, bank B credits
// in its own. Between them is a message that exists if and only if the debit does,
// also when A dies between its local commit and the message's.
func Example_transfer() {
	addr, stop := startBroker("transfers", "bank-b")
	defer stop()
	dbA, _ := database("CREATE TABLE account (balance INT)", "INSERT INTO account VALUES (100)",
		"CREATE TABLE transfers (id CHAR(36) PRIMARY KEY, state VARCHAR(10) NOT NULL)")
	defer dbA.Close()
	dbB, _ := database("CREATE TABLE account (balance INT)", "INSERT INTO account VALUES (0)",
		"CREATE TABLE credits (id CHAR(36) PRIMARY KEY)")
	defer dbB.Close()

	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var running errgroup.Group

	producer, err := c.NewTransactionalProducer(client.TransactionalConfig{Group: "bank-a", CheckAfter: 100 * time.Millisecond})
	if err != nil {
		log.Panic(err)
	}
	a := bankA{db: dbA, producer: producer}

	credited := make(chan struct{}, 10)
	consumer, err := c.NewConsumer(client.ConsumerConfig{Group: "bank-b", Handler: func(ctx context.Context, d client.Delivery) error {
		err := credit(ctx, dbB, d)
		if err == nil {
			credited <- struct{}{}
		}
		return err
	}})
	if err != nil {
		log.Panic(err)
	}
	running.Go(func() error { return consumer.Run(ctx) })

	out, err := a.transfer(ctx, 30)
	fmt.Println("30:", out.Decision, err)
	out, err = a.transfer(ctx, 500)
	fmt.Println("500:", out.Decision, err)

	// A dies between its local commit and the message's: these are the steps of
	// transfer without the last one.
	h, err := producer.Prepare(ctx, transferMessage(20))
	if err != nil {
		log.Panic(err)
	}
	tx, err := dbA.BeginTx(ctx, nil)
	if err != nil {
		log.Panic(err)
	}
	if err := errors.Join(a.debit(ctx, tx, h, 20), tx.Commit()); err != nil {
		log.Panic(err)
	}

	// Started again, or any other instance of A, it answers from its database.
	listener, err := c.NewCheckListener(client.CheckListenerConfig{Group: "bank-a", Handler: a.check})
	if err != nil {
		log.Panic(err)
	}
	running.Go(func() error { return listener.Run(ctx) })

	<-credited
	<-credited
	fmt.Println("A has", balance(dbA), "and B has", balance(dbB))

	cancel()
	if err := running.Wait(); err != nil {
		log.Panic(err)
	}
	// Output:
	// 30: commit <nil>
	// 500: rollback insufficient funds
	// A has 50 and B has 50
}
