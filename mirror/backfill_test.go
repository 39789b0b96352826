package mirror

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/canal"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
)

// scriptView is a snapshot of a script's store.
type scriptView struct {
	shards [scriptShards][]message
	at     canal.Position
	time   int64
}

// view takes a snapshot of what is committed and not deleted. Its position is that many
// transactions behind.
func (s *script) view(behind int) *scriptView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &scriptView{at: canal.Position{Flavor: canal.MariaDB, GTIDs: fmt.Sprintf("0-1-%d", max(1, len(s.txns)-behind))}, time: s.start.UnixMicro()}
	rows := rowDecoder{schema: "notify"}
	for _, t := range s.txns {
		for _, row := range t.rows {
			m, err := rows.message(row)
			if err != nil {
				panic(err)
			}
			if !s.deleted[m.id] {
				v.shards[m.shard] = append(v.shards[m.shard], m)
			}
		}
	}
	return v
}

func (v *scriptView) position() canal.Position { return v.at }
func (v *scriptView) takenAt() int64           { return v.time }
func (v *scriptView) close() error             { return nil }

func (v *scriptView) highest(_ context.Context, shard int) (int64, error) {
	if n := len(v.shards[shard]); n > 0 {
		return v.shards[shard][n-1].pos, nil
	}
	return 0, nil
}

func (v *scriptView) rows(_ context.Context, shard int, above, upTo int64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		for _, m := range v.shards[shard] {
			if m.pos > above && m.pos <= upTo && !yield(m, nil) {
				return
			}
		}
	}
}

// delete takes messages out of the store, as their deliveries do.
func (s *script) delete(which func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted == nil {
		s.deleted = map[uuid.UUID]bool{}
	}
	for _, t := range s.txns {
		for _, row := range t.rows {
			if which() {
				s.deleted[uuid.UUID(row.Values[1].Bytes)] = true
			}
		}
	}
}

// used makes a Copier of a store that was used before it was mirrored: the binlog from its
// installation on is purged.
func (b *bench) used(r *rand.Rand) func(*Copier) {
	behind := r.IntN(4)
	return func(c *Copier) {
		c.readStore = func(context.Context) (storeInfo, error) {
			info := b.script.info(b.storeID)
			info.covers = func(p canal.Position) error {
				if p.GTIDs == "" {
					return &canal.StopError{Reason: canal.ErrPurged}
				}
				return nil
			}
			return info, nil
		}
		c.mayBackfill = func(context.Context, int) error { return nil }
		c.openView = func(context.Context, storeInfo, bool) (snapshot, error) { return b.script.view(behind), nil }
	}
}

// checkBackfilled proves that what a reader sees is each message at most once, a shard's in
// the order of pos and seq without a hole or a repeat, and that none is missing that must be
// there. All are mirrored.
func (b *bench) checkBackfilled(must func(uuid.UUID) bool) {
	b.t.Helper()
	got := b.oracle()
	slices.SortFunc(got, func(a, b seen) int { return int(a.Seq) - int(b.Seq) })
	last := map[byte]string{}
	times := map[uuid.UUID]int{}
	for i, m := range got {
		shard, pos := m.ID[7], string(m.ID[8:])
		if times[m.ID]++; times[m.ID] > 1 {
			b.t.Fatalf("message %s is %d times in the mirror", m.ID, times[m.ID])
		}
		if m.Seq != uint64(i)+1 || m.Source.Generation != 1 {
			b.t.Fatalf("record %d has seq %d of generation %d", i+1, m.Seq, m.Source.Generation)
		}
		if pos <= last[shard] {
			b.t.Fatalf("shard %d: pos %x comes behind %x", shard, pos, last[shard])
		}
		last[shard] = pos
	}
	b.script.mu.Lock()
	defer b.script.mu.Unlock()
	missing := 0
	for _, t := range b.script.txns {
		for _, row := range t.rows {
			if id := uuid.UUID(row.Values[1].Bytes); times[id] == 0 && must(id) {
				missing++
			}
		}
	}
	if missing > 0 {
		b.t.Fatalf("%d messages are missing, %d are there", missing, len(got))
	}
}

