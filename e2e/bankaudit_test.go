package e2e

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"notifymirror/e2e/bank"
	"notifymirror/e2e/stage"
	"notifymirror/notifyd/client"
)

// A transfer is what both banks and the mirror know of it.
type transfer struct {
	order, account, payee int
	cents                 int64
	undone                int  // how often
	applied, refused      bool // at B
	messages, refunds     int  // in the mirror
}

// audit settles the accounts.
func (c *city) audit() {
	c.t.Helper()
	faults := complaints{t: c.t}
	transfers := c.readTransfers()
	c.readMirror(transfers, &faults)
	wantA, wantB := map[int]int64{}, map[int]int64{}
	for id := range accountsEach {
		wantA[id], wantB[id] = wealth, 0
	}
	carriedOut := map[int]bool{}
	undone := 0
	for id, x := range transfers {
		closed := x.payee >= accountsEach-closedAccounts
		refunds := 0
		switch {
		case x.order == 0 || !x.applied || x.undone > 1 || (x.undone == 1) != x.refused || x.refused != closed || x.messages != 1:
			faults.say("transfer %s is half done: %+v", id, x)
		case x.refused:
			refunds = 1
			undone++
		default:
			wantA[x.account] -= x.cents
			wantB[x.payee] += x.cents
		}
		if x.refunds != refunds {
			faults.say("transfer %s has %d refunds in the mirror instead of %d: %+v", id, x.refunds, refunds, x)
		}
		carriedOut[x.order] = true
	}
	total := c.checkAccounts(c.dbA, "A", wantA, &faults) + c.checkAccounts(c.dbB, "B", wantB, &faults)
	if total != accountsEach*wealth {
		faults.say("there are %d cents, and there were %d", total, accountsEach*wealth)
	}
	poor, err := number(c.t.Context(), c.dbA, fmt.Sprintf("SELECT COUNT(*) FROM orders WHERE cents >= %d", wealth))
	if err != nil {
		c.t.Fatal(err)
	}
	if len(carriedOut) != c.orders-poor {
		faults.say("%d transfers of %d orders, of which %d are beyond anybody's means", len(carriedOut), c.orders, poor)
	}
	c.t.Logf("%d transfers, of which %d were refused and undone; %d orders came to nothing; accidents: %s", len(transfers), undone, poor, c.accidents(&faults))
}

// readTransfers joins what the banks know.
func (c *city) readTransfers() map[string]*transfer {
	c.t.Helper()
	out := map[string]*transfer{}
	c.rows(c.dbA, "SELECT id, order_id, account, payee, cents, undone FROM transfer", func(scan func(...any) error) error {
		var id string
		x := &transfer{}
		err := scan(&id, &x.order, &x.account, &x.payee, &x.cents, &x.undone)
		out[id] = x
		return err
	})
	c.rows(c.dbB, "SELECT id, payee, cents, refused FROM applied", func(scan func(...any) error) error {
		var id string
		var y transfer
		if err := scan(&id, &y.payee, &y.cents, &y.refused); err != nil {
			return err
		}
		if out[id] == nil {
			out[id] = &transfer{} // A knows nothing of it
		}
		x := out[id]
		x.applied, x.refused = x.payee == y.payee && x.cents == y.cents, y.refused
		return nil
	})
	return out
}

// readMirror counts each transfer's records, up to a message that is published now.
func (c *city) readMirror(transfers map[string]*transfer, faults *complaints) {
	c.t.Helper()
	last, err := c.client.Publish(c.t.Context(), client.Message{Topic: closing}, client.PublishOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mirror.AwaitID(last.ID, cityPatience)
	c.mirror.Rest()
	for _, rec := range c.mirror.Records {
		if strings.HasSuffix(rec.Topic, "."+closing) {
			continue
		}
		var body bank.Transfer
		if err := json.Unmarshal(rec.Value, &body); err != nil {
			c.t.Fatalf("%s: %v", rec.Value, err)
		}
		isRefund := strings.HasSuffix(rec.Topic, "."+bank.TopicRefunds)
		if !isRefund {
			body.ID = stage.Header(rec, "notify-id")
		}
		x := transfers[body.ID]
		switch {
		case x == nil:
			faults.say("the mirror has %s in %s, which was never committed", rec.Value, rec.Topic)
		case x.cents != body.Cents || x.payee != body.Payee || x.account != body.Account:
			faults.say("the mirror has %s of transfer %s, %+v", rec.Value, body.ID, x)
		case isRefund:
			x.refunds++
		default:
			x.messages++
		}
	}
}

// checkAccounts compares a bank's accounts with what they should be, and returns their sum.
func (c *city) checkAccounts(db *sql.DB, name string, want map[int]int64, faults *complaints) (sum int64) {
	c.t.Helper()
	c.rows(db, "SELECT id, cents FROM account", func(scan func(...any) error) error {
		var id int
		var cents int64
		if err := scan(&id, &cents); err != nil {
			return err
		}
		if cents != want[id] {
			faults.say("account %d of %s has %d cents, and should have %d", id, name, cents, want[id])
		}
		sum += cents
		return nil
	})
	return sum
}

// accidents tells how often each accident happened; each must have.
func (c *city) accidents(faults *complaints) string {
	c.t.Helper()
	happened := map[string]int{}
	for _, db := range []*sql.DB{c.dbA, c.dbB} {
		c.rows(db, "SELECT point, COUNT(*) FROM accident GROUP BY point", func(scan func(...any) error) error {
			var point string
			var n int
			err := scan(&point, &n)
			happened[point] = n
			return err
		})
	}
	if len(happened) != len(allAccidents) {
		faults.say("not every accident happened: %v", happened)
	}
	return fmt.Sprint(happened)
}

func (c *city) rows(db *sql.DB, query string, each func(scan func(...any) error) error) {
	c.t.Helper()
	rows, err := db.QueryContext(c.t.Context(), query)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		c.t.Fatal(err)
	}
}
