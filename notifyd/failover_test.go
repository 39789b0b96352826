package notifyd_test

import (
	"database/sql"
	"testing"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"
)

// A switch with both servers alive: the one that was demoted still answers, and nothing it says
// counts any more. The broker takes its shards at the other one, under epochs far above, and
// pushes what was replicated.
func TestABrokerFollowsThePrimaryAndTakesItsShardsAnew(t *testing.T) {
	pair := dbtest.NewPair(t)
	dsn, schema := pair.Schema()
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	at := func(dsn string) *sql.DB {
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	old := at(pair.Primary.DSN(schema))
	s := &stage{t: t, dsn: dsn, db: old}
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	for range 20 {
		s.publish(c, client.Message{Topic: "orders", Body: []byte("before")})
	}
	pair.CatchUp()
	s.exec("SET GLOBAL read_only = ON")
	pair.CatchUp()
	pair.Promote()
	s.db = at(pair.Replica.DSN(schema))
	for range 20 {
		s.publish(c, client.Message{Topic: "orders", Body: []byte("after")})
	}
	s.until("the leases are the broker's there", func() bool {
		return s.count("SELECT COUNT(*) FROM lease WHERE epoch > 1024 AND expires_at > 0") == 8
	})
	if n := s.rows("message"); n != 40 {
		t.Errorf("%d messages at the new primary, want 40", n)
	}
	r := s.consume(c, "g", nil)
	s.until("everything is delivered and gone", func() bool { return r.count() == 40 && s.rows("message")+s.rows("pending") == 0 })
	var epochs int
	if err := old.QueryRow("SELECT MAX(epoch) FROM epoch").Scan(&epochs); err != nil || epochs > 1024 {
		t.Errorf("epoch %d at the old primary, %v", epochs, err)
	}
}
