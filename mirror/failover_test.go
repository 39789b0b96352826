package mirror

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// A pairBench is a bench whose store is a server and its replica; the configuration names both.
type pairBench struct {
	*storeBench
	pair   *dbtest.Pair
	schema string
}

func newPairBench(t *testing.T) *pairBench {
	t.Helper()
	pair := dbtest.NewPair(t)
	b := &pairBench{storeBench: newStoreBench(t, pair.Primary), pair: pair}
	b.sql("GRANT REPLICATION CLIENT ON *.* TO mirror_" + b.storeID[:8] + "@'127.0.0.1'")
	cfg, err := mysql.ParseDSN(b.config.Stores["a"].DSN)
	if err != nil {
		t.Fatal(err)
	}
	b.schema = cfg.DBName
	b.config.Stores = map[string]StoreConfig{"a": {DSN: strings.Replace(cfg.FormatDSN(), cfg.Addr, pair.Addrs(), 1)}}
	return b
}

// copier follows the primary within a moment.
func (b *pairBench) copier() *Copier {
	c := b.realCopier()
	c.primaryEvery = 50 * time.Millisecond
	return c
}

// writeTo lets the bench insert at one of the servers, as owners of a new epoch do.
func (b *pairBench) writeTo(db *embedded.DB) {
	b.t.Helper()
	pool, err := sql.Open("mysql", db.DSN(b.schema))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { pool.Close() })
	b.db = pool
	for i := range b.next {
		b.next[i] = (b.next[i]>>posBits+1024)<<posBits + 1
	}
}

// awaitGeneration waits until a generation holds so many messages.
func (b *pairBench) awaitGeneration(c *Copier, generation uint64, seq int) {
	b.t.Helper()
	eventually(b.t, func() error {
		if s := c.Status(); s.Generation != generation || s.Seq != uint64(seq) || c.Ready() != nil {
			return fmt.Errorf("status %+v, %v", s, c.Ready())
		}
		return nil
	})
}

// checkOnce proves that the mirror holds exactly the inserted messages, each once, generation
// by generation in the order of their commits: sizes says how many each has.
func (b *pairBench) checkOnce(sizes ...int) {
	b.t.Helper()
	type place struct {
		generation, seq uint64
	}
	at := map[place]uuid.UUID{}
	got := b.oracle()
	for _, m := range got {
		at[place{m.Source.Generation, m.Seq}] = m.ID
	}
	i := 0
	for g, n := range sizes {
		for seq := range n {
			if want := b.ids[i]; at[place{uint64(g) + 1, uint64(seq) + 1}] != want {
				b.t.Fatalf("generation %d seq %d is %s, want message %d, %s", g+1, seq+1, at[place{uint64(g) + 1, uint64(seq) + 1}], i, want)
			}
			i++
		}
	}
	if i != len(b.ids) || len(got) != i {
		b.t.Fatalf("%d records, %d messages, %d expected", len(got), len(b.ids), i)
	}
}

