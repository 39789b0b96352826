package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// addHalf puts a half into shard 0.
func (s *Store) addHalf(t *testing.T, topic string, next int64, checks, parked int) uuid.UUID {
	t.Helper()
	id := uuid.New()
	s.exec(t, "INSERT INTO half_00 (id, producer_group, topic, msg_key, headers, body, mirrored, asked, check_url, prepared_at, next_check_at, checks, parked)"+
		" VALUES (?, 'g', ?, '', '', 'body', 1, 'g', '', 5, ?, ?, ?)", id[:], topic, next, checks, parked)
	return id
}

func TestEachHalfOfAClaimGetsItsOwnNextCheck(t *testing.T) {
	s := open(t)
	slow, quick, spent := s.addHalf(t, "slow", 10, 1, 0), s.addHalf(t, "quick", 20, 4, 0), s.addHalf(t, "quick", 15, 9, 0)
	s.exec(t, "UPDATE half_00 SET last_error = 'old'")
	delay := func(h Half) int64 {
		if h.Msg.Topic == "slow" {
			return int64(h.Checks) * 1000
		}
		return int64(h.Checks)
	}
	claimed, err := s.ClaimChecks(t.Context(), 0, "g", 100, 10, Checks{Delay: delay, Budget: 9})
	if err != nil || len(claimed) != 2 {
		t.Fatalf("%d claimed, %v; want 2", len(claimed), err)
	}
	for id, want := range map[uuid.UUID][4]int64{slow: {2, 2100, 0, 1}, quick: {5, 105, 0, 1}, spent: {9, 15, 1, 0}} {
		h, err := s.GetHalf(t.Context(), 0, id)
		got := [4]int64{int64(h.Checks), h.NextCheckAt, s.one(t, "SELECT parked FROM half_00 WHERE id = ?", id[:]), s.one(t, "SELECT last_error IS NULL FROM half_00 WHERE id = ?", id[:])}
		if err != nil || got != want {
			t.Errorf("checks, next check, parked, no error: %v, %v; want %v", got, err, want)
		}
	}
}

