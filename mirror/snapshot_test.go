package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/canal"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
)

// write inserts as an owner does, one transaction after another, until ctx ends: the epoch
// row under a shared lock, the rows, the commit. Some are rolled back, and their n used again.
func (b *storeBench) write(ctx context.Context, shard int, r *rand.Rand) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil // ended before it began
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	body := make([]byte, 200)
	for ctx.Err() == nil {
		pos := b.next[shard]
		tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return err
		}
		var epoch int64
		if err := tx.QueryRow("SELECT epoch FROM epoch WHERE shard = ? LOCK IN SHARE MODE", shard).Scan(&epoch); err != nil {
			return err
		}
		var values []string
		var args []any
		for range 1 + r.IntN(5) {
			id := uuid.Must(uuid.NewV7())
			values = append(values, "(?, ?, 'trades', ?, '', ?, 1, "+schema.NowMicros+")")
			args = append(args, pos, id[:], fmt.Sprintf("k%d", shard), body)
			pos++
		}
		if _, err := tx.Exec("INSERT INTO "+schema.Message(shard)+" ("+schema.MessageColumnList+") VALUES "+strings.Join(values, ","), args...); err != nil {
			return err
		}
		if r.IntN(10) == 0 {
			if err := tx.Rollback(); err != nil {
				return err
			}
			continue
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		b.next[shard] = pos
	}
	return nil
}

// writers runs one writer for each shard; stop waits for their end.
func (b *storeBench) writers(r *rand.Rand) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	for shard := range scriptShards {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			if err := b.write(ctx, shard, own); err != nil {
				b.t.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	b.t.Cleanup(stop)
	return stop
}

// grantBackfill gives the mirror's account the rights of a backfill, as the halt says it.
func (b *storeBench) grantBackfill() {
	b.t.Helper()
	cfg := b.dsnConfig()
	for statement := range strings.SplitSeq(backfillGrants(cfg.DBName, "'"+cfg.User+"'@'127.0.0.1'"), "; ") {
		b.sql(statement)
	}
}

func (b *storeBench) dsnConfig() *mysql.Config {
	b.t.Helper()
	cfg, err := parseDSN(b.config.Stores["a"].DSN)
	if err != nil {
		b.t.Fatal(err)
	}
	return cfg
}

// A spot is where a message stands in the store.
type spot struct {
	shard int
	pos   int64
}

// A message is in a snapshot or in the binlog behind its position, never in neither. What is
// in both, which MySQL allows itself, is not above the snapshot's highest pos.
func TestSnapshotAndBinlogMeetUnderWriters(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.grantBackfill()
	cfg := b.dsnConfig()
	c := b.realCopier()
	info, err := c.readStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := b.writers(newRand(t))
	type taken struct {
		at      canal.Position
		highest [scriptShards]int64
		rows    map[spot]bool
	}
	var all []taken
	for range 40 * soak() {
		v, err := openView(t.Context(), cfg, info, true)
		if err != nil {
			t.Fatal(err)
		}
		one := taken{at: v.position(), rows: map[spot]bool{}}
		for shard := range scriptShards {
			if one.highest[shard], err = v.highest(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
			for m, err := range v.rows(t.Context(), shard, 0, one.highest[shard]) {
				if err != nil {
					t.Fatal(err)
				}
				one.rows[spot{shard, m.pos}] = true
			}
		}
		if err := v.close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	stop()
	twice := 0
	for i, one := range all {
		seen := one.rows
		for p := range b.inserted(c, one.at) {
			if p.pos <= one.highest[p.shard] {
				twice++
				continue
			}
			seen[p] = true
		}
		for shard, next := range b.next {
			for pos := int64(1<<posBits + 1); pos < next; pos++ {
				if !seen[spot{shard, pos}] {
					t.Fatalf("snapshot %d: shard %d: %s is neither in it nor behind %s", i, shard, posText(pos), one.at.GTIDs)
				}
			}
		}
	}
	t.Logf("%d snapshots, %d messages in a snapshot and behind it", len(all), twice)
	if info.flavor == canal.MariaDB && twice > 0 {
		t.Errorf("%d messages twice", twice)
	}
}

// inserted are the messages in the binlog behind a position.
func (b *storeBench) inserted(c *Copier, at canal.Position) map[spot]bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	info, err := c.readStore(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	c.shards.Store(scriptShards)
	all := map[spot]bool{}
	rows := rowDecoder{schema: c.dsn.DBName}
	for t, err := range c.openProbe(at).txns(ctx) {
		if err != nil {
			b.t.Fatal(err)
		}
		if t.kind == canal.Rows {
			for row, err := range t.rows {
				if err != nil {
					b.t.Fatal(err)
				}
				m, err := rows.message(row)
				if err != nil {
					b.t.Fatal(err)
				}
				all[spot{m.shard, m.pos}] = true
			}
		}
		if left, err := info.position.Minus(t.after()); err != nil {
			b.t.Fatal(err)
		} else if left == "" {
			return all
		}
	}
	b.t.Fatal("the binlog ended")
	return nil
}

// A canald that is stopped while it holds the locks keeps no writer for longer than a second
// or two, and when it goes on it uses nothing that it read under them.
func TestLocksOfAStoppedCanaldAreFreedByTheServer(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.grantBackfill()
	cfg := b.dsnConfig()
	err := locking(t.Context(), cfg, func(ctx context.Context, lock *sql.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := b.db.ExecContext(ctx, "UPDATE epoch SET epoch = epoch WHERE shard = 0") // waits for the lock
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "lock of the epoch rows") {
		t.Fatalf("locked all the while: %v", err)
	}
	// What a writer has locked is waited for a second, and no longer.
	tx, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var epoch int64
	if err := tx.QueryRow("SELECT epoch FROM epoch WHERE shard = 1 LOCK IN SHARE MODE").Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = locking(t.Context(), cfg, func(context.Context, *sql.Conn) error { return nil })
	if !isServerError(err, 1205) {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
}

// While a snapshot is read no message table can be altered, and INSERTs queue behind the ALTER: as the
// operators are told.
func TestAnAlterWaitsForTheSnapshotAndInsertsBehindIt(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.grantBackfill()
	b.insert(0, 3, "trades", short)
	info, err := b.realCopier().readStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := openView(t.Context(), b.dsnConfig(), info, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.highest(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	altered := make(chan error, 1)
	go func() {
		_, err := b.db.ExecContext(t.Context(), "ALTER TABLE "+schema.Message(0)+" COMMENT 'altered'")
		altered <- err
	}()
	eventually(t, func() error {
		var waits int
		err := b.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'ALTER%' AND state LIKE '%metadata lock'").Scan(&waits)
		if err == nil && waits == 0 {
			err = errors.New("the ALTER does not wait")
		}
		return err
	})
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SET SESSION lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO "+schema.Message(0)+" SELECT * FROM "+schema.Message(0)+" WHERE pos < 0")
		return err
	}
	if err := insert(); !isServerError(err, 1205) {
		t.Errorf("an INSERT behind the ALTER: %v", err)
	}
	if err := v.close(); err != nil {
		t.Fatal(err)
	}
	if err := <-altered; err != nil {
		t.Error(err)
	}
	if err := insert(); err != nil {
		t.Error(err)
	}
}