// The primary dies, the replica is promoted, and the mirror goes on there; then back again.
func TestTheMirrorGoesOnAtThePromotedReplica(t *testing.T) {
	b := newPairBench(t)
	c := b.copier()
	stop := b.run(c)
	b.insert(0, 20, "trades", short)
	b.insert(1, 700, "news", short)
	b.awaitSeq(c)
	b.insert(1, 5, "news", short) // perhaps copied from the one, perhaps from the other
	b.pair.CatchUp()
	b.pair.Primary.Kill()
	eventually(t, func() error {
		if s := c.Status(); s.Connected {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	if c.Status().Generation != 1 {
		t.Errorf("before the promotion: %+v", c.Status())
	}
	b.pair.Promote()
	b.writeTo(b.pair.Replica)
	b.insert(0, 30, "trades", short)
	b.insert(2, 3, "trades", short)
	before := 720
	eventually(t, func() error {
		s := c.Status()
		if s.Generation != 2 || c.Ready() != nil || s.Seq != 38 && s.Seq != 33 {
			return fmt.Errorf("status %+v, %v", s, c.Ready())
		}
		before = len(b.ids) - int(s.Seq)
		return nil
	})
	// A switch back, with both alive.
	if err := b.pair.Primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pair.Attach(b.pair.Primary, b.pair.Replica)
	b.pair.Swap()
	b.pair.CatchUp()
	b.sql("SET GLOBAL read_only = ON")
	b.pair.Promote()
	b.writeTo(b.pair.Replica)
	b.insert(3, 10, "news", short)
	b.awaitGeneration(c, 3, 10)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkOnce(before, len(b.ids)-10-before, 10)
}

// What the primary had not replicated when it died is in the mirror and nowhere else: the mirror
// stops, names it, and goes on behind it when that is accepted.
func TestAMirrorAheadOfThePromotedReplicaNamesTheMessages(t *testing.T) {
	b := newPairBench(t)
	c := b.copier()
	stop := b.runAgain(c)
	b.insert(0, 10, "trades", short)
	b.sql("CREATE TABLE other (a INT PRIMARY KEY)")
	b.sql("INSERT INTO other VALUES (1)")
	b.awaitSeq(c)
	b.pair.CatchUp()
	b.pair.Cut()
	shared := len(b.ids)
	b.insert(0, 2, "trades", short)
	b.sql("INSERT INTO other VALUES (2)")
	b.insert(2, 5, "news", short)
	b.awaitSeq(c)
	b.pair.Primary.Kill()
	b.pair.Promote()
	lost := slices.Clone(b.ids[shared:])
	b.writeTo(b.pair.Replica)
	b.insert(0, 4, "trades", short)
	b.awaitHalted(c, ReasonAhead)
	s := c.Status()
	var named []uuid.UUID
	if s.Ahead == nil || s.Ahead.Count != len(lost) {
		t.Fatalf("ahead %+v, want %d messages\n%s", s.Ahead, len(lost), s.LastError)
	}
	for i, m := range s.Ahead.Messages {
		named = append(named, m.ID)
		if m.Generation != 1 || m.Seq != uint64(shared+i+1) || m.Topic != map[bool]string{true: "trades", false: "news"}[i < 2] {
			t.Errorf("%d is named %+v", i, m)
		}
	}
	if !slices.Equal(named, lost) {
		t.Errorf("named %v, want %v", named, lost)
	}
	if !strings.Contains(s.LastError, lost[0].String()+" of trades (seq 11, ") || !strings.Contains(s.LastError, "and 2 more") ||
		!strings.Contains(s.LastError, "notify mirror resume --store a --accept-gap") {
		t.Errorf("it says %s", s.LastError)
	}
	look := b.changed(c, Change{What: AcceptGap, DryRun: true})
	if look.Ahead == nil || look.Ahead.Count != len(lost) || !strings.Contains(look.Lost, lost[0].String()) || look.Repeated != "" || look.Skipped != "" {
		t.Errorf("dry run %+v", look)
	}
	b.changed(c, Change{What: AcceptGap, Gap: look.Gap})
	b.insert(2, 3, "news", short)
	b.awaitGeneration(c, 2, 7)
	stop()
	b.checkOnce(shared+len(lost), 7)
}

// While nobody tells which of two servers is the primary, nothing is copied from either.
func TestTwoServersThatAcceptWritesAreWaitedFor(t *testing.T) {
	b := newPairBench(t)
	c := b.copier()
	stop := b.run(c)
	b.insert(0, 10, "trades", short)
	b.awaitSeq(c)
	b.pair.CatchUp()
	b.pair.Promote()
	eventually(t, func() error {
		s := c.Status()
		if s.State != Waiting || !strings.Contains(s.LastError, "more than one server of the store accepts writes ("+strings.Replace(b.pair.Addrs(), ",", ", ", 1)+")") {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	b.sql("SET GLOBAL read_only = ON")
	b.writeTo(b.pair.Replica)
	b.insert(0, 10, "trades", short)
	b.awaitGeneration(c, 2, 10)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkOnce(10, 10)
}

// A primary that moves while the tables are read is why that ended, as it is while the binlog is read.
func TestAPrimaryThatMovesUnderABackfillIsWhyThatEnds(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	cfg := b.dsnConfig()
	cfg.Addr += ",127.0.0.1:1"
	b.config.Stores = map[string]StoreConfig{"a": {DSN: cfg.FormatDSN()}}
	b.config.SpoolDir = t.TempDir()
	b.script.add(scriptMessage{topic: "trades"})
	c := b.copier(b.used(newRand(t)), func(c *Copier) { // the script is read at another server than the one that accepts writes
		c.primaryEvery = 10 * time.Millisecond
		c.openView = func(ctx context.Context, _ storeInfo, _ bool) (snapshot, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	b.run(c)
	eventually(t, func() error {
		if s := c.Status(); s.State != Waiting || s.LastError != errMoved.Error() {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// The primary may change between the question who it is and the reading of its binlog.
func TestAPrimaryThatChangesWhileTheMirrorStartsIsFollowed(t *testing.T) {
	b := newBench(t)
	b.config.Stores = map[string]StoreConfig{"a": {DSN: "mirror:secret@tcp(127.0.0.1:1,127.0.0.1:2)/notify"}}
	b.script.add(scriptMessage{topic: "trades"})
	asked := 0
	c := b.copier(func(c *Copier) {
		c.readStore = func(context.Context) (storeInfo, error) {
			info := b.script.info(b.storeID)
			if asked++; asked <= 2 { // by who joins the group, and by who takes over
				info.server = "0-9"
			}
			return info, nil
		}
	})
	b.run(c)
	eventually(t, func() error {
		if s := c.Status(); s.Generation != 2 || s.Seq != 1 || c.Ready() != nil {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}
