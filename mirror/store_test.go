package mirror

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

// A storeBench is a bench whose binlog is a real server's.
type storeBench struct {
	*bench
	server *embedded.DB
	db     *sql.DB
	next   []int64
	ids    []uuid.UUID
}

func newStoreBench(t *testing.T, server *embedded.DB) *storeBench {
	t.Helper()
	dsn := dbtest.SchemaOn(t, server)
	info, err := migrate.Migrate(t.Context(), dsn, migrate.Options{Shards: scriptShards})
	if err != nil {
		t.Fatal(err)
	}
	b := &storeBench{bench: newBench(t), server: server}
	if b.db, err = sql.Open("mysql", dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	b.storeID = info.StoreID
	b.next = make([]int64, info.Shards)
	for i := range b.next {
		b.next[i] = 1<<posBits + 1
	}
	b.config.Stores = map[string]StoreConfig{"a": {DSN: b.account(dsn)}}
	return b
}

// account makes an account with the mirror's grants alone, and returns its DSN.
func (b *storeBench) account(dsn string) string {
	b.t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	name := "mirror_" + b.storeID[:8]
	for _, s := range []string{
		"CREATE USER " + name + "@'127.0.0.1' IDENTIFIED BY 'secret'",
		"GRANT REPLICATION SLAVE ON *.* TO " + name + "@'127.0.0.1'",
		"GRANT SELECT ON " + cfg.DBName + ".store TO " + name + "@'127.0.0.1'",
	} {
		if _, err := b.db.Exec(s); err != nil {
			b.t.Fatalf("%s: %v", s, err)
		}
	}
	cfg.User, cfg.Passwd = name, "secret"
	return cfg.FormatDSN()
}

// insert commits one transaction of n messages in a shard.
func (b *storeBench) insert(shard, n int, topic string, body func(i int) []byte) {
	b.t.Helper()
	tx, err := b.db.Begin()
	if err != nil {
		b.t.Fatal(err)
	}
	defer tx.Rollback()
	b.insertIn(tx, shard, n, topic, body)
	if err := tx.Commit(); err != nil {
		b.t.Fatal(err)
	}
}

// insertIn inserts n messages in a shard.
func (b *storeBench) insertIn(tx *sql.Tx, shard, n int, topic string, body func(i int) []byte) {
	b.t.Helper()
	for first := 0; first < n; first += 500 {
		var values []string
		var args []any
		for i := first; i < min(n, first+500); i++ {
			id := uuid.Must(uuid.NewV7())
			b.ids = append(b.ids, id)
			values = append(values, "(?, ?, ?, ?, ?, ?, 1, "+schema.NowMicros+")")
			args = append(args, b.next[shard], id[:], topic, fmt.Sprintf("k%d", i%20), `{"n":"v"}`, body(i))
			b.next[shard]++
		}
		if _, err := tx.Exec("INSERT INTO "+schema.Message(shard)+" ("+schema.MessageColumnList+") VALUES "+strings.Join(values, ","), args...); err != nil {
			b.t.Fatal(err)
		}
	}
}

// realCopier makes a Copier with nothing replaced.
func (b *storeBench) realCopier() *Copier {
	b.t.Helper()
	reg := b.registry
	if reg == nil {
		reg = prometheus.NewPedanticRegistry()
	}
	c, err := New(b.config, b.store, Deps{Logger: testLogger(b.t), Registerer: reg})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// awaitSeq waits until every inserted message is in Kafka.
func (b *storeBench) awaitSeq(c *Copier) {
	b.t.Helper()
	eventually(b.t, func() error {
		if s := c.Status(); s.Seq != uint64(len(b.ids)) {
			return fmt.Errorf("seq %d of %d: %+v", s.Seq, len(b.ids), s)
		}
		return nil
	})
}

// checkIDs proves that the mirror holds the inserted messages once each, with every seq.
func (b *storeBench) checkIDs() {
	b.t.Helper()
	got := b.oracle()
	byID, bySeq := map[uuid.UUID]bool{}, map[uint64]uuid.UUID{}
	for _, m := range got {
		if byID[m.ID] {
			b.t.Fatalf("message %s twice", m.ID)
		}
		byID[m.ID] = true
		bySeq[m.Seq] = m.ID
	}
	for i, id := range b.ids {
		if bySeq[uint64(i)+1] != id {
			b.t.Fatalf("seq %d is %s, message %s was committed there", i+1, bySeq[uint64(i)+1], id)
		}
	}
	if len(got) != len(b.ids) {
		b.t.Fatalf("%d records for %d messages", len(got), len(b.ids))
	}
}

func short(i int) []byte { return fmt.Appendf(nil, "body %d", i) }

func TestRealBinlogIsCopiedFromTheInstallationOn(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.insert(0, 10, "trades", short)
	b.insert(1, 1200, "trades", short)
	c := b.realCopier()
	stop := b.run(c)
	b.awaitSeq(c)
	for i := range 20 {
		b.insert(i%scriptShards, 1+i, "news", short)
	}
	b.awaitSeq(c)
	eventually(t, c.Ready)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.insert(2, 50, "trades", short)
	c = b.realCopier()
	stop = b.run(c)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}

// The upgrade adds to tables beside the message tables; what is on its way passes it.
func TestAnUpgradeOfTheSchemaBetweenMessagesChangesNothing(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.sql("DELETE FROM schema_version WHERE version_id > 1") // as a first version left it
	b.sql("ALTER TABLE registry_topic DROP COLUMN settings")
	b.sql("ALTER TABLE half_00 DROP KEY by_topic, DROP COLUMN last_error")
	b.insert(0, 10, "trades", short)
	c := b.realCopier()
	stop := b.run(c)
	b.awaitSeq(c)
	b.insert(1, 10, "trades", short)
	if _, err := migrate.MigrateDB(t.Context(), b.db, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	b.insert(2, 10, "trades", short)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}

func TestStoreThatIsNotInstalledHaltsWithTheCommand(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	if _, err := b.db.Exec("DELETE FROM store"); err != nil {
		t.Fatal(err)
	}
	err := b.halts(b.realCopier())
	var h *Halt
	if !errors.As(err, &h) || !errors.Is(err, ErrConfig) || !strings.Contains(h.Repair, "notifyd migrate") {
		t.Fatal(err)
	}
}

// A position that the server cannot serve any more must stop the mirror, also at its
// first start, when it may not read the tables: it would otherwise begin somewhere else.
func TestPurgedBinlogHalts(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.insert(0, 5, "trades", short)
	b.copiedReal()
	b.insert(0, 10, "trades", short)
	b.purge()
	b.mustHalt(b.realCopier(), ErrPurged, ReasonPurged, "lost to the mirror", "seq 5 of generation 1")

	first := *b.bench
	first.config.Cluster += "2"
	b.sql("UPDATE store SET id = '" + uuid.NewString() + "'")
	b.bench = &first
	b.mustHalt(b.realCopier(), ErrConfig, ReasonConfig, "what the binlog no longer has")
}

// reset makes the server begin its binlog anew, as one that was restored from a backup does.
func (b *storeBench) reset() {
	b.t.Helper()
	if b.server.Server().Flavor == embedded.MariaDB {
		b.sql("RESET MASTER")
		return
	}
	b.sql("RESET BINARY LOGS AND GTIDS")
}

func TestServerThatWasRestoredHalts(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.insert(0, 10, "trades", short)
	b.insert(1, 10, "trades", short)
	b.copiedReal()
	b.reset()
	b.mustHalt(b.realCopier(), ErrCheckpointAhead, ReasonAhead, "at risk", "seq 20 of generation 1")
	// It goes on, and passes the position: only the transaction under its last GTID tells.
	for range 100 {
		b.insert(2, 1, "trades", short)
	}
	b.mustHalt(b.realCopier(), ErrServerChanged, ReasonServer, "at risk", "restored from a backup")
}

func TestDeletedBinlogFileHalts(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.insert(0, 10, "trades", short)
	b.copiedReal()
	b.sql("FLUSH BINARY LOGS")
	b.insert(0, 10, "trades", short)
	b.sql("FLUSH BINARY LOGS")
	b.insert(0, 10, "trades", short)
	var base string
	if err := b.db.QueryRow("SELECT @@global.log_bin_basename").Scan(&base); err != nil {
		t.Fatal(err)
	}
	files := b.binlogs()
	gone := files[len(files)-2]
	if err := os.Remove(filepath.Join(filepath.Dir(base), gone)); err != nil {
		t.Fatal(err)
	}
	b.mustHalt(b.realCopier(), ErrFileGone, ReasonFileGone, "lost to the mirror", "seq 10 of generation 1", "put it back")
}

// The name of a server does not stay with the address.
func TestOtherServerAtTheAddressHalts(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.insert(0, 10, "trades", short)
	b.copiedReal()
	other := newStoreBench(t, dbtest.Private(t, embedded.Config{Extra: []string{"--server-id=7"}}))
	other.sql("UPDATE store SET id = '" + b.storeID + "'")
	other.insert(0, 30, "trades", short)
	b.config.Stores = other.config.Stores
	b.mustHalt(b.realCopier(), ErrServerChanged, ReasonServer, "at risk", "point the dsn back")
}

// Metrics, readiness and status say how far the mirror is behind: idle, across files, and
// when the server is gone.
func TestLagOfARealServer(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.sql("GRANT REPLICATION CLIENT ON *.* TO mirror_" + b.storeID[:8] + "@'127.0.0.1'")
	b.registry = prometheus.NewPedanticRegistry()
	c := b.realCopier()
	c.surveyEvery = 20 * time.Millisecond
	stop := b.run(c)
	caughtUp := func(files int) {
		t.Helper()
		b.awaitSeq(c)
		eventually(t, func() error {
			s := c.Status()
			if s.LagBytes == nil || *s.LagBytes != 0 || *s.FilesBefore != int64(files) || s.LagSeconds > 20 || c.Ready() != nil {
				return fmt.Errorf("status %+v", s)
			}
			return nil
		})
	}
	b.insert(0, 10, "trades", short)
	caughtUp(len(b.binlogs()) - 1)
	b.sql("FLUSH BINARY LOGS")
	b.insert(0, 10, "trades", short)
	caughtUp(len(b.binlogs()) - 1)
	b.purge()
	caughtUp(0)
	b.server.Kill()
	eventually(t, func() error {
		s, ready := c.Status(), c.Ready()
		if s.LagSeconds < 3 || ready == nil || !strings.Contains(ready.Error(), "s behind") {
			return fmt.Errorf("ready %v, status %+v", ready, s)
		}
		return nil
	})
	if got := gauge(t, b.registry, "notify_mirror_lag_seconds"); got < 3 {
		t.Errorf("notify_mirror_lag_seconds %f", got)
	}
	if got := gauge(t, b.registry, "notify_mirror_lag_bytes"); got != 0 {
		t.Errorf("notify_mirror_lag_bytes %f", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// copiedReal runs a Copier until every inserted message is in Kafka.
func (b *storeBench) copiedReal() {
	b.t.Helper()
	c := b.realCopier()
	stop := b.run(c)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
}

// purge drops all binlog but a new, empty file. The server keeps a file for as long as it
// believes that a reader has it open.
func (b *storeBench) purge() {
	b.t.Helper()
	b.sql("FLUSH BINARY LOGS")
	eventually(b.t, func() error {
		files := b.binlogs()
		b.sql("PURGE BINARY LOGS TO '" + files[len(files)-1] + "'")
		if files = b.binlogs(); len(files) > 1 {
			return fmt.Errorf("binlog files %v", files)
		}
		return nil
	})
}

func (b *storeBench) binlogs() (files []string) {
	b.t.Helper()
	rows, err := b.db.Query("SHOW BINARY LOGS")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.t.Fatal(err)
	}
	for rows.Next() {
		var file string
		into := append([]any{&file}, make([]any, len(columns)-1)...)
		for i := range into[1:] {
			into[i+1] = new(any)
		}
		if err := rows.Scan(into...); err != nil {
			b.t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func (b *storeBench) sql(statement string) {
	b.t.Helper()
	if _, err := b.db.Exec(statement); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

func TestMissingGrantHaltsWithTheGrant(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	name := "mirror_" + b.storeID[:8]
	b.sql("REVOKE REPLICATION SLAVE ON *.* FROM " + name + "@'127.0.0.1'")
	b.mustHalt(b.realCopier(), ErrConfig, ReasonConfig, "REPLICATION SLAVE")
	b.sql("ALTER USER " + name + "@'127.0.0.1' IDENTIFIED BY 'another'")
	b.mustHalt(b.realCopier(), ErrConfig, ReasonConfig)
}

// One transaction above canal's spool threshold becomes many Kafka transactions.
func TestHugeTransactionIsSplitOverKafkaTransactions(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	big := make([]byte, 3000)
	b.insert(0, 9000, "trades", func(int) []byte { return big })
	c := b.realCopier()
	stop := b.run(c)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}

// The database server and Kafka die by kill -9 and come back; the mirror stays up.
func TestServersKilledAndRestartedNothingIsLostOrRepeated(t *testing.T) {
	server := dbtest.Private(t, embedded.Config{})
	b := newStoreBench(t, server)
	c := b.realCopier()
	stop := b.run(c)
	for i := range 3 {
		b.insert(i%scriptShards, 300, "trades", short)
		if i == 1 {
			b.awaitSeq(c)
		}
		server.Kill()
		eventually(t, func() error {
			if c.Ready() == nil {
				return errors.New("still ready without a server")
			}
			return nil
		})
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.insert(0, 100, "trades", short)
	b.awaitSeq(c)
	eventually(t, c.Ready)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}
