package store

import (
	"testing"

	"notifymirror/notifyd/shard"
)

func TestAReadingCoversOnlyWhatWasAcknowledgedUntilALaterOne(t *testing.T) {
	before := SemiSync{On: true, Replicas: 1, Missed: 7}
	for _, c := range []struct {
		later SemiSync
		want  bool
	}{
		{SemiSync{On: true, Replicas: 1, Missed: 7}, true},
		{SemiSync{On: true, Missed: 7}, true}, // it left when it had acknowledged
		{SemiSync{On: true, Replicas: 1, Missed: 8}, false},
		{SemiSync{Replicas: 1, Missed: 7}, false},
	} {
		if got := before.Covers(c.later); got != c.want {
			t.Errorf("%+v covers: %v, want %v", c.later, got, c.want)
		}
	}
	for s, want := range map[SemiSync]bool{before: true, {On: true}: false, {Replicas: 1}: false} {
		if s.Acknowledging() != want {
			t.Errorf("%+v acknowledging: %v", s, !want)
		}
	}
}

// Without a write of its own a repeat's transaction is in no binlog, and its COMMIT waits for nobody.
func TestARepeatWritesWhereAReplicaHasToAcknowledgeIt(t *testing.T) {
	s := open(t)
	w, taken := own(t, s, "one")
	slot := shard.NewSlot(taken.Epoch)
	put := func(mark bool) (repeated bool) {
		t.Helper()
		in := insertOf(taken.Epoch, slot, "x")
		in.Items[0].IdempotencyKey, in.Window, in.Mark = "k", 1e12, mark
		_, v, err := w.Insert(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if v[0].Pos != 0 {
			slot.Commit()
		}
		return v[0].Repeated
	}
	rows := func(want int64) {
		t.Helper()
		if n := s.one(t, "SELECT COUNT(*) FROM dedup"); n != want {
			t.Errorf("%d rows, want %d", n, want)
		}
	}
	if put(true) {
		t.Error("the first is a repeat")
	}
	rows(1)
	if !put(false) || !put(true) {
		t.Error("a repeat is not one")
	}
	rows(2)
	if n, err := s.ForgetKeys(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("ForgetKeys = %d, %v", n, err)
	}
	rows(1)
}
