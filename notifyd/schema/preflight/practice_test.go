package preflight

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema/migrate"
)

// Each mistake, made on a running server, is found by its name and with its severity, and
// what the finding says, typed as it stands, mends it.
func TestEverySettingThatShouldBeOtherwiseIsFoundAndMended(t *testing.T) {
	server := dbtest.Private(t, embedded.Config{})
	admin := open1(t, server.DSN(""))
	subjects := func() (all []string, found map[string]finding.Finding) {
		found = map[string]finding.Finding{}
		report := Check(t.Context(), server.DSN("notify"), Options{Role: Broker})
		for _, f := range report.Findings {
			found[f.Subject] = f
		}
		return slices.Sorted(maps.Keys(found)), found
	}
	before, _ := subjects()
	mistakes := 0
	for _, c := range []struct {
		name, wrong string // wrong as SQL
		severity    finding.Severity
	}{
		{"binlog_format", "'MIXED'", finding.Error},
		{"binlog_row_metadata", "'MINIMAL'", finding.Error},
		{"max_allowed_packet", "1048576", finding.Error},
		{"read_only", "ON", finding.Error},
		{"sync_binlog", "0", finding.Warning},
		{"innodb_flush_log_at_trx_commit", "2", finding.Warning},
		{"binlog_expire_logs_seconds", "3600", finding.Warning},
		{"max_binlog_total_size", "1073741824", finding.Warning},
		{"binlog_row_value_options", "'PARTIAL_JSON'", finding.Warning},
		{"binlog_checksum", "'NONE'", finding.Warning},
		{"gtid_strict_mode", "OFF", finding.Warning},
		{"wait_timeout", "10", finding.Warning},
		{"binlog_annotate_row_events", "ON", finding.Note},
		{"binlog_rows_query_log_events", "ON", finding.Note},
		{"binlog_transaction_compression", "ON", finding.Note},
		{"log_bin_compress", "ON", finding.Note},
		{"transaction_isolation", "'REPEATABLE-READ'", finding.Note},
		{"tx_isolation", "'REPEATABLE-READ'", finding.Note},
		{"innodb_snapshot_isolation", "ON", finding.Note},
		{"character_set_server", "'latin1'", finding.Note},
	} {
		if _, err := admin.Exec("SET GLOBAL " + c.name + " = " + c.wrong); err != nil {
			if server, ok := err.(*mysql.MySQLError); ok && (server.Number == 1193 || server.Number == 1238) {
				continue // this server does not have it, or keeps it
			}
			t.Fatalf("%s: %v", c.name, err)
		}
		mistakes++
		after, found := subjects()
		added := slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
		if len(added) != 1 || !strings.Contains(added[0], c.name+"=") || found[added[0]].Severity != c.severity || found[added[0]].Why == "" {
			t.Errorf("%s = %s: %q, %+v", c.name, c.wrong, added, found)
			continue
		}
		for _, statement := range found[added[0]].Mend.SQL {
			must(t, admin, statement)
		}
		if mended, _ := subjects(); !slices.Equal(mended, before) {
			t.Errorf("%s: after %q there is %q, before there was %q", c.name, found[added[0]].Mend.SQL, mended, before)
		}
	}
	if mistakes < 12 {
		t.Errorf("only %d of the settings could be set", mistakes)
	}
}

