package preflight

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema/migrate"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestGoodServerAndAccountPassForBothRoles(t *testing.T) {
	address := dbtest.Schema(t)
	if r := Check(t.Context(), address, Options{Role: Broker}); r.Err() != nil || len(r.Warnings()) > 0 {
		t.Errorf("broker before installation: %+v", r)
	}
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []Role{Broker, Mirror} {
		if r := Check(t.Context(), address, Options{Role: role}); r.Err() != nil || len(r.Warnings()) > 0 {
			t.Errorf("role %d after installation: %+v", role, r)
		}
	}
}

func TestEveryFaultOfTheAddressHasItsOwnLineAndCode(t *testing.T) {
	server := dbtest.Start(t)
	good, err := mysql.ParseDSN(dbtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	const password = "PLANTED-secret"
	with := func(change func(*mysql.Config)) string {
		cfg := good.Clone()
		change(cfg)
		return cfg.FormatDSN()
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct {
		address string
		code    int
		says    string
	}{
		"empty":                          {"", codeConfig, "it is empty"},
		"no at sign":                     {"root:" + password + "/notify", codeConfig, "does not parse"},
		"no slash":                       {"root:" + password + "@tcp(127.0.0.1:3306)", codeConfig, "does not parse"},
		"unknown flag":                   {"root:" + password + "@tcp(127.0.0.1:3306)/notify?parseTime=" + password, codeConfig, "does not parse"},
		"no schema":                      {"root:" + password + "@tcp(127.0.0.1:3306)/", codeConfig, "names no schema"},
		"closed port":                    {with(func(c *mysql.Config) { c.Addr, c.Passwd = closed.Addr().String(), password }), codeUnreachable, "connection refused"},
		"silent port":                    {with(func(c *mysql.Config) { c.Addr, c.ReadTimeout = silent.Addr().String(), 100*time.Millisecond }), codeUnreachable, "no connection to"},
		"unknown host":                   {with(func(c *mysql.Config) { c.Addr, c.Passwd = "store.invalid:3306", password }), codeUnreachable, "store.invalid"},
		"wrong password":                 {with(func(c *mysql.Config) { c.Passwd = password }), codeDenied, "a password was given"},
		"no password":                    {with(func(c *mysql.Config) { c.Passwd = "" }), codeDenied, "no password was given"},
		"unknown user":                   {with(func(c *mysql.Config) { c.User, c.Passwd = "nobody", password }), codeDenied, `refuses user "nobody"`},
		"dsn hides rows from the binlog": {with(func(c *mysql.Config) { c.Params = map[string]string{"sql_log_bin": "0"} }), codeConfig, "sql_log_bin=OFF"},
		"dsn with a small packet":        {with(func(c *mysql.Config) { c.MaxAllowedPacket = 1 << 20 }), codeConfig, "maxAllowedPacket=1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			report := Check(ctx, c.address, Options{Role: Broker})
			err, ok := errors.AsType[*Error](report.Err())
			if !ok || len(report.Problems()) != 1 {
				t.Fatalf("report: %+v", report)
			}
			if err.ExitCode() != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("code %d, want %d, and %q in: %s", err.ExitCode(), c.code, c.says, err)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), server.Password()) {
				t.Errorf("the password is shown: %s", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %s", err)
			}
		})
	}
}

func TestEveryBadSettingOfAServerIsReportedAtOnce(t *testing.T) {
	server := dbtest.Private(t, embedded.Config{Extra: []string{
		"--binlog-format=STATEMENT", "--binlog-row-metadata=MINIMAL", "--sync-binlog=0",
		"--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=2M", "--binlog-do-db=other", "--read-only",
	}})
	report := Check(t.Context(), server.DSN("notify"), Options{Role: Broker})
	assertLines(t, report,
		[]string{"is read-only (read_only=ON)", "binlog_format=STATEMENT", "binlog_row_metadata=MINIMAL", "binlog_do_db=other", "max_allowed_packet=2097152"},
		[]string{"sync_binlog=0", "innodb_flush_log_at_trx_commit=2"})
	if names := schemas(t, server); names != "" {
		t.Errorf("schemas after the check: %s", names)
	}
}

