package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"notifymirror/notifyd/shard"
)

func TestAPacketHoldsTheEpochRowUntilItsCommit(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	door, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	run := func(query string) {
		t.Helper()
		if _, err := door.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	run("DO GET_LOCK('door', 0)")
	var body statements
	body.add("DO GET_LOCK('door', 60)")
	ended := make(chan error, 1)
	go func() {
		_, err := w.once(context.WithoutCancel(t.Context()), 0, guard{epoch: taken.Epoch}, &body)
		ended <- err
	}()
	deadline := time.Now().Add(20 * time.Second)
	for s.one(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the packet never came to its body")
		}
	}
	run("SET innodb_lock_wait_timeout = 1")
	if _, err := door.ExecContext(t.Context(), "UPDATE epoch SET epoch = epoch + 1 WHERE shard = 0"); !hasCode(err, codeLockTimeout) {
		t.Errorf("the epoch was changed beside the packet: %v", err)
	}
	run("DO RELEASE_LOCK('door')")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	run("UPDATE epoch SET epoch = epoch + 1 WHERE shard = 0")
}

func TestNothingOfAPacketRunsBehindAFenceThatChanged(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	for name, g := range map[string]guard{
		"epoch":   {epoch: taken.Epoch + 1},
		"version": {epoch: taken.Epoch, version: taken.Version + 1},
		"both":    {epoch: taken.Epoch + 1, version: taken.Version + 1},
	} {
		var body statements
		body.add("UPDATE settled SET pos = 7 WHERE shard = 0")
		body.add("COMMIT")
		if _, err := w.once(t.Context(), 0, g, &body); !errors.Is(err, errGuard) {
			t.Errorf("%s: %v, want errGuard", name, err)
		}
		if n := s.one(t, "SELECT pos FROM settled WHERE shard = 0"); n != 0 {
			t.Fatalf("%s: settled is %d", name, n)
		}
	}
	slot := shard.NewSlot(taken.Epoch)
	if _, v, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "a")); err != nil || v[0].Pos != shard.At(taken.Epoch, 1) {
		t.Errorf("the connection is of no use: %v, %v", v, err)
	}
}

func TestAPacketThatFailsInsideLeavesNothing(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	slot := shard.NewSlot(taken.Epoch)
	if _, _, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "a")); err != nil {
		t.Fatal(err)
	}
	slot.Commit()
	var body statements
	body.add("DELETE FROM message_00")
	body.add("INSERT INTO epoch (shard, epoch, registry_version) VALUES (0, 0, 0)") // is there
	_, err := w.once(t.Context(), 0, guard{epoch: taken.Epoch}, &body)
	if !hasCode(err, codeDuplicate) || errors.Is(err, ErrUnknown) {
		t.Fatalf("once = %v, want the server's error", err)
	}
	if n := s.one(t, "SELECT COUNT(*) FROM message_00"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	fence, v, err := w.Insert(t.Context(), insertOf(taken.Epoch, slot, "b"))
	if err != nil || v[0].Pos != shard.At(taken.Epoch, 2) {
		t.Fatalf("the connection is of no use: %v, %v", v, err)
	}
	if born := s.one(t, "SELECT born_at FROM message_00 WHERE pos = ?", int64(v[0].Pos)); born != fence.Now || born == 0 {
		t.Errorf("born_at %d, the fence's clock %d", born, fence.Now)
	}
}
