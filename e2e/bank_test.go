package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/e2e/bank"
	"notifymirror/e2e/stage"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/schema"
)

// Two banks transfer money by messages. Bank B refuses some of it, answers that are lost, and
// processes die at the worst moments: between taking the money and saying so, between giving it
// and acknowledging, before a refund is booked. In every round, besides, some of both brokers, the
// mirror and both banks are killed in random order. In the end no cent is lost or made, no
// transfer is half done, and the mirror has each committed transfer and each refund once.
func TestMoneyIsConservedWhateverDiesInATransfer(t *testing.T) {
	began := time.Now()
	c := newCity(t)
	rounds := 20 * stage.Soak()
	for range rounds {
		c.round()
	}
	c.rest()
	c.audit()
	t.Logf("%d rounds in %s: %d orders, kills %v", rounds, time.Since(began).Round(time.Millisecond), c.orders, c.kills)
}

const (
	// accountsEach is the number of accounts of each bank. At B the last closedAccounts are closed.
	accountsEach, closedAccounts = 8, 2
	// wealth is what is in each account of A at first, in cents.
	wealth = 1_000_000_00
	// roundOrders is how many orders a round places.
	roundOrders = 10
	// closing is the topic of the last message of all.
	closing = "closing"
	// cityPatience bounds a wait of this story.
	cityPatience = time.Minute
)

// nimble makes brokers find out soon who is dead, who does not answer, and what is undecided. The
// budget of checks is never spent: nothing may be parked.
const nimble = "lease_time: 2s\ncheck_after: 300ms\ncheck_max: 1s\ncheck_budget: 10000\nack_wait: 1s\nretry_min: 100ms\nretry_max: 500ms"

// A city is two banks, their messages, and whoever kills them.
type city struct {
	*stage.Stage
	t            *testing.T
	r            *rand.Rand
	dbA, dbB     *sql.DB
	store        *sql.DB
	client       *client.Client
	mirror       *stage.Reader
	brokers      [2]*stage.Program
	canald, a, b *stage.Program
	all          []*stage.Program
	down         map[*stage.Program]bool // killed, and not yet to be started again
	points       []bank.Point            // accidents to come, in random order
	orders       int
	kills        map[string]int
}

func newCity(t *testing.T) *city {
	t.Helper()
	s := stage.New(t)
	c := &city{Stage: s, t: t, r: stage.Random(t), down: map[*stage.Program]bool{}, kills: map[string]int{}}
	c.brokers[0], c.brokers[1] = s.Notifyd("broker-1", nimble).Start(), s.Notifyd("broker-2", nimble).Start()
	s.AwaitShards(time.Minute, c.brokers[0], c.brokers[1])
	c.canald = s.Canald("mirror").Start()
	c.client = s.Client(c.brokers[0], c.brokers[1])
	s.Subscribe(c.client, bank.GroupB, bank.TopicTransfers)
	s.Subscribe(c.client, bank.GroupA, bank.TopicRefunds)
	s.Topic(c.client, closing)
	c.store, c.mirror = s.Open(), s.Mirror(bank.TopicTransfers, bank.TopicRefunds, closing)
	c.dbA, c.a = c.open("a", wealth, 0)
	c.dbB, c.b = c.open("b", 0, closedAccounts)
	c.all = []*stage.Program{c.brokers[0], c.brokers[1], c.canald, c.a, c.b}
	return c
}

// open founds a bank and starts its process.
func (c *city) open(role string, cents int64, closed int) (*sql.DB, *stage.Program) {
	c.t.Helper()
	dsn := c.Schema()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { db.Close() })
	if err := bank.Install(c.t.Context(), db); err != nil {
		c.t.Fatal(err)
	}
	for id := range accountsEach {
		c.exec(db, "INSERT INTO account (id, cents, closed) VALUES (?, ?, ?)", id, cents, id >= accountsEach-closed)
	}
	store, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		c.t.Fatal(err)
	}
	p := stage.Self(c.t, "bank-"+role, asBank, "-role", role, "-dsn", dsn, "-store", store.DBName, "-brokers", c.brokers[0].Addr+","+c.brokers[1].Addr)
	p.Launch()
	return db, p
}

func (c *city) exec(db *sql.DB, query string, args ...any) {
	c.t.Helper()
	if _, err := db.ExecContext(c.t.Context(), query, args...); err != nil {
		c.t.Fatalf("%s: %v", query, err)
	}
}

