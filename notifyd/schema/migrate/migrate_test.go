package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func pool(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestMissingSchemaIsCreatedWithItsFirstRows(t *testing.T) {
	server := dbtest.Start(t)
	const name = "no`tify"
	db := pool(t, server.DSN(""))
	t.Cleanup(func() { db.Exec("DROP DATABASE IF EXISTS `no``tify`") })
	info, err := Migrate(t.Context(), server.DSN(name), Options{Shards: 3})
	if err != nil {
		t.Fatal(err)
	}
	if info.Shards != 3 || len(info.StoreID) != 36 || info.InstalledGTID == "" || info.InstalledAt.Year() < 2024 {
		t.Errorf("store row: %+v", info)
	}
	assertWhole(t, pool(t, server.DSN(name)), 3)
	again, err := Migrate(t.Context(), server.DSN(name), Options{})
	if err != nil || again != info {
		t.Errorf("second run: %+v, %v; the first gave %+v", again, err, info)
	}
}

// describe is every column and every first row of a store, but for what differs by nature.
func describe(t *testing.T, db *sql.DB) string {
	t.Helper()
	var text strings.Builder
	for _, query := range []string{
		`SELECT CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, column_default, extra, collation_name, column_key)
			FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position`,
		`SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique)
			FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY table_name, index_name, seq_in_index`,
		"SELECT CONCAT_WS(' ', one, LENGTH(id), shards, installed_gtid <> '') FROM store",
		"SELECT CONCAT_WS(' ', shard, epoch, registry_version) FROM epoch ORDER BY shard",
		"SELECT CONCAT_WS(' ', shard, epoch, owner, expires_at, connections) FROM lease ORDER BY shard",
		"SELECT CONCAT_WS(' ', shard, pos) FROM settled ORDER BY shard",
		"SELECT CONCAT_WS(' ', version_id, is_applied) FROM schema_version ORDER BY id",
	} {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			text.WriteString(line + "\n")
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

func TestThePrintedScriptMakesWhatMigrateMakes(t *testing.T) {
	script, err := Script(2)
	if err != nil {
		t.Fatal(err)
	}
	byHand, byProgram := dbtest.Schema(t), dbtest.Schema(t)
	cfg, err := mysql.ParseDSN(byHand)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MultiStatements = true
	if _, err := pool(t, cfg.FormatDSN()).Exec(script); err != nil {
		t.Fatal(err)
	}
	want, err := Migrate(t.Context(), byProgram, Options{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Migrate(t.Context(), byHand, Options{})
	if err != nil || got.StoreID == want.StoreID || got.InstalledGTID == "" {
		t.Errorf("store row %+v, %v", got, err)
	}
	if got, want := describe(t, pool(t, byHand)), describe(t, pool(t, byProgram)); got != want {
		t.Errorf("the script made\n%s\nthe program\n%s", got, want)
	}
	if _, err := pool(t, cfg.FormatDSN()).Exec(script); !isCode(err, 1050) {
		t.Errorf("run again: %v", err)
	}
}

func TestThePrintedUpgradeMakesWhatMigrateMakes(t *testing.T) {
	for from := int64(1); from < schema.Latest; from++ {
		script, err := UpgradeScript(from, 1)
		if err != nil {
			t.Fatal(err)
		}
		address, fresh := dbtest.Schema(t), dbtest.Schema(t)
		cfg, err := mysql.ParseDSN(address)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MultiStatements = true
		db := pool(t, cfg.FormatDSN())
		if err := createVersionTable(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if err := install(t.Context(), db, Options{Shards: 1}); err != nil {
			t.Fatal(err)
		}
		for version := int64(1); version <= from; version++ {
			if version > 1 {
				if err := upgrade(version)(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Exec("INSERT INTO schema_version (version_id, is_applied) VALUES (?, TRUE)", version); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(script); err != nil {
			t.Fatalf("from %d: %v", from, err)
		}
		if _, err := Migrate(t.Context(), fresh, Options{Shards: 1}); err != nil {
			t.Fatal(err)
		}
		if got, want := describe(t, db), describe(t, pool(t, fresh)); got != want {
			t.Errorf("from %d the script made\n%s\nthe program\n%s", from, got, want)
		}
	}
	for _, from := range []int64{0, schema.Latest} {
		if _, err := UpgradeScript(from, 1); err == nil {
			t.Errorf("an upgrade from version %d", from)
		}
	}
}

func TestASchemaWithSomebodyElsesTableIsLeftAlone(t *testing.T) {
	address := dbtest.Schema(t)
	db := pool(t, address)
	for _, statement := range []string{"CREATE TABLE outbox (id INT PRIMARY KEY)", "CREATE TABLE orders (id INT PRIMARY KEY)"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Migrate(t.Context(), address, Options{})
	if !errors.Is(err, schema.ErrOccupied) || !strings.Contains(err.Error(), "table outbox") {
		t.Errorf("got %v", err)
	}
	var tables int
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables); err != nil || tables != 2 {
		t.Errorf("%d tables, %v", tables, err)
	}
	if _, err := db.Exec("DROP TABLE outbox"); err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), address, Options{}); err != nil {
		t.Errorf("beside other tables: %v", err)
	}
}

func TestEightMigrationsAtOnceMakeOneStore(t *testing.T) {
	address := dbtest.Schema(t)
	infos := make([]schema.Info, 8)
	failures := make([]error, 8)
	var group sync.WaitGroup
	for i := range infos {
		group.Go(func() { infos[i], failures[i] = Migrate(t.Context(), address, Options{Shards: 2}) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info != infos[0] {
			t.Errorf("one run found %+v, another %+v", infos[0], info)
		}
	}
	db := pool(t, address)
	assertWhole(t, db, 2)
	var applied int
	if err := db.QueryRow("SELECT COUNT(*) FROM schema_version").Scan(&applied); err != nil || applied != schema.Latest+1 {
		t.Errorf("%d version rows, %v; want each version once", applied, err)
	}
}

func TestMigrationCutOffAtAnyStatementIsCompletedByTheNext(t *testing.T) {
	for _, lostAnswer := range []bool{false, true} {
		for k := 0; ; k++ {
			address := dbtest.Schema(t)
			cut, db := cutOff(t, address, k, lostAnswer)
			_, err := MigrateDB(t.Context(), db, Options{Shards: 1})
			db.Close()
			if !cut.happened() {
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("lost answer %t: %d places", lostAnswer, k)
				break
			}
			if err == nil {
				t.Fatalf("cut at statement %d: no error", k)
			}
			healed := pool(t, address)
			if _, err := MigrateDB(t.Context(), healed, Options{Shards: 1}); err != nil {
				t.Fatalf("cut at statement %d, lost answer %t: the next run: %v", k, lostAnswer, err)
			}
			assertWhole(t, healed, 1)
			if t.Failed() {
				t.Fatalf("cut at statement %d, lost answer %t", k, lostAnswer)
			}
			healed.Close()
		}
	}
}

// version1 makes a store as the first version did, with data in every table that the second changes.
func version1(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := createVersionTable(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), db, Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"INSERT INTO schema_version (version_id, is_applied) VALUES (1, 1)",
		"INSERT INTO registry_topic (name, mirrored, created_at) VALUES ('t', 1, 7)",
		"INSERT INTO registry_subscription (group_id, topic, created_at) VALUES (1, 't', 8)",
		"INSERT INTO half_00 (id, producer_group, topic, msg_key, headers, body, mirrored, asked, check_url, prepared_at, next_check_at, checks, parked)" +
			" VALUES (REPEAT('i', 16), 'g', 't', 'k', '', 'body', 1, 'g', '', 9, 10, 2, 1)",
		"INSERT INTO message_00 (" + schema.MessageColumnList + ") VALUES (1, REPEAT('i', 16), 't', '', '', 'body', 1, 0)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
}

// assertVersion1Kept checks that the data of version1 is as it was, and that the statements of
// a program of that version still work.
func assertVersion1Kept(t *testing.T, db *sql.DB) {
	t.Helper()
	for query, want := range map[string]int{
		"SELECT COUNT(*) FROM registry_topic WHERE name = 't' AND mirrored = 1 AND created_at = 7 AND settings IS NULL":             1,
		"SELECT COUNT(*) FROM registry_subscription WHERE group_id = 1 AND topic = 't' AND created_at = 8 AND settings IS NULL":     1,
		"SELECT COUNT(*) FROM half_00 WHERE body = 'body' AND prepared_at = 9 AND next_check_at = 10 AND checks = 2 AND parked = 1": 1,
		"SELECT COUNT(*) FROM message_00 WHERE body = 'body'":                                                                       1,
	} {
		if got := count(t, db, query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	if _, err := db.Exec("INSERT INTO registry_topic (name, mirrored, created_at) VALUES ('old', 1, 7)"); err != nil {
		t.Errorf("a program of version 1: %v", err)
	}
}

func TestAStoreOfVersion1IsUpgradedWithItsDataAlsoWhenCutOffAtAnyStatement(t *testing.T) {
	for _, lostAnswer := range []bool{false, true} {
		for k := 0; ; k++ {
			address := dbtest.Schema(t)
			whole := pool(t, address)
			version1(t, whole)
			cut, db := cutOff(t, address, k, lostAnswer)
			_, err := MigrateDB(t.Context(), db, Options{})
			db.Close()
			if !cut.happened() && err != nil {
				t.Fatal(err)
			}
			if _, err := MigrateDB(t.Context(), whole, Options{}); err != nil {
				t.Fatalf("cut at statement %d, lost answer %t: the next run: %v", k, lostAnswer, err)
			}
			assertWhole(t, whole, 1)
			assertVersion1Kept(t, whole)
			if t.Failed() {
				t.Fatalf("cut at statement %d, lost answer %t", k, lostAnswer)
			}
			whole.Close()
			if !cut.happened() {
				t.Logf("lost answer %t: %d places", lostAnswer, k)
				break
			}
		}
	}
}

func TestPositionAtInstallationIsBeforeEveryMessage(t *testing.T) {
	address := dbtest.Schema(t)
	db := pool(t, address)
	info, err := MigrateDB(t.Context(), db, Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	insert := fmt.Sprintf("INSERT INTO %s (%s) VALUES (1, REPEAT('i', 16), 't', '', '', 'body', 1, 0)",
		schema.Message(0), schema.MessageColumnList)
	if _, err := db.Exec(insert); err != nil {
		t.Fatal(err)
	}
	now, err := position(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	// Other tests share the server, so the distance is only known to be at least two: the
	// first rows and the message.
	if before, after := lastSequence(t, info.InstalledGTID), lastSequence(t, now); after < before+2 {
		t.Errorf("position %s at installation, %s after a message", info.InstalledGTID, now)
	}
}

func TestNumberOfShardsCannotChange(t *testing.T) {
	address := dbtest.Schema(t)
	if _, err := Migrate(t.Context(), address, Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	_, err := Migrate(t.Context(), address, Options{Shards: 4})
	if err == nil || !strings.Contains(err.Error(), "4 asked") || !strings.Contains(err.Error(), "with 2") {
		t.Errorf("error: %v", err)
	}
	if _, err := Migrate(t.Context(), address, Options{Shards: 101}); err == nil {
		t.Error("101 shards are accepted")
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	address := dbtest.Schema(t)
	if _, err := Migrate(t.Context(), address, Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	db := pool(t, address)
	if _, err := db.Exec("INSERT INTO schema_version (version_id, is_applied) VALUES (?, 1)", schema.Latest+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), address, Options{}); !errors.Is(err, schema.ErrNewer) {
		t.Errorf("error: %v", err)
	}
}

func TestInstalledStoreNeedsNoRightToCreate(t *testing.T) {
	server := dbtest.Start(t)
	address := dbtest.Schema(t)
	if _, err := Migrate(t.Context(), address, Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatal(err)
	}
	db := pool(t, server.DSN(""))
	for _, statement := range []string{
		"CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY 'secret'",
		"GRANT SELECT ON `" + cfg.DBName + "`.* TO 'reader'@'127.0.0.1'",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { db.Exec("DROP USER 'reader'@'127.0.0.1'") })
	cfg.User, cfg.Passwd = "reader", "secret"
	if _, err := Migrate(t.Context(), cfg.FormatDSN(), Options{}); err != nil {
		t.Error(err)
	}
}

func TestLockIsFreeAfterwardsThoughThePoolStaysOpen(t *testing.T) {
	db := pool(t, dbtest.Schema(t))
	db.SetMaxIdleConns(10) // none is closed
	if _, err := MigrateDB(t.Context(), db, Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	name, err := lockName(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if free := count(t, db, "SELECT IS_FREE_LOCK('"+name+"')"); free != 1 {
		t.Errorf("IS_FREE_LOCK: %d", free)
	}
}

func TestWaitForTheLockEndsWithTheContext(t *testing.T) {
	db := pool(t, dbtest.Schema(t))
	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	name, err := lockName(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	if err := acquire(t.Context(), holder, name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := MigrateDB(ctx, db, Options{Shards: 1}); ended <- err }()
	waiting := func() (n int) {
		err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK%' AND id <> CONNECTION_ID()").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for waiting() == 0 {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
}

// assertWhole checks that all tables and first rows are there.
func assertWhole(t *testing.T, db *sql.DB, shards int) {
	t.Helper()
	info, err := schema.Read(t.Context(), db)
	if err != nil || info.Shards != shards {
		t.Errorf("store row: %+v, %v", info, err)
	}
	if version, err := schema.Version(t.Context(), db); err != nil || version != schema.Latest {
		t.Errorf("version: %d, %v", version, err)
	}
	statements, err := schema.Statements(1, shards)
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); got != len(statements)+1 {
		t.Errorf("%d tables, want %d and the version table", got, len(statements))
	}
	for query, want := range map[string]int{
		"SELECT COUNT(*) FROM epoch WHERE epoch = 0 AND registry_version = 1":                   shards,
		"SELECT COUNT(*) FROM lease WHERE owner = '' AND expires_at = 0 AND connections = '[]'": shards,
		"SELECT COUNT(*) FROM settled WHERE pos = 0":                                            shards,
	} {
		if got := count(t, db, query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	for query, want := range map[string]int{
		"SELECT COUNT(settings) + COUNT(*) FROM registry_topic":                         count(t, db, "SELECT COUNT(*) FROM registry_topic"),
		"SELECT COUNT(settings) + COUNT(*) FROM registry_subscription":                  count(t, db, "SELECT COUNT(*) FROM registry_subscription"),
		"SELECT COUNT(last_error) FROM half_00 FORCE INDEX (by_topic)":                  0,
		"SELECT COUNT(first_error) + COUNT(counts_from) FROM pending_00":                0,
		"SELECT COUNT(*) FROM (SELECT 1 FROM schema_version WHERE version_id = 2) AS t": 1,
		"SELECT COUNT(*) FROM (SELECT 1 FROM schema_version WHERE version_id = 3) AS t": 1,
	} {
		if got := count(t, db, query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	for shard := range shards {
		if columns := columns(t, db, schema.Message(shard)); !slices.Equal(columns, schema.MessageColumns()) {
			t.Errorf("columns of %s: %v", schema.Message(shard), columns)
		}
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func columns(t *testing.T, db *sql.DB, table string) []string {
	t.Helper()
	rows, err := db.Query("SELECT * FROM " + table + " WHERE 1 = 0")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// lastSequence returns the last number of a GTID position.
func lastSequence(t *testing.T, position string) (n int) {
	t.Helper()
	last := position[strings.LastIndexAny(position, "-:")+1:]
	if _, err := fmt.Sscan(last, &n); err != nil {
		t.Fatalf("position %q: %v", position, err)
	}
	return n
}
