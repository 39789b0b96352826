package store

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/shard"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

const lease = 10 * time.Second

func open(t *testing.T) *Store {
	t.Helper()
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), "a", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func writer(t *testing.T, s *Store) *Writer {
	t.Helper()
	w, err := s.NewWriter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// own makes owner the owner of shard 0 with one writer.
func own(t *testing.T, s *Store, owner string) (*Writer, Taken) {
	t.Helper()
	w := writer(t, s)
	taken, err := s.Take(t.Context(), Take{Owner: owner, Lease: lease, Connections: []Connection{w.Connection()}})
	if err != nil {
		t.Fatal(err)
	}
	return w, taken
}

func (s *Store) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) one(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insertOf(epoch int64, slot *shard.Slot, bodies ...string) *Insert {
	in := &Insert{Epoch: epoch, Batch: NewBatch(), Window: 1e6, Begin: slot.Begin}
	for _, b := range bodies {
		in.Items = append(in.Items, Item{Msg: &message.Message{ID: uuid.New(), Topic: "t", Body: []byte(b), Mirrored: true}})
	}
	return in
}

func TestALeaseThatHoldsCannotBeTaken(t *testing.T) {
	s := open(t)
	_, taken := own(t, s, "one")
	if taken.Epoch != 1 {
		t.Errorf("epoch %d, want 1", taken.Epoch)
	}
	if _, err := s.Take(t.Context(), Take{Owner: "two", Lease: lease}); !errors.Is(err, ErrNotFree) {
		t.Fatalf("Take = %v, want ErrNotFree", err)
	}
	if _, err := s.Take(t.Context(), Take{Owner: "two", Lease: lease, Retake: 1}); !errors.Is(err, ErrNotFree) {
		t.Fatalf("retake by another = %v, want ErrNotFree", err)
	}
	if err := s.Release(t.Context(), 0, 1, "one"); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Renew(t.Context(), "one", map[int]int64{0: 1}, lease); err != nil || len(kept) != 0 {
		t.Errorf("a released lease was renewed: %v, %v", kept, err)
	}
	if taken, err := s.Take(t.Context(), Take{Owner: "two", Lease: lease}); err != nil || taken.Epoch != 2 {
		t.Fatalf("Take after release = %+v, %v", taken, err)
	}
}

func TestTakeoverKillsAnOwnerThatStoppedInsideATransaction(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "stopped")
	if _, err := w.fence(t.Context(), 0, taken.Epoch); err != nil { // holds the epoch row
		t.Fatal(err)
	}
	s.exec(t, "UPDATE lease SET expires_at = 1 WHERE shard = 0")
	next, err := s.Take(t.Context(), Take{Owner: "next", Lease: lease})
	if err != nil || next.Epoch != taken.Epoch+1 {
		t.Fatalf("Take = %+v, %v", next, err)
	}
	slot := shard.NewSlot(taken.Epoch)
	if _, _, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "late")); !errors.Is(err, ErrUnknown) {
		t.Errorf("insert of the stopped owner = %v, want ErrUnknown", err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 0 {
		t.Errorf("%d messages of the stopped owner", n)
	}
}

func TestAConnectionOfAnEarlierServerRunIsNotKilled(t *testing.T) {
	s := open(t)
	w := writer(t, s)
	old := w.Connection()
	old.StartedAt -= 3600
	taken, err := s.Take(t.Context(), Take{Owner: "one", Lease: lease, Connections: []Connection{old}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.fence(t.Context(), 0, taken.Epoch); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "UPDATE lease SET expires_at = 1 WHERE shard = 0")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := s.Take(ctx, Take{Owner: "two", Lease: lease}); err == nil {
		t.Fatal("the shard was taken while a stranger held the epoch row")
	}
	if err := w.Ping(t.Context()); err != nil {
		t.Errorf("the connection was killed: %v", err)
	}
}

func TestAFormerOwnerWritesNothing(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	slot := shard.NewSlot(taken.Epoch)
	if _, v, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "a", "b")); err != nil || v[1].Pos != shard.At(1, 2) {
		t.Fatalf("Insert = %v, %v", v, err)
	}
	slot.Commit()
	s.exec(t, "UPDATE lease SET expires_at = 1 WHERE shard = 0")
	if _, err := s.Take(t.Context(), Take{Owner: "two", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "c")); !errors.Is(err, ErrFenced) {
		t.Errorf("insert = %v, want ErrFenced", err)
	}
	plan := &shard.Plan{Version: taken.Version, Delete: []shard.Pos{shard.At(1, 1)}}
	if _, err := w.Settle(t.Context(), &Settlement{Epoch: taken.Epoch, Plan: plan}); !errors.Is(err, ErrFenced) {
		t.Errorf("settle = %v, want ErrFenced", err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

// settling prepares a shard with two messages and returns a function that settles.
func settling(t *testing.T) (*Store, func(Settlement) error) {
	s := open(t)
	w, taken := own(t, s, "one")
	slot := shard.NewSlot(taken.Epoch)
	if _, _, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "a", "b")); err != nil {
		t.Fatal(err)
	}
	return s, func(x Settlement) error {
		x.Epoch = taken.Epoch
		if x.Plan == nil {
			x.Plan = &shard.Plan{}
		}
		if x.Plan.Version == 0 {
			x.Plan.Version = taken.Version
		}
		_, err := w.Settle(t.Context(), &x)
		return err
	}
}

func TestTheLastAckTakesTheMessageUnlessADeadLetterPinsIt(t *testing.T) {
	s, settle := settling(t)
	a, b := shard.At(1, 1), shard.At(1, 2)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(settle(Settlement{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: a, Group: 1}, {Pos: a, Group: 2}, {Pos: b, Group: 1}}}}))
	s.exec(t, "INSERT INTO dead_letter_00 VALUES (?, 2, 'rejected', 1, '', '', 0)", int64(b))
	must(settle(Settlement{Acks: []shard.Ack{{Pos: a, Group: 1}, {Pos: b, Group: 1}}}))
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 2 {
		t.Fatalf("%d messages, want both: a group or a dead letter still needs each", n)
	}
	must(settle(Settlement{Acks: []shard.Ack{{Pos: a, Group: 2}, {Pos: a, Group: 2}}}))
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 1 {
		t.Errorf("%d messages after the last ack, want 1", n)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM pending_00"); n != 0 {
		t.Errorf("%d pending rows, want 0", n)
	}
}