// The statements that the lines name are typed as they stand, and leave nothing to mend.
func TestNamedStatementsMendAServer(t *testing.T) {
	extra := []string{"--binlog-format=MIXED", "--binlog-row-metadata=MINIMAL", "--sync-binlog=0",
		"--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=2M", "--read-only"}
	lines := 6
	if kind, err := dbtest.Server(); err == nil && kind.Flavor == embedded.MySQL {
		extra = append(extra, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
		lines++
	}
	server := dbtest.Private(t, embedded.Config{Extra: extra})
	admin := open1(t, server.DSN(""))
	report := Check(t.Context(), server.DSN("notify"), Options{Role: Broker})
	wrong := append(report.Problems(), report.Warnings()...)
	if len(wrong) != lines {
		t.Errorf("%d lines, want %d: %q", len(wrong), lines, wrong)
	}
	for _, f := range wrong {
		for _, statement := range f.Mend.SQL {
			must(t, admin, statement)
		}
	}
	report = Check(t.Context(), server.DSN("notify"), Options{Role: Broker})
	if report.Err() != nil || len(report.Warnings()) > 0 {
		t.Errorf("afterwards: %v, %q", report.Err(), report.Warnings())
	}
}

func TestServerWithoutBinlogIsRefused(t *testing.T) {
	server := dbtest.Private(t, embedded.Config{Extra: []string{"--skip-log-bin"}})
	for _, role := range []Role{Broker, Mirror} {
		report := Check(t.Context(), server.DSN("notify"), Options{Role: role})
		if len(report.Problems()) == 0 || !strings.Contains(report.Problems()[0].String(), "log_bin=OFF") {
			t.Errorf("role %d: %+v", role, report)
		}
	}
}

// The statements that the problems name are typed as they stand, and mend them.
func TestNamedGrantsAreExactlyWhatIsMissing(t *testing.T) {
	address := dbtest.Schema(t)
	admin := open1(t, address)
	cfg, _ := mysql.ParseDSN(address)
	account := func(name string) string {
		must(t, admin, fmt.Sprintf("CREATE USER '%s'@'127.%%' IDENTIFIED BY 'secret'", name))
		t.Cleanup(func() { admin.Exec(fmt.Sprintf("DROP USER '%s'@'127.%%'", name)) })
		c := cfg.Clone()
		c.User, c.Passwd = name, "secret"
		return c.FormatDSN()
	}
	broker, mirror := account("poor_broker"), account("poor_mirror")

	denied(t, broker, Broker, "lacks SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER on schema "+cfg.DBName)
	typeGrants(t, admin, broker, Broker)
	if _, err := migrate.Migrate(t.Context(), broker, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	must(t, admin, "REVOKE CREATE, UPDATE, DELETE ON `"+cfg.DBName+"`.* FROM 'poor_broker'@'127.%'")
	denied(t, broker, Broker, "lacks UPDATE, DELETE on schema "+cfg.DBName+": let an administrator type: GRANT UPDATE, DELETE ON `"+cfg.DBName+"`.* TO 'poor_broker'@'127.%'")
	typeGrants(t, admin, broker, Broker)

	must(t, admin, "DELETE FROM `"+cfg.DBName+"`.schema_version WHERE version_id > 1") // as an earlier program left it
	must(t, admin, "REVOKE ALTER ON `"+cfg.DBName+"`.* FROM 'poor_broker'@'127.%'")
	denied(t, broker, Broker, "lacks ALTER on schema "+cfg.DBName)
	typeGrants(t, admin, broker, Broker)
	if _, err := migrate.Migrate(t.Context(), broker, migrate.Options{}); err != nil {
		t.Fatal(err)
	}

	denied(t, mirror, Mirror, "GRANT REPLICATION SLAVE ON *.* TO 'poor_mirror'@'127.%'; GRANT SELECT ON `"+cfg.DBName+"`.store TO 'poor_mirror'@'127.%'")
	typeGrants(t, admin, mirror, Mirror)
	report := Check(t.Context(), mirror, Options{Role: Mirror})
	if len(report.Warnings()) != 1 || !strings.Contains(report.Warnings()[0].String(), "GRANT REPLICATION CLIENT") {
		t.Errorf("warnings: %q", report.Warnings())
	}
	backfill := func() []string {
		for _, f := range Check(t.Context(), mirror, Options{Role: Mirror}).Findings {
			if f.Severity == finding.Note && strings.Contains(f.Why, "cannot backfill") {
				return f.Mend.SQL
			}
		}
		return nil
	}
	named := backfill()
	for _, statement := range named {
		must(t, admin, statement)
	}
	if again := backfill(); len(named) != 2 || again != nil {
		t.Errorf("rights of a backfill: named %q, then %q", named, again)
	}
}

func TestRightsThroughARoleCount(t *testing.T) {
	address := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	admin := open1(t, address)
	cfg, _ := mysql.ParseDSN(address)
	t.Cleanup(func() {
		admin.Exec("DROP USER 'with_role'@'127.%'")
		admin.Exec("DROP ROLE mirrors")
	})
	must(t, admin, "CREATE ROLE mirrors")
	must(t, admin, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO mirrors")
	must(t, admin, "GRANT SELECT ON `"+cfg.DBName+"`.store TO mirrors")
	must(t, admin, "CREATE USER 'with_role'@'127.%' IDENTIFIED BY 'secret'")
	must(t, admin, "GRANT mirrors TO 'with_role'@'127.%'")
	if _, err := admin.Exec("SET DEFAULT ROLE mirrors FOR 'with_role'@'127.%'"); err != nil {
		must(t, admin, "SET DEFAULT ROLE mirrors TO 'with_role'@'127.%'") // MySQL's form
	}
	c := cfg.Clone()
	c.User, c.Passwd = "with_role", "secret"
	if r := Check(t.Context(), c.FormatDSN(), Options{Role: Mirror}); r.Err() != nil || len(r.Warnings()) > 0 {
		t.Errorf("report: %+v", r)
	}
}

func TestMirrorIsToldWhereNoStoreIsInstalled(t *testing.T) {
	server := dbtest.Start(t)
	for _, address := range []string{dbtest.Schema(t), server.DSN("not_there")} {
		report := Check(t.Context(), address, Options{Role: Mirror})
		if len(report.Problems()) != 1 || !strings.Contains(report.Problems()[0].String(), "notifyd migrate") {
			t.Errorf("report: %+v", report)
		}
	}
}

func denied(t *testing.T, address string, role Role, says string) {
	t.Helper()
	report := Check(t.Context(), address, Options{Role: role})
	if len(report.Problems()) != 1 || report.Problems()[0].Exit != codeDenied || !strings.Contains(report.Problems()[0].String(), says) {
		t.Errorf("want %q in %+v", says, report.Problems())
	}
}

// typeGrants types what the problem names, and expects it to be gone.
func typeGrants(t *testing.T, admin *sql.DB, address string, role Role) {
	t.Helper()
	report := Check(t.Context(), address, Options{Role: role})
	for _, p := range report.Problems() {
		for _, statement := range p.Mend.SQL {
			must(t, admin, statement)
		}
	}
	if r := Check(t.Context(), address, Options{Role: role}); r.Err() != nil {
		t.Errorf("after the grants: %v", r.Err())
	}
}

func assertLines(t *testing.T, report Report, problems, warnings []string) {
	t.Helper()
	if len(report.Problems()) != len(problems) || len(report.Warnings()) != len(warnings) {
		t.Fatalf("report: %v\n%q", report.Err(), report.Warnings())
	}
	for i, want := range problems {
		if got := report.Problems()[i].String(); !strings.Contains(got, want) {
			t.Errorf("problem %d: %q not in: %s", i, want, got)
		}
	}
	for i, want := range warnings {
		if got := report.Warnings()[i].String(); !strings.Contains(got, want) {
			t.Errorf("warning %d: %q not in: %s", i, want, got)
		}
	}
}

// schemas lists the schemas that are not the server's own.
func schemas(t *testing.T, server *embedded.DB) string {
	t.Helper()
	var names sql.NullString
	err := open1(t, server.DSN("")).QueryRow(`SELECT GROUP_CONCAT(schema_name) FROM information_schema.schemata
		WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema', 'test')`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names.String
}

func open1(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
