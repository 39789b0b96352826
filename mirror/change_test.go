package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"notifymirror/canal"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// runAgain runs a Copier as canald does: after a halt it waits for a change.
func (b *bench) runAgain(c *Copier) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.Run(ctx) != nil && c.AwaitChange(ctx) {
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	b.t.Cleanup(stop)
	return stop
}

// changed makes a change that must succeed.
func (b *bench) changed(c *Copier, what Change) Outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	out, err := c.Change(ctx, what)
	if err != nil || out.Applied == what.DryRun {
		b.t.Fatalf("%+v: %+v, %v", what, out, err)
	}
	return out
}

// refused makes a change that must be refused with that text.
func (b *bench) refused(c *Copier, what Change, says string) {
	b.t.Helper()
	if out, err := c.Change(b.t.Context(), what); !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), says) || out.Applied {
		b.t.Fatalf("%+v: %+v, %v, want %q", what, out, err, says)
	}
}

func (b *bench) awaitHalted(c *Copier, reason Reason) {
	b.t.Helper()
	eventually(b.t, func() error {
		if s := c.Status(); s.State != Halted || s.HaltedReason != reason {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// Purged binlog stops the mirror; an operator looks, accepts the gap by its name, and the
// mirror goes on where it can, without a restart.
func TestAGapIsAcceptedByItsIDAndNothingElseIsLost(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.sql("GRANT REPLICATION CLIENT ON *.* TO mirror_" + b.storeID[:8] + "@'127.0.0.1'")
	b.insert(0, 5, "trades", short)
	b.copiedReal()
	b.insert(0, 10, "trades", short)
	b.purge()
	b.insert(0, 7, "trades", short)
	c := b.realCopier()
	stop := b.runAgain(c)
	b.awaitHalted(c, ReasonPurged)
	if s := c.Status(); !strings.Contains(s.Repair, "notify mirror resume --store a --accept-gap") {
		t.Errorf("repair %q", s.Repair)
	}
	look := b.changed(c, Change{What: AcceptGap, DryRun: true})
	if look.Gap == "" || look.Skipped == "" || look.Repeated != "" || !strings.Contains(look.Lost, "seq 5 of generation 1") || look.Generation != 2 {
		t.Errorf("dry run %+v", look)
	}
	b.refused(c, Change{What: AcceptGap, Gap: "gap-00000000"}, look.Gap)
	b.awaitHalted(c, ReasonPurged)
	if out := b.changed(c, Change{What: AcceptGap, Gap: look.Gap}); out.To != look.To || out.Skipped != look.Skipped {
		t.Errorf("%+v, the dry run said %+v", out, look)
	}
	b.insert(1, 3, "trades", short)
	eventually(t, func() error {
		if s := c.Status(); s.Generation != 2 || s.Seq != 10 || s.HaltedReason != "" || c.Ready() != nil {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	stop()
	times := map[uuid.UUID]int{}
	for _, m := range b.oracle() {
		times[m.ID]++
		if i := slices.Index(b.ids, m.ID); i < 5 && m.Source.Generation != 1 || i >= 15 && (m.Source.Generation != 2 || m.Seq != uint64(i-14)) {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	for i, id := range b.ids {
		want := 1
		if i >= 5 && i < 15 {
			want = 0
		}
		if times[id] != want {
			t.Errorf("message %d is %d times in the mirror, want %d", i, times[id], want)
		}
	}
	// Who starts next finds the new generation.
	b.ids = append(b.ids[:0:0], b.ids[15:]...)
	b.copiedReal()
}

// The pos check begins anew behind a gap in pos, and only there.
func TestAGapInPosIsAccepted(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{shard: 2, topic: "trades"})
	b.script.next[2]++
	b.script.add(scriptMessage{shard: 2, topic: "trades"})
	b.script.add(scriptMessage{shard: 2, topic: "trades"})
	c := b.copier()
	b.runAgain(c)
	b.awaitHalted(c, ReasonOrder)
	look := b.changed(c, Change{What: AcceptGap, DryRun: true})
	b.changed(c, Change{What: AcceptGap, Gap: look.Gap})
	b.await(c)
	if got := b.oracle(); len(got) != 3 || c.Status().Generation != 2 {
		t.Errorf("%+v", got)
	}
	b.script.next[2]++
	b.script.add(scriptMessage{shard: 2, topic: "trades"})
	b.awaitHalted(c, ReasonOrder)
	b.refused(c, Change{What: AcceptGap, Gap: look.Gap}, "the gap's id is ")
}

// A checkpoint is changed under load; every generation holds each message once.
func TestACheckpointIsSetAndResetWhileCopying(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 30, 20, "trades")
	c := b.copier()
	stop := b.runAgain(c)
	b.await(c)
	b.refused(c, Change{What: AcceptGap}, "no gap")
	b.refused(c, Change{What: "undo"}, "unknown change")
	look := b.changed(c, Change{What: ResetCheckpoint, DryRun: true})
	if look.Repeated != "all behind the beginning, up to 0-1-30" || look.Skipped != "" || c.Status().Generation != 1 {
		t.Errorf("dry run %+v", look)
	}
	b.changed(c, Change{What: ResetCheckpoint})
	b.script.random(newRand(t), 30, 20, "trades")
	b.await(c)
	if out := b.changed(c, Change{What: SetCheckpoint, Position: "0-1-20"}); out.Repeated != "all behind 0-1-20, up to 0-1-60" || out.Generation != 3 {
		t.Errorf("set: %+v", out)
	}
	b.await(c)
	stop()
	want := map[uint64]int{}
	for i, txn := range b.script.txns {
		for _, r := range txn.rows {
			if r.Values[6].Int == 0 {
				continue
			}
			want[2]++
			if i < 30 {
				want[1]++
			}
			if i >= 20 {
				want[3]++
			}
		}
	}
	type once struct {
		id         uuid.UUID
		generation uint64
	}
	got, seen := map[uint64]int{}, map[once]bool{}
	for _, m := range b.oracle() {
		g := m.Source.Generation
		if seen[once{m.ID, g}] {
			t.Errorf("message %s twice in generation %d", m.ID, g)
		}
		seen[once{m.ID, g}] = true
		got[g]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("messages by generation %v, want %v", got, want)
	}
}

func TestOnlyTheActiveOneChangesACheckpoint(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 20, "trades")
	first := b.named("first")
	b.run(first)
	b.await(first)
	second := b.named("second")
	b.run(second)
	b.awaitState(second, Standby, "first")
	b.refused(second, Change{What: ResetCheckpoint}, "first is active")
	b.changed(first, Change{What: ResetCheckpoint})
}

// Whoever waits no longer knows that nothing comes of a change, although a run is about to make it.
func TestAChangeThatIsNotMadeInTimeIsWithdrawn(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 20, "trades")
	planned, goOn := make(chan struct{}), make(chan struct{})
	c := b.copier(func(c *Copier) {
		c.mayBackfill = func(context.Context, int) error {
			close(planned)
			<-goOn
			return nil
		}
	})
	b.run(c)
	b.await(c)
	ctx, tooLate := context.WithCancel(t.Context())
	go func() {
		<-planned
		tooLate()
	}()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Change(ctx, Change{What: CopyTables})
		answer <- err
	}()
	select {
	case err := <-answer:
		if !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "it was withdrawn, and nothing comes of it") || !strings.Contains(err.Error(), "the mirror is copying at "+c.Status().Position) {
			t.Error(err)
		}
	case <-time.After(patience / 4):
		t.Error("it waits for what may never come")
	}
	close(goOn)
	b.script.random(newRand(t), 5, 20, "trades")
	b.await(c)
	if s := c.Status(); s.Generation != 1 || s.Backfill != nil {
		t.Errorf("%+v", s)
	}
	b.changed(c, Change{What: ResetCheckpoint})
}

func TestAPositionThatTheServerDoesNotHaveIsRefused(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 20, "trades")
	c := b.copier(func(c *Copier) {
		c.readStore = func(context.Context) (storeInfo, error) {
			info := b.script.info(b.storeID)
			info.covers = func(p canal.Position) error {
				if p.GTIDs == "0-1-99" {
					return &canal.StopError{Reason: canal.ErrAheadOfServer, What: "as scripted"}
				}
				return nil
			}
			return info, nil
		}
	})
	b.run(c)
	b.await(c)
	for _, dry := range []bool{true, false} {
		b.refused(c, Change{What: SetCheckpoint, Position: "0-1-99", DryRun: dry}, "as scripted")
	}
	b.await(c)
	if s := c.Status(); s.Generation != 1 {
		t.Errorf("status %+v", s)
	}
}

// What purged binlog held is copied from the tables, as far as it is still there: behind the
// last message copied, once each, and the binlog goes on from there. An operator asks for it.
func TestAGapIsFilledFromTheTables(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.config.SpoolDir = t.TempDir()
	b.insert(0, 5, "trades", short)
	b.copiedReal()
	b.insert(0, 10, "trades", short)
	b.purge()
	b.insert(0, 7, "trades", short)
	b.sql(fmt.Sprintf("DELETE FROM message_00 WHERE pos IN (%d, %d)", b.next[0]-1, b.next[0]-10)) // delivered
	c := b.realCopier()
	stop := b.runAgain(c)
	b.awaitHalted(c, ReasonPurged)
	if s := c.Status(); !strings.Contains(s.Repair, "notify mirror backfill --store a") {
		t.Errorf("repair %q", s.Repair)
	}
	for _, dry := range []bool{true, false} {
		b.refused(c, Change{What: CopyTables, DryRun: dry}, "GRANT UPDATE ON")
		b.awaitHalted(c, ReasonPurged)
	}
	b.grantBackfill()
	look := b.changed(c, Change{What: CopyTables, DryRun: true})
	if look.Tables != "all that the store holds above the last ones copied" || look.Skipped == "" || look.Generation != 2 {
		t.Errorf("dry run %+v", look)
	}
	b.changed(c, Change{What: CopyTables})
	copied := func(generation, seq uint64) {
		t.Helper()
		eventually(t, func() error {
			if s := c.Status(); s.Generation != generation || s.Seq != seq || c.Ready() != nil {
				return fmt.Errorf("status %+v", s)
			}
			return nil
		})
	}
	copied(2, 15)
	b.insert(0, 3, "trades", short)
	copied(2, 18)
	b.changed(c, Change{What: CopyTables, All: true})
	copied(3, 23)
	stop()
	got := map[uint64][]int{}
	all := b.oracle()
	slices.SortFunc(all, func(a, b seen) int { return int(a.Seq) - int(b.Seq) })
	for _, m := range all {
		got[m.Source.Generation] = append(got[m.Source.Generation], slices.Index(b.ids, m.ID))
	}
	want := "map[1:[0 1 2 3 4] 2:[5 6 7 8 9 10 11 13 14 15 16 17 18 19 20 22 23 24] 3:[0 1 2 3 4 5 6 7 8 9 10 11 13 14 15 16 17 18 19 20 22 23 24]]"
	if fmt.Sprint(got) != want {
		t.Errorf("messages by generation %v, want %s", got, want)
	}
}