// allMirrored makes every message of the script one that is copied.
func (s *script) allMirrored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.txns {
		for _, row := range t.rows {
			row.Values[6].Int = 1
		}
	}
}

// killed runs Copiers one after another, each killed at a random request to Kafka, until one
// has copied all; prepare is called before each, watch while it runs.
func (b *bench) killed(r *rand.Rand, used func(*Copier), prepare func(), watch func(Status)) {
	b.t.Helper()
	kills, rounds := 0, 6*soak()
	for alive := false; !alive; rounds-- {
		prepare()
		d, p := new(faultyDialer), randomTrap(r)
		dead := make(chan struct{})
		p.do = func() { d.cut(true); close(dead) }
		if rounds > 0 {
			p.set(d)
		}
		c := b.copier(used, func(c *Copier) { c.dialer = d })
		stop := b.run(c)
		eventually(b.t, func() error {
			s := c.Status()
			watch(s)
			select {
			case <-dead:
				return nil
			default:
			}
			if s.Backfill != nil {
				return fmt.Errorf("backfill: %s", s.Backfill)
			}
			return b.behind(c)
		})
		if err := stop(); err != nil {
			b.t.Fatal(err)
		}
		select {
		case <-dead:
			kills++
			b.evict("")
		default:
			alive = true
		}
	}
	if kills < 2 {
		b.t.Errorf("only %d kills", kills)
	}
	if left, err := filepath.Glob(spoolPath(b.config.SpoolDir, b.storeID, "*")); err != nil || len(left) > 0 {
		b.t.Errorf("left behind: %v, %v", left, err)
	}
}

// A canald that is killed in a backfill goes on with its spool, whatever was delivered and
// deleted since its snapshot.
func TestKilledInABackfillTheSpoolIsGoneOnWith(t *testing.T) {
	r := newRand(t)
	b := newBench(t)
	b.config.BatchRecords, b.config.Linger, b.config.SpoolDir = 40, time.Millisecond, t.TempDir()
	b.script.random(r, 60, 60, "trades", "news")
	b.script.allMirrored()
	b.script.delete(func() bool { return r.IntN(10) == 0 })
	delivered := maps.Clone(b.script.deleted)
	b.killed(r, b.used(r), func() {
		b.script.random(r, 3, 20, "trades")
		b.script.allMirrored()
	}, func(s Status) {
		if s.Backfill != nil && s.Backfill.Messages > 0 { // the snapshot is in Kafka's checkpoint
			b.script.delete(func() bool { return true })
		}
	})
	b.checkBackfilled(func(id uuid.UUID) bool { return !delivered[id] })
}

// On another machine the spool is not there: another snapshot is taken, of what is left.
// What was delivered and deleted meanwhile may be missing, and nothing else.
func TestKilledInABackfillAnotherMachineGoesOn(t *testing.T) {
	r := newRand(t)
	b := newBench(t)
	b.config.BatchRecords, b.config.Linger = 40, time.Millisecond
	b.script.random(r, 60, 60, "trades", "news")
	b.killed(r, b.used(r), func() {
		b.config.SpoolDir = t.TempDir()
		b.script.random(r, 3, 20, "trades")
		b.script.allMirrored()
		b.script.delete(func() bool { return r.IntN(20) == 0 })
	}, func(Status) {})
	b.checkBackfilled(func(id uuid.UUID) bool { return !b.script.deleted[id] })
}

