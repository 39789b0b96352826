package notifyd_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// show asks a broker for a message's life.
func (s *stage) show(addr, id string) *notifyv1.ShowMessageResponse {
	s.t.Helper()
	res, err := notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr).ShowMessage(s.t.Context(), connect.NewRequest(&notifyv1.ShowMessageRequest{Id: id}))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(res.Msg.Unknown) > 0 {
		s.t.Errorf("not known: %q", res.Msg.Unknown)
	}
	return res.Msg
}

// tells waits until every broker says so of a group, or of the message when the group is empty. Text is what the
// words have to contain.
func (s *stage) tells(addrs []string, id, group, text string) {
	s.t.Helper()
	for _, addr := range addrs {
		var last string
		defer func() {
			if s.t.Failed() {
				s.t.Logf("%s of %s: %s", addr, group, last)
			}
		}()
		s.until(group+": "+text, func() bool {
			r := s.show(addr, id)
			last = r.Why
			for _, m := range r.Stored {
				for _, g := range m.Groups {
					if g.Group == group {
						last = g.Why
					}
				}
			}
			return strings.Contains(last, text)
		})
		if group != "" && !s.show(addr, id).Stored[0].Asked {
			s.t.Errorf("%s did not ask the owner", addr)
		}
	}
}

func TestAMessageTellsWhatEachGroupHasDoneAboutIt(t *testing.T) {
	s := newStage(t)
	id := func(name string) func(*notifyd.Config) {
		return func(c *notifyd.Config) {
			hour := notifyd.Duration(time.Hour)
			c.ID, c.AckWait, c.RetryMin, c.RetryMax, c.MaxAttempts = name, hour, hour, hour, 16
		}
	}
	one, _ := s.broker(id("one"))
	two, _ := s.broker(id("two"))
	both := []string{one, two}
	c := s.client(both...)
	s.subscribe(c, "orders", "risk", "mail", "bill", "stock", "slow")
	s.add(one, &notifyv1.Subscription{Group: "picky", Topic: "orders", Filter: `headers["a"] == "b"`})
	s.until("both own shards", func() bool {
		return s.count("SELECT COUNT(DISTINCT owner) FROM lease WHERE expires_at > 0") == 2
	})
	working := make(chan struct{})
	s.consume(c, "mail", func(client.Delivery) error { return errors.New("db down") })
	s.consume(c, "bill", func(client.Delivery) error { return client.Reject(errors.New("no such customer")) })
	s.consume(c, "stock", nil)
	s.consume(c, "slow", func(client.Delivery) error { <-working; return nil })
	t.Cleanup(func() { close(working) })
	s.until("all are attached everywhere", func() bool {
		n := 0
		for _, g := range []string{"mail", "bill", "stock", "slow"} {
			n += min(1, s.instances(one, g)) + min(1, s.instances(two, g))
		}
		return n == 8
	})
	m := s.publish(c, client.Message{Topic: "orders", Key: "k"})
	s.tells(both, m, "slow", "in flight to ")
	s.tells(both, m, "slow", "attempt 1 of 16; it has until ")
	s.tells(both, m, "stock", "acknowledged")
	s.tells(both, m, "mail", "waits: attempt 2 of 16 at ")
	s.tells(both, m, "mail", ", after: nack: db down")
	s.tells(both, m, "risk", "waits: no instance of group risk is attached")
	s.tells(both, m, "picky", "not owed: the subscription's filter does not want it")
	s.tells(both, m, "bill", "dead letter since ")
	s.tells(both, m, "bill", "rejected after 1 attempt, after: rejected: no such customer; deliver it again: notify dead redrive "+m+" --group bill")
	s.tells(both, m, "", "waits for 3 of 6 groups: risk, mail, slow; kept for 1 dead letter")
	got := s.show(two, m).Stored[0]
	if got.Message.GetKey() != "k" || got.Store != "a" || got.Pos == 0 || got.Owner != "one" && got.Owner != "two" {
		t.Errorf("stored: %+v", got)
	}
}

func TestAMessageTellsWhereItIsWhenItIsNoMessage(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	at := []string{addr}
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	m := raw(addr)
	s.tells(at, uuid.NewString(), "", "delivered and deleted, or never stored here")
	half := s.prepare(m, prepareOf("orders", "x"))
	s.tells(at, half.Id, "", `waits as a half: nobody has decided it`)
	if _, err := m.Rollback(t.Context(), decideOf(half.Handle)); err != nil {
		t.Fatal(err)
	}
	s.tells(at, half.Id, "", "never a message: the half was rolled back at ")
	half = s.prepare(m, prepareOf("orders", "y"))
	if _, err := m.Commit(t.Context(), decideOf(half.Handle)); err != nil {
		t.Fatal(err)
	}
	s.tells(at, half.Id, "g", "no instance of group g is attached")
	if d := s.show(addr, half.Id).Decision; d != notifyv1.Decision_DECISION_COMMIT {
		t.Errorf("decision %v", d)
	}
	rejected := insertOutbox(t, s.db, "orders", "no JSON", "")
	s.tells(at, rejected, "", "rejected from the outbox of store a at ")
	delayed := s.publish(c, client.Message{Topic: "orders", Delay: time.Hour})
	s.tells(at, delayed, "", "waits: its first delivery is at ")
	plain := s.publish(c, client.Message{Topic: "orders"})
	s.consume(c, "g", nil)
	s.tells(at, half.Id, "", "delivered and deleted: the half was committed at ")
	s.tells(at, plain, "", "delivered and deleted: topic orders took it")
	if _, err := notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr).ShowMessage(t.Context(), connect.NewRequest(&notifyv1.ShowMessageRequest{Id: "x"})); reason(err) != notifyv1.Reason_REASON_INVALID {
		t.Errorf("no UUID: %v", err)
	}
}

func TestAMessageIsFoundInEveryStore(t *testing.T) {
	s, shop := newStage(t), outboxStore(t)
	addr, _ := s.broker(withOutbox(map[string]*stage{"shop": shop}))
	s.subscribe(s.client(addr), "orders", "g")
	rejected := insertOutbox(t, shop.db, "unknown", "", "")
	s.tells([]string{addr}, rejected, "", "rejected from the outbox of store shop at ")
	stored := insertOutbox(t, shop.db, "orders", "", "")
	s.tells([]string{addr}, stored, "g", "no instance of group g is attached")
	if got := s.show(addr, stored).Stored[0]; got.Store != "shop" || got.Message.Topic != "orders" {
		t.Errorf("stored: %+v", got)
	}
}

// What a frozen owner has in memory is not known; the rows are told all the same.
func TestRowsAreToldWhenTheOwnerDoesNotAnswer(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	id := s.publish(c, client.Message{Topic: "orders"})
	s.until("it is settled", func() bool { return s.rows("pending") == 1 })
	s.exec("UPDATE lease SET owner = 'gone', epoch = epoch + 1, expires_at = expires_at + 3600000000")
	s.until("the broker has noticed", func() bool {
		r := s.show(addr, id)
		return len(r.Stored) == 1 && !r.Stored[0].Asked && strings.Contains(r.Stored[0].Groups[0].Why, "broker gone, which knows more, was not asked or did not answer")
	})
}
