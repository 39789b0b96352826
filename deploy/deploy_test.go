package deploy_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/canal"
	"notifymirror/deploy"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/schema/preflight"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := deploy.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestServersAcceptMyCnf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my.cnf")
	if err := os.WriteFile(path, []byte(read(t, "my.cnf")), 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := dbtest.Server()
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"--defaults-file=" + path, "--verbose", "--help"}
	if os.Getuid() == 0 { // otherwise the server refuses
		arguments = append(arguments, "--user=root")
	}
	if server.Flavor == embedded.MySQL {
		arguments = []string{"--defaults-file=" + path, "--secure-file-priv=NULL", "--validate-config"}
	}
	if out, err := exec.Command(server.Path, arguments...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", server, err, out)
	}
}

// A server that starts with my.cnf has nothing for the check to complain of.
func TestServerWithMyCnfIsFitForAStore(t *testing.T) {
	var flags []string
	for line := range strings.Lines(read(t, "my.cnf")) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found && !strings.HasPrefix(name, "#") {
			flags = append(flags, "--"+strings.TrimSpace(name)+"="+strings.TrimSpace(value))
		}
	}
	server := dbtest.Private(t, embedded.Config{Extra: flags})
	report := preflight.Check(t.Context(), server.DSN("notify"), preflight.Options{Role: preflight.Broker})
	if report.Err() != nil || len(report.Warnings()) > 0 {
		t.Errorf("%v, %q", report.Err(), report.Warnings())
	}
}

// account is one of grants.sql, seen from a test.
type account struct {
	t  *testing.T
	db *sql.DB
	// dsn of its schema.
	dsn string
}

func (a account) may(statement string) {
	a.t.Helper()
	if _, err := a.db.Exec(statement); err != nil {
		a.t.Errorf("%s: %v", statement, err)
	}
}

func (a account) mayNot(statements ...string) {
	a.t.Helper()
	for _, statement := range statements {
		_, err := a.db.Exec(statement)
		server, ok := errors.AsType[*mysql.MySQLError](err)
		if !ok || !slices.Contains([]uint16{1044, 1045, 1142, 1143, 1227, 1370}, server.Number) {
			a.t.Errorf("%s: %v; want denied", statement, err)
		}
	}
}

func TestEachAccountCanDoItsWorkAndNoMore(t *testing.T) {
	server := dbtest.Private(t, embedded.Config{})
	admin := open(t, server.DSN(""))
	use := func(name string) account {
		user, password := "notify_"+name, "CHANGE-ME-"+name+"-1"
		address := fmt.Sprintf("%s:%s@tcp(%s)/notify", user, password, server.Addr())
		return account{t, open(t, address), address}
	}
	before, after, found := strings.Cut(strings.ReplaceAll(read(t, "grants.sql"), "'10.%'", "'127.%'"), "-- Now make the tables")
	if !found {
		t.Fatal("grants.sql does not say when to make the tables")
	}
	apply(t, admin, before)
	fit(t, use("migrate").dsn, preflight.Broker)
	if _, err := migrate.Migrate(t.Context(), use("migrate").dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	apply(t, admin, "-- "+after)

	migrator, broker, mirror, app := use("migrate"), use("broker"), use("mirror"), use("app")
	migrator.mayNot("SELECT * FROM mysql.user", "CREATE DATABASE other", "CREATE USER x")

	fit(t, broker.dsn, preflight.Broker)
	if _, err := migrate.Migrate(t.Context(), broker.dsn, migrate.Options{}); err != nil {
		t.Errorf("start of a broker on an installed store: %v", err)
	}
	broker.may("DO GET_LOCK('x', 0), RELEASE_LOCK('x')")
	broker.may("INSERT INTO message_00 (" + schema.MessageColumnList + ") VALUES (1, REPEAT('i', 16), 't', '', '', 'body', 1, 0)")
	killOwnConnection(t, broker.db)
	broker.mayNot("CREATE TABLE more (a INT)", "DROP TABLE message_00", "ALTER TABLE message_00 ADD x INT", "SELECT * FROM mysql.user", "SHOW BINARY LOGS")

	fit(t, mirror.dsn, preflight.Mirror)
	if info, err := schema.Read(t.Context(), mirror.db); err != nil || info.Shards != schema.DefaultShards {
		t.Errorf("the mirror reads %+v, %v", info, err)
	}
	mirror.may("SHOW BINARY LOGS")
	mirror.mayNot("SELECT * FROM message_00", "UPDATE store SET shards = 1", "DELETE FROM store", "SELECT * FROM epoch", "CREATE TABLE more (a INT)")
	readsBinlog(t, mirror)

	app.may("INSERT INTO outbox (id, topic, headers, body) VALUES (REPEAT('i', 16), 't', '', '')")
	app.mayNot("SELECT * FROM outbox", "DELETE FROM outbox", "SELECT * FROM message_00", "SELECT * FROM store",
		"INSERT INTO message_00 ("+schema.MessageColumnList+") VALUES (2, REPEAT('i', 16), 't', '', '', 'body', 1, 0)")
}

// readsBinlog reads from the store's installation on, until the message that was inserted.
func readsBinlog(t *testing.T, mirror account) {
	t.Helper()
	info, err := schema.Read(t.Context(), mirror.db)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(mirror.dsn)
	if err != nil {
		t.Fatal(err)
	}
	flavor := canal.MariaDB
	if server, err := dbtest.Server(); err == nil && server.Flavor == embedded.MySQL {
		flavor = canal.MySQL
	}
	tailer, err := canal.NewTailer(canal.Config{Addr: cfg.Addr, User: cfg.User, Password: cfg.Passwd, Schema: cfg.DBName,
		Watch: func(table string) bool { _, ok := schema.ParseMessage(table); return ok }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for txn, err := range tailer.Txns(ctx, canal.Position{Flavor: flavor, GTIDs: info.InstalledGTID}) {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range txn.Rows() {
			if err != nil || row.Table.Name != schema.Message(0) {
				t.Errorf("row of %s, %v", row.Table.Name, err)
			}
			return
		}
	}
	t.Error("the message is not in the binlog behind the store's installation")
}

// killOwnConnection does what a takeover does to the connections of the owner before.
func killOwnConnection(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var id int64
	if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(fmt.Sprintf("KILL %d", id)); err != nil {
		t.Errorf("KILL of an own connection: %v", err)
	}
}

func fit(t *testing.T, address string, role preflight.Role) {
	t.Helper()
	report := preflight.Check(t.Context(), address, preflight.Options{Role: role})
	if report.Err() != nil || len(report.Warnings()) > 0 {
		t.Errorf("role %d: %v, %q", role, report.Err(), report.Warnings())
	}
}

// apply types the statements of a script.
func apply(t *testing.T, db *sql.DB, script string) {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "--") {
			text.WriteString(line)
		}
	}
	for statement := range strings.SplitSeq(text.String(), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func open(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
