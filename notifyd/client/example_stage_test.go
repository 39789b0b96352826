package client_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	_ "github.com/go-sql-driver/mysql"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"
)

// exampleSchemas numbers the schemas of the examples.
var exampleSchemas atomic.Int64

// database makes a schema on the tests' server, runs statements in it and returns it.
func database(statements ...string) (db *sql.DB, dsn string) {
	server, err := dbtest.Shared()
	must(err)
	name := fmt.Sprintf("example_%d", exampleSchemas.Add(1))
	root, err := sql.Open("mysql", server.DSN(""))
	must(err)
	defer root.Close()
	_, err = root.Exec("CREATE DATABASE " + name)
	must(err)
	dsn = server.DSN(name)
	db, err = sql.Open("mysql", dsn)
	must(err)
	for _, s := range statements {
		_, err = db.Exec(s)
		must(err)
	}
	return db, dsn
}

// startBroker runs a broker on a new store, with one topic and the groups that
// subscribe to it, until stop is called. It stands for what an operator has set up.
func startBroker(topic string, groups ...string) (addr string, stop func()) {
	db, dsn := database()
	db.Close()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := migrate.Migrate(ctx, dsn, migrate.Options{})
	must(err)
	b, err := notifyd.New(notifyd.Config{Listen: "127.0.0.1:0", Stores: map[string]notifyd.StoreConfig{"a": {DSN: dsn}}}, notifyd.Deps{})
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for b.Ready() != nil {
		select {
		case err := <-ended:
			log.Panicf("broker ended: %v", err)
		case <-look.C:
		}
	}
	c, err := client.New(client.Config{Addrs: []string{b.Addr()}})
	must(err)
	defer c.Close()
	must(c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
		_, err := a.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: topic}}))
		for _, g := range groups {
			if err == nil {
				_, err = a.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: g, Topic: topic}}))
			}
		}
		return err
	}))
	return b.Addr(), func() {
		cancel()
		must(<-ended)
	}
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