func TestACheckByHandGoesFirstAndUnparksWithANewBudget(t *testing.T) {
	s := open(t)
	parked, spent, other := s.addHalf(t, "t", 50, 9, 1), s.addHalf(t, "t", 1e15, 9, 0), s.addHalf(t, "t", 2, 0, 0)
	for _, id := range []uuid.UUID{parked, spent} {
		if err := s.CheckNow(t.Context(), 0, id, 9); err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := s.ClaimChecks(t.Context(), 0, "g", 100, 2, Checks{Delay: func(Half) int64 { return 1000 }, Budget: 9})
	if err != nil || len(claimed) != 2 {
		t.Fatalf("%d claimed, %v; want 2", len(claimed), err)
	}
	for _, h := range claimed {
		if want := map[uuid.UUID]int{parked: 1, spent: 9}[h.Msg.ID]; h.Checks != want {
			t.Errorf("half %s claimed with check %d, want %d; the one not asked for is %s", h.Msg.ID, h.Checks, want, other)
		}
	}
}

func TestAHalfThatIsGoneIsUnknownUntilItsDecisionTells(t *testing.T) {
	s := open(t)
	id := uuid.New()
	if _, err := s.GetHalf(t.Context(), 0, id); !errors.Is(err, ErrUnknownHalf) {
		t.Errorf("a half: %v", err)
	}
	if _, _, err := s.Decided(t.Context(), id); !errors.Is(err, ErrUnknownHalf) {
		t.Errorf("a decision: %v", err)
	}
	s.exec(t, "INSERT INTO half_decision VALUES (?, 2, 7)", id[:])
	if d, at, err := s.Decided(t.Context(), id); d != RolledBack || at != 7 || err != nil {
		t.Errorf("%v at %d, %v; want a rollback at 7", d, at, err)
	}
}

func TestHalvesAreCountedByTopicFromTheKeyAloneAndUpToALimit(t *testing.T) {
	s := open(t)
	var rows []string
	for i := range 2000 {
		rows = append(rows, fmt.Sprintf("(UNHEX(LPAD('%x', 32, '0')), 'g', '%s', '', '', REPEAT('x', 1000), 1, 'g', '', %d, 0, 0, %d)", i, []string{"a", "b"}[i%2], 100+i, i%4/3))
	}
	s.exec(t, "INSERT INTO half_00 (id, producer_group, topic, msg_key, headers, body, mirrored, asked, check_url, prepared_at, next_check_at, checks, parked) VALUES "+strings.Join(rows, ","))
	s.exec(t, "ANALYZE TABLE half_00")
	got, err := s.CountHalves(t.Context(), 0, 600)
	want := []HalfCount{{"a", false, 600, 100}, {"b", false, 500, 101}, {"b", true, 500, 103}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, query := range []string{
		"SELECT topic, parked, MIN(prepared_at) FROM half_00 FORCE INDEX (by_topic) GROUP BY topic, parked",
		"SELECT 1 FROM half_00 FORCE INDEX (by_topic) WHERE topic = 'a' AND parked = 0 LIMIT 600",
	} {
		if plan := explain(t, s, query); !strings.Contains(plan, "by_topic") || !says(plan, "Using index", "Covering index") {
			t.Errorf("%s reads more than the key: %s", query, plan)
		}
	}
	if plan := explain(t, s, "SELECT topic, parked, MIN(prepared_at) FROM half_00 FORCE INDEX (by_topic) GROUP BY topic, parked"); !says(plan, "Using index for group-by", "skip scan for grouping") {
		t.Errorf("the list of topics reads every entry of the key: %s", plan)
	}
}

// says tells whether a plan says a thing in the words of one server or the other.
func says(plan, mariadb, mysql string) bool {
	return strings.Contains(plan, mariadb) || strings.Contains(plan, mysql)
}

// explain is the server's plan as text.
func explain(t *testing.T, s *Store, query string) string {
	t.Helper()
	rows, err := s.db.Query("EXPLAIN " + query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	values, into := make([]*string, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var text []string
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if v != nil {
				text = append(text, *v)
			}
		}
	}
	return strings.Join(text, " ")
}

func TestTheOutboxIsCountedUpToALimit(t *testing.T) {
	s := open(t)
	if c, err := s.CountOutbox(t.Context(), 10); err != nil || c != (OutboxCount{}) {
		t.Errorf("an empty outbox: %+v, %v", c, err)
	}
	for range 12 {
		s.exec(t, "INSERT INTO outbox (id, topic, headers, body) VALUES (REPEAT('i', 16), 't', '', '')")
	}
	s.exec(t, "INSERT INTO outbox_rejected VALUES (3, REPEAT('i', 16), 't', '', '', 'body', 'why', 9)")
	c, err := s.CountOutbox(t.Context(), 10)
	if err != nil || c.Rows != 10 || c.Rejected != 1 || c.Last != c.First+11 {
		t.Errorf("%+v, %v", c, err)
	}
	if r, err := s.GetRejected(t.Context(), 3); err != nil || string(r.Msg.Body) != "body" || r.Reason != "why" {
		t.Errorf("the rejected row: %+v, %v", r, err)
	}
	if _, err := s.GetRejected(t.Context(), 2); !errors.Is(err, ErrNoRejected) {
		t.Errorf("no rejected row: %v", err)
	}
}

func TestASettingOfANewerProgramStaysWhenAnotherIsChanged(t *testing.T) {
	s := open(t)
	if err := s.CreateTopic(t.Context(), Topic{Name: "t", Mirrored: true, Settings: TopicSettings{CheckAfter: 7}}); err != nil {
		t.Fatal(err)
	}
	topic := func() Topic {
		t.Helper()
		r, err := s.Registry(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.Topics["t"]
	}
	if got := topic().Settings.CheckAfter; got != 7 {
		t.Errorf("created with 7, read %d", got)
	}
	s.exec(t, `UPDATE registry_topic SET settings = '{"later":{"a":1},"check_after_us":7}'`)
	if err := s.SetTopic(t.Context(), "t", func(x *TopicSettings) error { x.CheckAfter = 8; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := topic().Settings.CheckAfter; got != 8 {
		t.Errorf("set to 8, read %d", got)
	}
	if err := s.SetTopic(t.Context(), "t", func(x *TopicSettings) error { x.CheckAfter = 0; return nil }); err != nil {
		t.Fatal(err)
	}
	if n := s.one(t, `SELECT COUNT(*) FROM registry_topic WHERE settings = '{"later":{"a":1}}'`); n != 1 {
		t.Error("the newer program's setting is gone, or the cleared one stays")
	}
	if err := s.SetTopic(t.Context(), "none", func(*TopicSettings) error { return nil }); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a topic that is not declared: %v", err)
	}
}
