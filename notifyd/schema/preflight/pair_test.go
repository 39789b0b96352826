package preflight

import (
	"strings"
	"testing"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema/migrate"
)

// Of several servers each is looked at, since each may be the primary one day, and each
// finding names its server. A replica is no fault.
func TestEachOfSeveralServersIsLookedAt(t *testing.T) {
	pair := dbtest.NewPair(t)
	address, _ := pair.Schema()
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp()
	for _, role := range []Role{Broker, Mirror} {
		if r := CheckAll(t.Context(), address, Options{Role: role}); r.Err() != nil || len(r.Warnings()) > 0 {
			t.Errorf("role %d of a good pair: %+v", role, r)
		}
	}
	replica := open1(t, pair.Replica.DSN(""))
	must(t, replica, "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
	must(t, replica, "SET GLOBAL sync_binlog = 0")
	if r := Check(t.Context(), address, Options{Role: Mirror}); r.Err() != nil {
		t.Errorf("the primary alone: %+v", r)
	}
	r := CheckAll(t.Context(), address, Options{Role: Mirror})
	for _, name := range []string{"binlog_row_metadata", "sync_binlog"} {
		if n := about(r.Findings, pair.Replica.Addr()+" has "+name); n != 1 {
			t.Errorf("%d findings about %s of the replica in %+v", n, name, r)
		}
	}
	if n := about(r.Findings, pair.Primary.Addr()); n != 0 {
		t.Errorf("findings about the primary: %+v", r)
	}

	pair.Primary.Kill()
	r = CheckAll(t.Context(), address, Options{Role: Mirror})
	for _, says := range []string{"no server of the store accepts writes", "no connection to tcp(" + pair.Primary.Addr() + ")", pair.Replica.Addr() + " has sync_binlog"} {
		if n := about(r.Findings, says); n != 1 {
			t.Errorf("%d findings that say %q in %+v", n, says, r)
		}
	}
}

func about(findings []finding.Finding, text string) (n int) {
	for _, f := range findings {
		if strings.Contains(f.String(), text) {
			n++
		}
	}
	return n
}