// What is not mirrored counts in seq, from the tables as from the binlog; metrics and status
// show how far the backfill is.
func TestBackfillCountsWhatIsNotMirrored(t *testing.T) {
	b := newBench(t)
	b.config.SpoolDir = t.TempDir()
	others := spoolPath(b.config.SpoolDir, spoolOwner(b.storeID, "other", "elsewhere"), "kept")
	if err := os.WriteFile(others, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.registry = prometheus.NewPedanticRegistry()
	for i := range 20 {
		b.script.add(scriptMessage{shard: i % scriptShards, topic: "trades", unmirrored: i%2 == 0, body: []byte("body")})
	}
	d, copying := new(faultyDialer), make(chan struct{})
	d.before = func(key int16) bool {
		if key == apiEndTxn && d.requests(apiEndTxn) == 2 { // behind the wish and the snapshot
			<-copying
		}
		return false
	}
	c := b.copier(b.used(rand.New(rand.NewPCG(1, 1))), func(c *Copier) { c.dialer = d })
	stop := b.run(c)
	eventually(t, func() error {
		if s := c.Status(); s.Backfill == nil || s.Backfill.Messages != 20 || s.Backfill.Copied != 0 || c.Ready() == nil {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	if got := gauge(t, b.registry, "notify_mirror_backfill_remaining_messages"); got != 20 {
		t.Errorf("notify_mirror_backfill_remaining_messages %f", got)
	}
	close(copying)
	b.await(c)
	b.script.add(scriptMessage{topic: "trades"})
	b.await(c)
	if s := c.Status(); s.Seq != 21 || s.Backfill != nil || c.Ready() != nil {
		t.Errorf("status %+v", s)
	}
	if got := gauge(t, b.registry, "notify_mirror_backfill_remaining_messages"); got != 0 {
		t.Errorf("notify_mirror_backfill_remaining_messages %f", got)
	}
	if got := b.oracle(); len(got) != 11 {
		t.Errorf("%d records", len(got))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("another mirror's spool: %v", err)
	}
}

// diesInABackfill runs a canald that dies with the backfill of 20 messages under way.
func (b *bench) diesInABackfill(used func(*Copier)) {
	b.t.Helper()
	b.config.BatchRecords, b.config.Linger, b.config.SpoolDir = 5, time.Millisecond, b.t.TempDir()
	for i := range 20 {
		b.script.add(scriptMessage{shard: i % scriptShards, topic: "trades", body: []byte("body")})
	}
	d, dead := new(faultyDialer), make(chan struct{})
	d.before = func(key int16) bool {
		if key != apiEndTxn || d.requests(apiEndTxn) != 3 { // behind the wish, the snapshot, and its first batch
			return false
		}
		d.cut(true)
		close(dead)
		return true
	}
	c := b.copier(used, func(c *Copier) { c.dialer = d })
	stop := b.run(c)
	<-dead
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
	if s := c.Status(); s.Backfill == nil || s.Backfill.Messages != 20 {
		b.t.Fatalf("no backfill under way: %+v", s)
	}
	b.evict("")
}

// goesOn runs a canald until all is mirrored, each message once.
func (b *bench) goesOn(used func(*Copier)) {
	b.t.Helper()
	c := b.copier(used)
	stop := b.run(c)
	eventually(b.t, func() error {
		if s := c.Status(); s.Seq != 20 || s.Backfill != nil {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	b.checkBackfilled(func(uuid.UUID) bool { return true })
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
}

// A backfill is not gone on with at another server, whose tables and binlog the snapshot is not
// of: that halts. Back at its own server it goes on where it was.
func TestABackfillIsNotGoneOnWithAtAnotherServer(t *testing.T) {
	b := newBench(t)
	b.config.Stores = map[string]StoreConfig{"a": {DSN: "mirror@tcp(127.0.0.1:1,127.0.0.1:2)/notify"}}
	used := b.used(rand.New(rand.NewPCG(1, 1)))
	b.diesInABackfill(used)
	own := b.script.server
	b.script.server = "0-2"
	b.mustHalt(b.copier(used), ErrServerChanged, ReasonServer, "--accept-gap")
	b.script.server = own
	b.goesOn(used)
}

// A spool that is whole by its looks and lacks messages ends with another snapshot, not with a gap.
func TestASpoolThatLacksMessagesIsMadeAnew(t *testing.T) {
	b := newBench(t)
	used := b.used(rand.New(rand.NewPCG(1, 1)))
	b.diesInABackfill(used)
	spools, err := filepath.Glob(spoolPath(b.config.SpoolDir, b.storeID+".*", "*"))
	if err != nil || len(spools) != 1 {
		t.Fatalf("spools %q, %v", spools, err)
	}
	if err := os.Remove(spools[0]); err != nil {
		t.Fatal(err)
	}
	empty, err := createSpool(spools[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range scriptShards {
		empty.endShard()
	}
	sp, err := empty.finish()
	if err != nil {
		t.Fatal(err)
	}
	sp.close()
	b.goesOn(used)
}

// A store that was used before it was mirrored: without the rights the mirror says which it
// needs; with them it copies what the tables hold, and goes on, under writers.
func TestUsedStoreBeginsWithItsTables(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.config.SpoolDir = t.TempDir()
	r := newRand(t)
	for i := range 10 {
		b.insert(i%scriptShards, 100, "trades", short)
	}
	b.sql("DELETE FROM " + schema.Message(1) + " WHERE MOD(pos, 3) = 0")
	b.purge()
	b.mustHalt(b.realCopier(), ErrConfig, ReasonConfig, "GRANT SELECT ON", "GRANT UPDATE ON", "notify mirror checkpoint reset --store a")
	b.grantBackfill()
	delivered := map[spot]bool{}
	for pos := int64(1<<posBits + 1); pos < b.next[1]; pos++ {
		delivered[spot{1, pos}] = pos%3 == 0
	}
	stopWriters := b.writers(r)
	c := b.realCopier()
	stop := b.run(c)
	eventually(t, c.Ready)
	b.awaitMore(c)
	stopWriters()
	b.checkStored(c, delivered)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// awaitMore waits until the Copier has copied more than there was when it was called.
func (b *storeBench) awaitMore(c *Copier) {
	b.t.Helper()
	before := c.Status().Seq
	eventually(b.t, func() error {
		if s := c.Status(); s.Seq <= before+100 {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// checkStored waits until every message that was ever inserted, but for those delivered, is
// in Kafka, and proves that each is there once, in order.
func (b *storeBench) checkStored(c *Copier, delivered map[spot]bool) {
	b.t.Helper()
	eventually(b.t, func() error {
		s := c.Status()
		for shard, next := range b.next {
			if want := posText(next - 1); s.Shards[shard] != want {
				return fmt.Errorf("shard %d ends at %s: %+v", shard, want, s)
			}
		}
		return nil
	})
	stored := map[uuid.UUID]spot{}
	for shard := range b.next {
		rows, err := b.db.Query("SELECT id, pos FROM " + schema.Message(shard))
		if err != nil {
			b.t.Fatal(err)
		}
		for rows.Next() {
			var id []byte
			p := spot{shard: shard}
			if err := rows.Scan(&id, &p.pos); err != nil {
				b.t.Fatal(err)
			}
			stored[uuid.UUID(id)] = p
		}
		if err := rows.Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	got := b.oracle()
	slices.SortFunc(got, func(a, b seen) int { return int(a.Seq) - int(b.Seq) })
	last := make([]int64, len(b.next))
	for i, m := range got {
		p := stored[m.ID]
		if m.Seq != uint64(i)+1 || p.pos <= last[p.shard] {
			b.t.Fatalf("record %d has seq %d, pos %s of shard %d behind %s", i+1, m.Seq, posText(p.pos), p.shard, posText(last[p.shard]))
		}
		last[p.shard] = p.pos
		delete(stored, m.ID)
	}
	for id, p := range stored {
		if !delivered[p] {
			b.t.Fatalf("message %s of shard %d at %s is missing, %d are there", id, p.shard, posText(p.pos), len(got))
		}
	}
}