// round places orders and kills some of the programs, each when some more of them were carried
// out. Who is killed is started again at once, or at the end of the round.
func (c *city) round() {
	c.t.Helper()
	for range roundOrders {
		c.place()
	}
	c.r.Shuffle(len(c.all), func(i, j int) { c.all[i], c.all[j] = c.all[j], c.all[i] })
	for _, victim := range c.all[:1+c.r.IntN(3)] {
		c.carriedOut(c.r.IntN(roundOrders / 2))
		victim.Kill()
		c.kills[victim.ID]++
		// Something must go on: A, and one of the brokers.
		stays := victim == c.a || c.down[c.brokers[0]] || c.down[c.brokers[1]]
		c.down[victim] = !stays && c.r.IntN(2) == 0
	}
	clear(c.down)
	c.carriedOut(roundOrders)
}

// place makes an order, with an accident in one of three cases.
func (c *city) place() {
	account, payee, cents := c.r.IntN(accountsEach), c.r.IntN(accountsEach-closedAccounts), 1+c.r.Int64N(50_00)
	if c.r.IntN(4) == 0 {
		payee = accountsEach - 1 - c.r.IntN(closedAccounts)
	}
	if c.r.IntN(12) == 0 {
		cents = 100 * wealth // nobody has so much
	}
	var accident bank.Point
	if c.r.IntN(3) == 0 {
		accident = c.accident()
		cents = min(cents, 50_00)
		payee %= accountsEach - closedAccounts
		if slices.Contains(ofRefusals, accident) {
			payee = accountsEach - 1 - c.r.IntN(closedAccounts)
		}
	}
	c.orders++
	c.exec(c.dbA, "INSERT INTO orders (id, account, payee, cents, accident, open) VALUES (?, ?, ?, ?, ?, 1)", c.orders, account, payee, cents, accident)
}

// Of all accidents, the last are those that only a transfer to a closed account comes by.
var (
	allAccidents = []bank.Point{bank.APrepared, bank.ALate, bank.ADebited, bank.AHolds, bank.ACommitted, bank.BCrediting, bank.BCredited, bank.BSilent,
		bank.BRefusing, bank.BRefused, bank.AUndoing, bank.AUndone}
	ofRefusals = allAccidents[8:]
)

// accident deals one accident after the other, so that each has its turn.
func (c *city) accident() bank.Point {
	if len(c.points) == 0 {
		c.points = slices.Clone(allAccidents)
		c.r.Shuffle(len(c.points), func(i, j int) { c.points[i], c.points[j] = c.points[j], c.points[i] })
	}
	one := c.points[0]
	c.points = c.points[1:]
	return one
}

// tend starts every program again that has died, unless it is to stay down.
func (c *city) tend() {
	c.t.Helper()
	for _, p := range c.all {
		if p.Ended() && !c.down[p] {
			p.Launch()
		}
	}
}

// carriedOut waits until A has carried out n more orders, or all.
func (c *city) carriedOut(n int) {
	c.t.Helper()
	before := -1
	stage.Eventually(c.t, cityPatience, "orders carried out", func() error {
		c.tend()
		open, err := number(c.t.Context(), c.dbA, "SELECT COUNT(*) FROM orders WHERE open = 1")
		if err != nil {
			return err
		}
		if before < 0 {
			before = open
		}
		if open > max(0, before-n) {
			return fmt.Errorf("%d orders are open", open)
		}
		return nil
	})
}

// querier is a pool or a transaction.
type querier interface {
	schema.Querier
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func number(ctx context.Context, db querier, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// rest waits until nothing is under way any more: at one moment there is no message, delivery
// or half, and nothing in the outbox or beside it.
func (c *city) rest() {
	c.t.Helper()
	stage.Eventually(c.t, cityPatience, "everything at rest", func() error {
		c.tend()
		tx, err := c.store.BeginTx(c.t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, table := range []string{schema.TableOutbox, schema.TableOutboxRejected} {
			if n, err := number(c.t.Context(), tx, "SELECT COUNT(*) FROM "+table); err != nil || n > 0 {
				return fmt.Errorf("table %s: %d rows, error %v", table, n, err)
			}
		}
		return c.Empty(tx, schema.Half, schema.Message, schema.Pending, schema.DeadLetter)
	})
}
