package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/e2e/stage"
)

// takeover is the longest that a dead broker's shards may stand still.
const takeover = 12 * time.Second

// Two brokers share a store under load. One is killed; then, several times, one is frozen in
// the middle of a write transaction until the other has its shards, and goes on. Nothing that
// was acknowledged is lost, and no shard ever has two writers.
func TestBrokersThatDieOrSleepLoseNothingAndNeverShareAShard(t *testing.T) {
	p := newPlay(t)
	a, b := p.a, p.b

	killed := time.Now()
	a.Kill()
	p.AwaitShards(takeover, b)
	owned := time.Now()
	flowing := p.binlog.AwaitEveryShard(owned, p.shards, takeover)
	t.Logf("%s after the kill the survivor owned every shard, %s after it every shard took messages", owned.Sub(killed), flowing.Sub(killed))
	if flowing.Sub(killed) > takeover {
		t.Errorf("that is more than %s", takeover)
	}
	a.Start()
	p.AwaitShards(time.Minute, a, b)

	for round := range 3 {
		sleeper, other := b, a
		if round == 1 {
			sleeper, other = a, b
		}
		p.load.AwaitMore(500, 30*time.Second)
		p.freezeInTransaction(sleeper)
		took := p.AwaitShards(takeover, other)
		t.Logf("%s was frozen in a transaction, and lost its shards after %s", sleeper.ID, took)
		p.binlog.AwaitEveryShard(time.Now(), p.shards, takeover)
		sleeper.Thaw()
		p.AwaitShards(time.Minute, a, b)
	}
	p.load.AwaitMore(500, 30*time.Second)
	p.audit()
}

// A broker that sleeps inside a transaction on every shard holds all of them up no longer than
// one would.
func TestSleeperInATransactionOnEveryShardIsReplacedInTime(t *testing.T) {
	s := stage.New(t)
	heir := s.Notifyd("heir").Start()
	s.AwaitShards(time.Minute, heir)
	heir.Stop()
	shards := fallAsleep(t, s.Open())

	asleep := time.Now()
	heir.Launch()
	s.AwaitShards(takeover, heir)
	t.Logf("%d shards were taken after %s", shards, time.Since(asleep))
}

// fallAsleep takes the lease of every shard for a broker that never renews it, with a write
// transaction open in each.
func fallAsleep(t *testing.T, db *sql.DB) (shards int) {
	t.Helper()
	exec := func(on interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, query string, args ...any) {
		t.Helper()
		if _, err := on.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lease").Scan(&shards); err != nil {
		t.Fatal(err)
	}
	var name string
	var uptime int64
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Uptime'").Scan(&name, &uptime); err != nil {
		t.Fatal(err)
	}
	for shard := range shards {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		var id int64
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		exec(db, "UPDATE lease SET owner = 'sleeper', connections = ?, expires_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ? WHERE shard = ?",
			fmt.Sprintf(`[{"started_at": %d, "id": %d}]`, time.Now().Unix()-uptime, id), leaseTime.Microseconds(), shard)
		exec(conn, "BEGIN")
		exec(conn, "SELECT epoch FROM epoch WHERE shard = ? LOCK IN SHARE MODE", shard)
	}
	return shards
}

// A rolling restart hands the shards over: nobody waits for a lease to end, and nothing is
// lost.
func TestRollingRestartHandsShardsOverAtOnce(t *testing.T) {
	p := newPlay(t)
	for _, one := range []struct{ stops, stays *stage.Program }{{p.a, p.b}, {p.b, p.a}} {
		p.load.AwaitMore(500, 30*time.Second)
		one.stops.Stop()
		var held int
		err := p.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lease WHERE owner = ? AND expires_at > 0", one.stops.ID).Scan(&held)
		if err != nil || held > 0 {
			t.Errorf("%s ended with %d leases, error %v", one.stops.ID, held, err)
		}
		took := p.AwaitShards(takeover, one.stays)
		t.Logf("%s has everything %s after the end of %s", one.stays.ID, took, one.stops.ID)
		if took > leaseTime {
			t.Errorf("a released shard is not free before its lease would have ended")
		}
		one.stops.Start()
		p.AwaitShards(time.Minute, p.a, p.b)
	}
	p.audit()
}

// leaseTime is the brokers' default.
const leaseTime = 6 * time.Second

// play is two brokers, a mirror, two groups and a load.
type play struct {
	*stage.Stage
	t      *testing.T
	a, b   *stage.Program
	mirror *stage.Program
	db     *sql.DB
	shards int
	binlog *stage.Binlog
	groups []*stage.Group
	load   *stage.Load
}

