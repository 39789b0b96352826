package notifyd_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"notifymirror/notifyd"
)

func insertOutbox(t *testing.T, tx interface {
	Exec(string, ...any) (sql.Result, error)
}, topic, headers, body string) string {
	t.Helper()
	id := uuid.New()
	if _, err := tx.Exec("INSERT INTO outbox (id, topic, msg_key, headers, body) VALUES (?, ?, 'k', ?, ?)", id[:], topic, headers, body); err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func TestOutboxRowsCommitOutOfOrderAndEachIsRelayedOnce(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	const writers, each = 8, 40
	want := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	open, err := s.db.Begin() // has the first seq, and commits last of all
	if err != nil {
		t.Fatal(err)
	}
	late := insertOutbox(t, open, "orders", "", "late")
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				tx, err := s.db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				id := insertOutbox(t, tx, "orders", `{"w":"1"}`, fmt.Sprint(w, i))
				if i%4 == 3 {
					tx.Rollback()
					continue
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				want[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.until("all but the open one are relayed", func() bool { return s.rows("message") == len(want) })
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	want[late] = true
	r := s.consume(c, "g", nil)
	s.until("all are delivered and gone", func() bool {
		return r.count() == len(want) && s.rows("message")+s.rows("pending")+s.count("SELECT COUNT(*) FROM outbox") == 0
	})
	for id := range r.got {
		if !want[id] {
			t.Errorf("message %s was rolled back", id)
		}
	}
}

func TestABadOutboxRowIsPutAsideWithItsReasonAndStopsNothing(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxBodyBytes = 1000 })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	r := s.consume(c, "g", nil)
	bad := map[string]string{}
	bad[insertOutbox(t, s.db, "nowhere", "", "x")] = "notify topic create nowhere"
	bad[insertOutbox(t, s.db, "orders", "", strings.Repeat("x", 1001))] = "body: too many bytes"
	bad[insertOutbox(t, s.db, "orders", `{"a":1}`, "x")] = "headers: not a JSON object of strings"
	odd := uuid.New()
	if _, err := s.db.Exec("INSERT INTO outbox (id, topic, msg_key, headers, body) VALUES (?, 'orders', X'FF', '', 'x')", odd[:]); err != nil {
		t.Fatal(err)
	}
	bad[odd.String()] = "key: not UTF-8"
	good := insertOutbox(t, s.db, "orders", `{"a":"1"}`, "x")
	s.until("the good one is delivered, the others are aside", func() bool {
		return r.count() == 1 && s.count("SELECT COUNT(*) FROM outbox_rejected") == 4 && s.count("SELECT COUNT(*) FROM outbox") == 0
	})
	if r.got[good] != 1 {
		t.Errorf("delivered %v, want %s", r.got, good)
	}
	_, answer := s.post(addr, "Admin/ListRejected", `{}`)
	list, _ := answer["rejected"].([]any)
	if len(list) != 4 {
		t.Fatalf("listed %v", answer)
	}
	var seq string
	for _, x := range list {
		row := x.(map[string]any)
		id := row["message"].(map[string]any)["id"].(string)
		if !strings.Contains(fmt.Sprint(row["reason"]), bad[id]) {
			t.Errorf("reason %q, want %q", row["reason"], bad[id])
		}
		if strings.Contains(bad[id], "nowhere") {
			seq = row["seq"].(string)
		}
	}
	s.subscribe(c, "nowhere", "g2")
	r2 := s.consume(c, "g2", nil)
	if code, answer := s.post(addr, "Admin/ResubmitRejected", fmt.Sprintf(`{"seq":%s}`, seq)); code != http.StatusOK {
		t.Fatalf("resubmit: %v", answer)
	}
	s.until("the mended one is delivered", func() bool { return r2.count() == 1 })
}
