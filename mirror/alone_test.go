package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"notifymirror/canal"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// alone makes a change that must succeed, where no canald runs.
func alone(t *testing.T, c *Copier, what Change) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := c.changeAlone(ctx, what, patience)
	if err != nil || out.Applied == what.DryRun {
		t.Fatalf("%+v: %+v, %v", what, out, err)
	}
	return out
}

func TestACheckpointIsChangedWithoutACanald(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	b.copied()
	for i, what := range []Change{
		{What: Grow, Topic: "trades", Partitions: 7}, {What: SetCheckpoint, Position: "0-1-15"}, {What: ResetCheckpoint},
	} {
		dry := what
		dry.DryRun = true
		look := alone(t, b.copier(), dry)
		out := alone(t, b.copier(), what)
		if out.Generation != look.Generation || out.Generation != uint64(i+1) || out.Repeated != look.Repeated {
			t.Errorf("%+v, the dry run said %+v", out, look)
		}
	}
	c := b.copier()
	if err := c.look(t.Context()); err != nil || c.Status().Generation != 3 {
		t.Errorf("%+v, %v", c.Status(), err)
	}
	b.run(c)
	b.await(c)
}

// A command copies nothing: not before the change, not behind it, and not where it is refused.
func TestAChangeWithoutACanaldCopiesNothing(t *testing.T) {
	b := newBench(t)
	nothing := func(c *Copier) {
		c.mayBackfill = func(context.Context, int) error { return nil }
		c.openView = func(context.Context, storeInfo, bool) (snapshot, error) {
			t.Error("the tables are read")
			return b.script.view(0), nil
		}
		c.openSource = func(at canal.Position) source {
			t.Error("the binlog is read")
			return b.script.from(at)
		}
	}
	refused := func(what Change, says string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if out, err := b.copier(nothing).changeAlone(ctx, what, patience); !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), says) || out.Applied {
			t.Errorf("%+v: %+v, %v", what, out, err)
		}
	}
	b.script.random(newRand(t), 20, 20, "trades")
	for _, what := range []What{SetCheckpoint, ResetCheckpoint, CopyTables, Grow} {
		refused(Change{What: what, Topic: "trades", Position: "0-1-3", Partitions: 7}, "start canald first")
	}
	b.copied()
	b.script.random(newRand(t), 20, 20, "trades")
	before := len(b.oracle())
	refused(Change{What: Grow, Topic: "trades", Partitions: 1}, "Kafka takes none away")
	refused(Change{What: "undo"}, "unknown change")
	for _, what := range []Change{{What: Grow, Topic: "trades", Partitions: 7}, {What: SetCheckpoint, Position: "0-1-15"}, {What: ResetCheckpoint}, {What: CopyTables}} {
		alone(t, b.copier(nothing), what)
	}
	if after := len(b.oracle()); after != before {
		t.Errorf("%d records, %d before", after, before)
	}
	if c := b.copier(); c.look(t.Context()) != nil || c.Status().Generation != 4 || c.Status().Seq != 0 {
		t.Errorf("%+v", c.Status())
	}
}

// A command wishes first, and then joins the canalds: its run meets the change, and nothing else.
func TestAChangeWithoutACanaldIsProposedBeforeItRuns(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := b.copier(func(c *Copier) {
			c.connected = func() bool { // asked with the status, before the change is proposed
				synctest.Wait()
				return true
			}
			c.readStore = func(ctx context.Context) (storeInfo, error) { // the first that a run does
				c.changing.Lock()
				if c.proposed == nil {
					t.Error("it runs without a change")
				}
				c.changing.Unlock()
				cancel()
				<-ctx.Done()
				return storeInfo{}, ctx.Err()
			}
		})
		if _, err := c.changeAlone(ctx, Change{What: ResetCheckpoint}, patience); !errors.Is(err, ErrChange) {
			t.Error(err)
		}
	})
}

// A command waits for as long as the mirror comes further, however long that is, and no longer.
func TestACommandWaitsAsLongAsTheMirrorComesFurther(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		c := b.copier()
		ctx, enough := c.patient(t.Context(), 30*time.Second)
		defer enough()
		steps := []func(i int){
			func(i int) { c.board.saved(checkpoint{Generation: 1, Seq: uint64(i)}, time.Now()) },
			func(i int) { c.board.found(checkpoint{Generation: 1, GTIDs: fmt.Sprintf("0-1-%d", i)}) },
			func(i int) {
				c.board.found(checkpoint{Generation: 1, OpenGTID: fmt.Sprintf("0-1-%d", i), OpenCopied: 1})
			},
			func(i int) { c.board.spooled(uint64(i)) },
			func(i int) { c.looked.Add(1) },
		}
		for i := range 50 {
			<-time.After(29 * time.Second)
			steps[i%len(steps)](i + 1)
		}
		<-time.After(29 * time.Second)
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
		<-time.After(2 * time.Second)
		if err := context.Cause(ctx); err == nil || !strings.Contains(err.Error(), "no further for 30s") {
			t.Error(err)
		}
	})
}