func TestAnAckWithoutAPendingRowDeletesNothing(t *testing.T) {
	s, settle := settling(t)
	if err := settle(Settlement{Acks: []shard.Ack{{Pos: shard.At(1, 1), Group: 1}}}); err != nil {
		t.Fatal(err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestADeadLetterNamedTwiceOrThereAlreadyStopsNoSettling(t *testing.T) {
	s, settle := settling(t)
	a, b := shard.At(1, 1), shard.At(1, 2)
	if err := settle(Settlement{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: a, Group: 1}, {Pos: b, Group: 1}}}}); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "INSERT INTO dead_letter_00 VALUES (?, 1, 'rejected', 1, '', '', 0)", int64(b))
	err := settle(Settlement{Deads: []shard.DeadRow{{Pos: b, Group: 1, Reason: "expired"}, {Pos: a, Group: 1, Reason: "expired"}, {Pos: a, Group: 1, Reason: "max_attempts"}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM dead_letter_00 WHERE pos = ? AND reason = 'expired' OR pos = ? AND reason = 'rejected'", int64(a), int64(b)); n != 2 {
		t.Errorf("%d dead letters with their first reason, want 2", n)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM pending_00"); n != 0 {
		t.Errorf("%d pending rows, want 0", n)
	}
}

func TestAFailureOfAnEarlierAttemptChangesNothing(t *testing.T) {
	s, settle := settling(t)
	a := shard.At(1, 1)
	for _, x := range []Settlement{
		{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: a, Group: 1, Attempts: 1, NextAt: 10}}}},
		{Fails: []shard.PendingRow{{Pos: a, Group: 1, Attempts: 3, NextAt: 30, Err: "three"}}},
		{Fails: []shard.PendingRow{{Pos: a, Group: 1, Attempts: 2, NextAt: 20, Err: "two"}, {Pos: a, Group: 9, Attempts: 2, NextAt: 20}}},
	} {
		if err := settle(x); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.one(t, "SELECT next_at FROM pending_00 WHERE last_error = 'three' AND attempts = 3"); n != 30 {
		t.Errorf("next_at %d, want 30", n)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM pending_00"); n != 1 {
		t.Errorf("%d pending rows, want 1", n)
	}
}

