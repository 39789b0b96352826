package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/shard"
)

// openAt opens a store whose clock stands at a time.
func openAt(t *testing.T, dsn string, at time.Time) *Store {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["timestamp"] = strconv.FormatInt(at.Unix(), 10)
	s, err := Open(t.Context(), "a", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestAnIdempotencyKeyLivesAcrossMidnightAndExactlyItsWindow(t *testing.T) {
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	const window = 24 * time.Hour
	late := time.Date(2027, 12, 31, 23, 59, 0, 0, time.UTC)
	publish := func(s *Store) (Verdict, string) {
		t.Helper()
		w, taken := own(t, s, "one")
		slot := shard.NewSlot(taken.Epoch)
		in := insertOf(taken.Epoch, slot, "x")
		in.Items[0].IdempotencyKey, in.Window = "k", window.Microseconds()
		_, v, err := w.Insert(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), 0, taken.Epoch, "one"); err != nil {
			t.Fatal(err)
		}
		return v[0], in.Items[0].Msg.ID.String()
	}
	first, id := publish(openAt(t, dsn, late))
	if first.Pos == 0 {
		t.Fatal("a new key was not stored")
	}
	for _, after := range []time.Duration{2 * time.Minute, window - time.Second} { // 00:01, and the last second
		s := openAt(t, dsn, late.Add(after))
		if n, err := s.ForgetKeys(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("%s later: ForgetKeys = %d, %v; want 0", after, n, err)
		}
		if v, _ := publish(s); !v.Repeated || v.Conflict || v.First.String() != id {
			t.Errorf("%s later: %+v, want a repeat of %s", after, v, id)
		}
	}
	// Its window is over, and nobody has deleted it yet: it is unknown.
	if v, again := publish(openAt(t, dsn, late.Add(window))); v.Pos == 0 || v.Repeated || again == id {
		t.Errorf("at the end of the window: %+v, want a new message", v)
	}
	if v, _ := publish(openAt(t, dsn, late.Add(2*window-time.Second))); !v.Repeated || v.First.String() == id {
		t.Errorf("in the second window: %+v, want a repeat of the second message", v)
	}
	if n, err := openAt(t, dsn, late.Add(2*window+time.Second)).ForgetKeys(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("behind both windows: ForgetKeys = %d, %v; want 1", n, err)
	}
}

func TestADecisionIsForgottenWhen24HoursAreOver(t *testing.T) {
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	taken := time.Date(2027, 12, 31, 23, 59, 0, 0, time.UTC)
	const keep = 24 * time.Hour
	s := openAt(t, dsn, taken)
	s.exec(t, "INSERT INTO half_decision VALUES (REPEAT('i', 16), 1, ?)", taken.UnixMicro())
	for after, want := range map[time.Duration]int64{2 * time.Minute: 0, keep: 0, keep + time.Second: 1} {
		n, err := openAt(t, dsn, taken.Add(after)).ForgetDecisions(t.Context(), keep.Microseconds(), 10)
		if err != nil || n != want {
			t.Errorf("%s later: ForgetDecisions = %d, %v; want %d", after, n, err, want)
		}
		if n == 1 {
			s.exec(t, "INSERT INTO half_decision VALUES (REPEAT('i', 16), 1, ?)", taken.UnixMicro())
		}
	}
}
