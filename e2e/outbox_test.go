package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/e2e/stage"
	database "notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/outbox"
)

// A shop has a database server of its own. Its administrator runs the printed script and lets
// the shop insert into one table; then what the shop commits is delivered and mirrored, once, beside
// what others publish, while broker and mirror are killed. While the shop's server is away
// everything else works, and what is declared then comes into force there later.
func TestAnApplicationsOwnDatabaseSendsWhatItCommits(t *testing.T) {
	const patience = 60 * time.Second
	s := stage.New(t)
	server := dbtest.Private(t, database.Config{})
	s.Outboxes = map[string]string{"shop": server.DSN("notify")}
	shop := openShop(t, server)
	one, two := s.Notifyd("one", "lease_time: 2s").Start(), s.Notifyd("two", "lease_time: 2s").Start()
	canald := s.Canald("mirror").Start()
	c := s.Client(one, two)
	s.Notify(one, "topic", "create", "orders")
	shipping := s.Listen(c, "shipping", "orders")

	var want []string
	order := func(n int) {
		id, commits := shop.order(n)
		if commits {
			want = append(want, id)
		}
		want = append(want, strings.TrimSpace(s.Notify(two, "publish", "orders", "phoned in")))
	}
	for n := range 40 {
		order(n)
		switch n {
		case 15:
			one.Kill()
		case 25:
			canald.Kill()
			canald.Start()
		}
	}
	one.Start()
	shipping.AwaitAll(want, patience)
	if n, _ := shipping.Count(); n != len(want) {
		t.Errorf("%d messages were delivered, %d committed", n, len(want))
	}

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = append(want, strings.TrimSpace(s.Notify(two, "publish", "orders", "phoned in")))
	r := stage.Command(t, "notify", "--server", two.Addr, "sub", "add", "--group", "billing", "--topic", "orders")
	if r.Code != 0 || !strings.Contains(r.Stderr, "not yet in force in shop") {
		t.Errorf("a subscription while the store is away: code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	shipping.AwaitAll(want, patience)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	billing := s.Group(c, "billing")
	leader := s.Open()
	stage.Eventually(t, patience, "the subscription is in force in the shop's store", func() error {
		var here, there int64
		err := errors.Join(leader.QueryRowContext(t.Context(), "SELECT MAX(registry_version) FROM epoch").Scan(&here),
			shop.root.QueryRowContext(t.Context(), "SELECT MIN(registry_version) FROM notify.epoch").Scan(&there))
		if err == nil && there != here {
			err = fmt.Errorf("version %d, the main store has %d", there, here)
		}
		return err
	})
	late, _ := shop.order(101)
	want = append(want, late)
	shipping.AwaitAll(want, patience)
	billing.AwaitAll([]string{late}, patience)

	stage.Eventually(t, patience, "nothing is left in the shop's store", shop.empty)
	m := s.Mirror("orders")
	m.Await(len(want), patience)
	m.Rest()
	seen := map[string]int{}
	for _, rec := range m.Records {
		seen[stage.Header(rec, "notify-id")]++
	}
	for _, id := range want {
		if seen[id] != 1 {
			t.Errorf("message %s is %d times in the mirror", id, seen[id])
		}
	}
	if len(m.Records) != len(want) {
		t.Errorf("%d records of %d messages", len(m.Records), len(want))
	}
}

// A shop is an application that knows its own database, and one table beside it.
type shop struct {
	t         *testing.T
	app, root *sql.DB
}

func openShop(t *testing.T, server *database.DB) *shop {
	t.Helper()
	script := stage.Command(t, "notifyd", "migrate", "--print", "--shards", "1")
	if script.Code != 0 {
		t.Fatalf("migrate --print: %s", script.Stderr)
	}
	cfg, err := mysql.ParseDSN(server.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MultiStatements = true
	s := &shop{t: t, root: open(t, cfg.FormatDSN())}
	for _, script := range []string{
		"CREATE DATABASE notify CHARACTER SET utf8mb4; USE notify;" + script.Stdout,
		"CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY)",
		"CREATE USER 'shop'@'%' IDENTIFIED BY 'secret'; GRANT ALL ON shop.* TO 'shop'@'%'; GRANT INSERT ON notify.outbox TO 'shop'@'%'",
	} {
		if _, err := s.root.ExecContext(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	cfg.MultiStatements, cfg.User, cfg.Passwd, cfg.DBName = false, "shop", "secret", "shop"
	s.app = open(t, cfg.FormatDSN())
	return s
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// order takes an order and says so in one transaction. Each third rolls back.
func (s *shop) order(n int) (id string, commits bool) {
	s.t.Helper()
	tx, err := s.app.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(s.t.Context(), "INSERT INTO orders VALUES (?)", n); err != nil {
		s.t.Fatal(err)
	}
	u, err := outbox.Insert(s.t.Context(), tx, outbox.Message{Schema: "notify", Topic: "orders", Key: fmt.Sprint(n % 5), Body: fmt.Append(nil, n)})
	if err != nil {
		s.t.Fatal(err)
	}
	if n%3 == 0 {
		return "", false
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
	return u.String(), true
}

func (s *shop) empty() error {
	var left int
	err := s.root.QueryRowContext(s.t.Context(), "SELECT (SELECT COUNT(*) FROM notify.outbox) + (SELECT COUNT(*) FROM notify.message_00)"+
		" + (SELECT COUNT(*) FROM notify.pending_00) + (SELECT COUNT(*) FROM notify.outbox_rejected)").Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d rows", left)
	}
	return err
}