func TestSettlingByAnOldRegistryWritesNothing(t *testing.T) {
	s, settle := settling(t)
	if err := s.CreateTopic(t.Context(), Topic{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := settle(Settlement{Plan: &shard.Plan{Delete: []shard.Pos{shard.At(1, 1)}}}); !errors.Is(err, ErrVersion) {
		t.Fatalf("settle = %v, want ErrVersion", err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestPageSkipsWhatIsSettled(t *testing.T) {
	s, settle := settling(t)
	if err := settle(Settlement{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: shard.At(1, 1), Group: 1}}}}); err != nil {
		t.Fatal(err)
	}
	page, upTo, err := s.Page(t.Context(), 0, 0, shard.At(1, 9), 10)
	if err != nil || len(page) != 1 || page[0].Pos != shard.At(1, 2) || upTo != shard.At(1, 9) {
		t.Fatalf("Page = %v, %v, %v", page, upTo, err)
	}
	s.exec(t, "INSERT INTO dead_letter_00 VALUES (?, 2, 'rejected', 1, '', '', 0)", int64(shard.At(1, 2)))
	if page, _, err = s.Page(t.Context(), 0, 0, shard.At(1, 9), 10); err != nil || len(page) != 0 {
		t.Fatalf("Page over a dead letter = %v, %v", page, err)
	}
}

func TestDueRowsComeInOrderBehindTheCursor(t *testing.T) {
	s, settle := settling(t)
	a, b := shard.At(1, 1), shard.At(1, 2)
	if err := settle(Settlement{Plan: &shard.Plan{Pending: []shard.PendingRow{
		{Pos: a, Group: 1, NextAt: 0}, {Pos: b, Group: 1, NextAt: 0}, {Pos: a, Group: 2, NextAt: 7}, {Pos: b, Group: 2, NextAt: 5}}}}); err != nil {
		t.Fatal(err)
	}
	check := func(group int32, after Cursor, now int64, most int, wantMore bool, want ...shard.Pos) {
		t.Helper()
		due, more, err := s.DueRows(t.Context(), 0, group, after, now, most, func(shard.Pos) *message.Message { return nil })
		if err != nil || more != wantMore || len(due) != len(want) {
			t.Fatalf("DueRows = %v, %v, %v; want %v, %v", due, more, err, want, wantMore)
		}
		for i, d := range due {
			if d.Pos != want[i] {
				t.Errorf("row %d is %v, want %v", i, d.Pos, want[i])
			}
		}
	}
	before := Cursor{NextAt: -1}
	check(1, before, 100, 10, false, a, b)
	check(1, before, 100, 1, true, a)
	check(1, Cursor{0, a}, 100, 10, false, b)
	check(2, before, 100, 10, false, b, a)
	check(2, before, 6, 10, false, b)
	check(2, Cursor{5, b}, 100, 10, false, a)
}

func TestExpiredIdempotencyKeysCanBeUsedAgain(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	slot := shard.NewSlot(taken.Epoch)
	put := func(window int64) Verdict {
		t.Helper()
		in := insertOf(taken.Epoch, slot, "x")
		in.Items[0].IdempotencyKey, in.Window = "k", window
		_, v, err := w.Insert(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		slot.Commit()
		return v[0]
	}
	if v := put(-1); v.Pos == 0 {
		t.Fatal("a new key was not stored")
	}
	if v := put(60e6); v.Pos == 0 {
		t.Error("an expired key was taken for a repeat")
	}
	if v := put(60e6); v.Pos != 0 || v.Conflict {
		t.Errorf("a repeat was not recognised: %+v", v)
	}
	s.exec(t, "UPDATE dedup SET expires_at = 1")
	if n, err := s.ForgetKeys(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("ForgetKeys = %d, %v; want 1", n, err)
	}
}

func TestSettlingDoesNotWaitForRowsBeingInserted(t *testing.T) {
	s, settle := settling(t)
	a, b := shard.At(1, 1), shard.At(1, 2)
	if err := settle(Settlement{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: a, Group: 1}, {Pos: b, Group: 1}}}}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, q := range []string{
		"INSERT INTO message_00 VALUES (1, '0123456789abcdef', 't', '', '', '', 1, 0)",
		"INSERT INTO pending_00 VALUES (1, 1, 0, 0, '', NULL, 0)",
	} {
		if _, err := tx.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []Settlement{
		{Fails: []shard.PendingRow{{Pos: a, Group: 1, Attempts: 1}, {Pos: b, Group: 1, Attempts: 1}}},
		{Deads: []shard.DeadRow{{Pos: b, Group: 1, Reason: "rejected", Attempts: 2}}},
		{Acks: []shard.Ack{{Pos: a, Group: 1}, {Pos: b, Group: 1}}},
	} {
		if err := settle(x); err != nil {
			t.Errorf("settle = %v", err)
		}
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 0 {
		t.Errorf("%d messages, want 0", n)
	}
}

func TestABrokerFrozenInARegistryChangeLosesTheEpochRows(t *testing.T) {
	s := open(t)
	tx, err := s.takers.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE epoch SET registry_version = registry_version + 1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	if _, err := s.Take(ctx, Take{Owner: "one", Lease: lease}); err != nil {
		t.Fatalf("Take = %v", err)
	}
	if v := s.one(t, "SELECT MAX(registry_version) FROM epoch"); v != 1 {
		t.Errorf("registry version %d, want 1: the change never committed", v)
	}
}

func TestADecisionIsKeptWhileASecondCopyOfItsHalfIsThere(t *testing.T) {
	s := open(t)
	copied, single := uuid.New(), uuid.New()
	s.exec(t, "INSERT INTO half_decision VALUES (?, 1, 0), (?, 1, 0)", copied[:], single[:])
	s.exec(t, "INSERT INTO half_05 (id, producer_group, topic, msg_key, headers, body, mirrored, asked, check_url, prepared_at, next_check_at, checks, parked)"+
		" VALUES (?, 'g', 't', '', '', '', 1, 'g', '', 0, 0, 0, 0)", copied[:])
	n, err := s.ForgetDecisions(t.Context(), 1, 10)
	if err != nil || n != 1 {
		t.Fatalf("ForgetDecisions = %d, %v; want 1", n, err)
	}
	if left := s.one(t, "SELECT COUNT(*) FROM half_decision WHERE id = ?", copied[:]); left != 1 {
		t.Error("the decision is gone: its copy could be decided again")
	}
}

func TestAnIDIsLookedForInTheOldestOutboxRowsOnly(t *testing.T) {
	s := open(t)
	first, last := uuid.New(), uuid.New()
	row := "INSERT INTO outbox (id, topic, headers, body) VALUES (?, 't', '', '')"
	s.exec(t, row, first[:])
	find := func(id uuid.UUID) (n int, all bool) {
		rows, all, err := s.FindOutbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return len(rows), all
	}
	if n, all := find(first); n != 1 || !all {
		t.Fatalf("%d rows, all %v; want 1, true", n, all)
	}
	ten := "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	s.exec(t, "INSERT INTO outbox (id, topic, headers, body) SELECT UNHEX(REPLACE(UUID(), '-', '')), 't', '', '' FROM "+ten+" a, "+ten+" b, "+ten+" c, "+ten+" d")
	s.exec(t, row, last[:])
	if n, all := find(first); n != 1 || all {
		t.Errorf("the oldest among 10,002: %d rows, all %v; want 1, false", n, all)
	}
	if n, all := find(last); n != 0 || all {
		t.Errorf("the newest among 10,002: %d rows, all %v; want 0, false", n, all)
	}
}

func TestAnAttemptThatDidNotLeaveIsTakenBackUnlessAnotherBegan(t *testing.T) {
	s, settle := settling(t)
	a, b := shard.At(1, 1), shard.At(1, 2)
	for _, x := range []Settlement{
		{Plan: &shard.Plan{Pending: []shard.PendingRow{{Pos: a, Group: 1, Attempts: 1, NextAt: 10, Err: "no ack"}, {Pos: b, Group: 1, Attempts: 2, NextAt: 20, Err: "two"}}}},
		{Fails: []shard.PendingRow{{Pos: a, Group: 1}, {Pos: b, Group: 1}}},
	} {
		if err := settle(x); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.one(t, "SELECT COUNT(*) FROM pending_00 WHERE pos = ? AND attempts = 0 AND next_at = 0 AND last_error = '' AND first_error IS NULL", int64(a)); n != 1 {
		t.Error("the attempt stays counted")
	}
	if n := s.one(t, "SELECT COUNT(*) FROM pending_00 WHERE pos = ? AND attempts = 2 AND next_at = 20 AND last_error = 'two'", int64(b)); n != 1 {
		t.Error("a later attempt is forgotten")
	}
}