// Where the mirror is away, the change is taken back, and the command says what it waited for.
func TestACommandThatComesNoFurtherSaysWhatItWaitedFor(t *testing.T) {
	b := newBench(t)
	away := func(c *Copier) {
		c.readStore = func(context.Context) (storeInfo, error) { return storeInfo{}, errors.New("the store is away") }
	}
	for _, what := range []Change{{What: ResetCheckpoint}, {What: AcceptGap, DryRun: true}} {
		_, err := b.copier(away).changeAlone(t.Context(), what, 200*time.Millisecond)
		if !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "came no further for 200ms: the mirror is waiting: the store is away") ||
			!strings.Contains(err.Error(), map[What]string{ResetCheckpoint: "it was withdrawn, and nothing comes of it", AcceptGap: "nothing was changed"}[what.What]) {
			t.Errorf("%+v: %v", what, err)
		}
	}
}

// A lost checkpoint is left without a canald, too.
func TestALostCheckpointIsLeftWithoutACanald(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	b.copied()
	before := len(b.oracle())
	b.deleteTopic(checkpointTopic(b.storeID))
	if out := alone(t, b.copier(), Change{What: ResetCheckpoint}); out.Generation != 2 || !strings.Contains(out.Repeated, "up to 1") {
		t.Errorf("%+v", out)
	}
	if after := len(b.oracle()); after != before {
		t.Errorf("%d records, %d before", after, before)
	}
}

// A command disturbs no canald that copies, and changes nothing beside it.
func TestNoCommandTakesOverFromACanald(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	first := b.named("first")
	b.run(first)
	b.await(first)
	before := first.Status()
	for _, what := range []Change{{What: ResetCheckpoint}, {What: AcceptGap}, {What: AcceptGap, DryRun: true}, {What: Grow, Topic: "trades", Partitions: 7}} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, err := b.copier().changeAlone(ctx, what, patience)
		cancel()
		if !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "first is active") {
			t.Errorf("%+v: %+v, %v", what, out, err)
		}
	}
	b.script.random(newRand(t), 20, 20, "trades")
	b.await(first)
	if s := first.Status(); s.State != Copying || s.Since != before.Since || s.Generation != 1 {
		t.Errorf("%+v, it was %+v", s, before)
	}
	b.check()
}

func TestAGapIsAcceptedWithoutACanald(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.grantFiles()
	b.insert(0, 5, "trades", short)
	b.copiedReal()
	b.insert(0, 10, "trades", short)
	b.purge()
	b.insert(0, 7, "trades", short)
	look := alone(t, b.realCopier(), Change{What: AcceptGap, DryRun: true})
	if look.Gap == "" || !strings.Contains(look.Lost, "seq 5 of generation 1") {
		t.Errorf("%+v", look)
	}
	if out := alone(t, b.realCopier(), Change{What: AcceptGap, Gap: look.Gap}); out.Generation != 2 || out.Skipped != look.Skipped {
		t.Errorf("%+v, the dry run said %+v", out, look)
	}
	b.ids = b.ids[15:]
	b.copiedReal()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.realCopier().changeAlone(ctx, Change{What: AcceptGap, DryRun: true}, patience); !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "no gap") {
		t.Error(err)
	}
}

func TestWhereNothingWasCopiedThereIsNoCheckpointToLookAt(t *testing.T) {
	b := newBench(t)
	if _, err := b.copier().changeAlone(t.Context(), Change{What: ResetCheckpoint, DryRun: true}, patience); !errors.Is(err, ErrChange) || !errors.Is(err, ErrCheckpointLost) {
		t.Error(err)
	}
}

// Where nothing tells any more that the mirror has halted for the order of pos, the next message does:
// what is above the last ones copied would not be all that it lacks.
func TestBehindADisorderABackfillCopiesAllOrNothing(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{shard: 2, topic: "trades"}, scriptMessage{shard: 1, topic: "trades"})
	b.script.next[2]++
	b.script.add(scriptMessage{shard: 1, topic: "trades"}, scriptMessage{shard: 2, topic: "trades"})
	b.mustHalt(b.copier(), ErrOrder, ReasonOrder)
	granted := func(c *Copier) { c.mayBackfill = func(context.Context, int) error { return nil } }
	for _, dry := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, err := b.copier(granted).changeAlone(ctx, Change{What: CopyTables, DryRun: dry}, patience)
		cancel()
		if !errors.Is(err, ErrChange) || !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), "--all") || strings.Contains(err.Error(), "\n") || out.Applied {
			t.Errorf("%+v, %v", out, err)
		}
	}
	for _, dry := range []bool{true, false} {
		if out := alone(t, b.copier(granted), Change{What: CopyTables, All: true, DryRun: dry}); out.Tables != "all that the store holds" {
			t.Errorf("%+v", out)
		}
	}
}

// A look does not take the configured server id from the canald that copies.
func TestALookDoesNotDisturbACanaldWithAServerID(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.grantBackfill()
	b.config.ServerID = 4711
	c := b.realCopier()
	b.run(c)
	b.insert(0, 5, "trades", short)
	b.awaitSeq(c)
	before := c.Status()
	alone(t, b.realCopier(), Change{What: CopyTables, DryRun: true})
	b.insert(0, 5, "trades", short)
	b.awaitSeq(c)
	if s := c.Status(); s.State != Copying || s.Since != before.Since {
		t.Errorf("%+v, it was %+v", s, before)
	}
}