func newPlay(t *testing.T) *play {
	t.Helper()
	p := &play{Stage: stage.New(t), t: t}
	p.a, p.b = p.Notifyd("a").Start(), p.Notifyd("b").Start()
	p.AwaitShards(time.Minute, p.a, p.b)
	p.mirror = p.Canald("mirror", quickTransactions).Start()
	p.db = p.Open()
	if err := p.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lease").Scan(&p.shards); err != nil {
		t.Fatal(err)
	}
	c := p.Client(p.a, p.b)
	p.Topic(c, "trades")
	p.groups = []*stage.Group{p.Listen(c, "risk", "trades"), p.Listen(c, "settlement", "trades")}
	p.binlog = p.Binlog()
	p.load = p.Load(c, "trades", 2)
	p.load.AwaitMore(1000, 30*time.Second)
	return p
}

// freezeInTransaction stops a broker at a moment at which it holds a write transaction open.
func (p *play) freezeInTransaction(b *stage.Program) {
	p.t.Helper()
	for range 100 {
		b.Freeze()
		if p.openTransactions(b) > 0 {
			return
		}
		b.Thaw()
		p.load.AwaitMore(50, takeover)
	}
	p.t.Fatalf("%s never froze inside a transaction", b.ID)
}

// openTransactions counts the shards of a frozen broker whose epoch row stays locked: the
// server may still be at work on what was sent before.
func (p *play) openTransactions(b *stage.Program) (open int) {
	p.t.Helper()
	frozen := time.Now()
	stage.Eventually(p.t, 5*time.Second, "transactions counted", func() error {
		open = 0
		for shard := range p.shards {
			if p.locked(shard, b) {
				open++
			}
		}
		if open > 0 && time.Since(frozen) < 300*time.Millisecond {
			return fmt.Errorf("%d are open", open)
		}
		return nil
	})
	return open
}

// locked tells whether a broker owns a shard, and a transaction has its epoch row.
func (p *play) locked(shard int, owner *stage.Program) bool {
	p.t.Helper()
	tx, err := p.db.BeginTx(p.t.Context(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer tx.Rollback()
	var id string
	if err := tx.QueryRow("SELECT owner FROM lease WHERE shard = ?", shard).Scan(&id); err != nil {
		p.t.Fatal(err)
	}
	if id != owner.ID {
		return false
	}
	var epoch int64
	err = tx.QueryRow("SELECT epoch FROM epoch WHERE shard = ? FOR UPDATE NOWAIT", shard).Scan(&epoch)
	var refused *mysql.MySQLError
	const mysqlNoWait, mariadbNoWait = 3572, 1205
	if errors.As(err, &refused) && (refused.Number == mysqlNoWait || refused.Number == mariadbNoWait) {
		return true
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return false
}

// audit ends the load and settles the accounts.
func (p *play) audit() {
	p.t.Helper()
	acked := p.load.Stop()
	for _, g := range p.groups {
		g.AwaitAll(acked, time.Minute)
		messages, deliveries := g.Count()
		p.t.Logf("group %s: %d messages in %d deliveries", g.Name, messages, deliveries)
	}
	p.AwaitEmpty(time.Minute)

	inserts := p.binlog.All()
	if err := stage.OneWriter(inserts); err != nil {
		p.t.Error(err)
	}
	r := p.Mirror("trades")
	r.Await(len(inserts), time.Minute)
	r.Rest()
	mirrored := map[string]int{}
	seqs := map[string]string{} // the id of each
	last := map[string]int{}    // by key
	faults := complaints{t: p.t}
	for _, rec := range r.Records {
		id := stage.Header(rec, "notify-id")
		mirrored[id]++
		seqs[stage.Header(rec, "notify-seq")] = id
		place, sent := p.load.Place(id)
		if !sent {
			faults.say("the mirror has %s, which nobody sent", id)
			continue
		}
		if before, seen := last[place.Key]; seen && place.N <= before {
			faults.say("key %s: message %d is behind message %d in partition %d", place.Key, place.N, before, rec.Partition)
		}
		last[place.Key] = place.N
	}
	for n, i := range inserts {
		if seq := strconv.Itoa(n + 1); seqs[seq] != i.ID {
			faults.say("seq %s has message %q, and %s was the one that was committed then", seq, seqs[seq], i.ID)
		}
		if mirrored[i.ID] != 1 {
			faults.say("message %s was stored and is %d times in the mirror", i.ID, mirrored[i.ID])
		}
	}
	for _, id := range acked {
		if mirrored[id] != 1 {
			faults.say("message %s was acknowledged and is %d times in the mirror", id, mirrored[id])
		}
	}
	p.t.Logf("%d messages acknowledged, %d stored, %d records", len(acked), len(inserts), len(r.Records))
}