func TestSettingsOfOtherServersAndOfRestartsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		set      map[string]string
		severity finding.Severity
		says     string
	}{
		"updates of a replica":        {map[string]string{"log_slave_updates": "OFF"}, finding.Note, "put log_slave_updates = ON under [mysqld]"},
		"size limit of MariaDB 11.4":  {map[string]string{"max_binlog_total_size": "1024"}, finding.Warning, "SET PERSIST max_binlog_total_size = 0"},
		"size limit of Percona":       {map[string]string{"binlog_space_limit": "1024"}, finding.Warning, "put binlog_space_limit = 0"},
		"expiry in days":              {map[string]string{"expire_logs_days": "0.5"}, finding.Warning, "SET PERSIST expire_logs_days = 7"},
		"expiry in seconds":           {map[string]string{"binlog_expire_logs_seconds": "86399", "expire_logs_days": "0.999"}, finding.Warning, "SET PERSIST binlog_expire_logs_seconds = 604800"},
		"expiry of a day":             {map[string]string{"binlog_expire_logs_seconds": "86400"}, "", ""},
		"no expiry":                   {map[string]string{"binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}, "", ""},
		"no purging by itself":        {map[string]string{"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"}, "", ""},
		"isolation by two names":      {map[string]string{"transaction_isolation": "READ-COMMITTED", "tx_isolation": "READ-COMMITTED"}, "", ""},
		"snapshot isolation, MariaDB": {map[string]string{"innodb_snapshot_isolation": "ON"}, finding.Note, "SET PERSIST innodb_snapshot_isolation = OFF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := goodMySQL()
			maps.Copy(s.global, c.set)
			var r Report
			s.check(&r)
			switch {
			case c.says == "" && len(r.Findings) > 0:
				t.Errorf("found: %v", r.Findings)
			case c.says != "" && (len(r.Findings) != 1 || r.Findings[0].Severity != c.severity || !strings.Contains(r.Findings[0].String(), c.says)):
				t.Errorf("want %s, %q in %v", c.severity, c.says, r.Findings)
			}
		})
	}
}

// A topic whose publishes wait for a replica is of no use on a server that waits for none.
func TestReplicatedTopicsWantSemiSynchronousReplication(t *testing.T) {
	address := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	if r := Check(t.Context(), address, Options{Role: Broker}); len(r.Warnings()) > 0 {
		t.Errorf("without such a topic: %v", r.Warnings())
	}
	admin := open1(t, address)
	must(t, admin, `INSERT INTO registry_topic (name, mirrored, created_at, settings) VALUES ('orders', 1, 0, '{"check_after_us":0,"durability":"replicated"}')`)
	r := Check(t.Context(), address, Options{Role: Broker})
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), "rpl_semi_sync_") || !strings.Contains(w[0].String(), "fail (1 such)") || len(w[0].Mend.SQL) == 0 {
		t.Errorf("warnings: %v", w)
	}
}

func TestClockThatDiffersIsFound(t *testing.T) {
	cfg, err := mysql.ParseDSN(dbtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Params = map[string]string{"timestamp": "1600000000"} // of its sessions: the year 2020
	r := Check(t.Context(), cfg.FormatDSN(), Options{Role: Broker})
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0].Subject, "differs from this machine's by -") {
		t.Errorf("warnings: %v", w)
	}
}

func TestRightsBeyondNeedAreNoted(t *testing.T) {
	address := dbtest.Schema(t) // of an account with all
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	cfg, _ := mysql.ParseDSN(address)
	admin := open1(t, address)
	t.Cleanup(func() { admin.Exec("DROP USER 'modest'@'127.%'") })
	must(t, admin, "CREATE USER 'modest'@'127.%' IDENTIFIED BY 'secret'")
	must(t, admin, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'modest'@'127.%'")
	must(t, admin, "GRANT SELECT ON `"+cfg.DBName+"`.store TO 'modest'@'127.%'")
	modest := cfg.Clone()
	modest.User, modest.Passwd = "modest", "secret"
	for name, c := range map[string]struct {
		address string
		noted   bool
	}{"all": {address, true}, "modest": {modest.FormatDSN(), false}} {
		r := Check(t.Context(), c.address, Options{Role: Mirror})
		noted := slices.ContainsFunc(r.Findings, func(f finding.Finding) bool {
			return f.Severity == finding.Note && strings.Contains(f.Subject, "more rights on *.*")
		})
		if noted != c.noted || r.Err() != nil {
			t.Errorf("%s: %v", name, r.Findings)
		}
	}
}
