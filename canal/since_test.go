package canal

import (
	"fmt"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// Reading begins with the last file that has something from before the time.
func TestReadingFromATimeBeginsWithTheFileThatHoldsIt(t *testing.T) {
	s := newStore(t, dbtest.Private(t, embedded.Config{}))
	const files = 7
	began := time.Now().Add(-time.Hour).Unix()
	for i := range files {
		// MySQL gives commits the true time all the same, which is not the same twice.
		s.exec(t, fmt.Sprintf("SET timestamp = %d", began+int64(100*i)), insert(i), "SET timestamp = DEFAULT", "FLUSH BINARY LOGS")
	}
	committed := make([]time.Time, files)
	all := s.tail(t, Position{})
	for i := range committed {
		txn, _ := all.rows()
		committed[i] = txn.CommitTime
	}
	first := func(at time.Time) int64 {
		t.Helper()
		from, err := StartBefore(t.Context(), s.config, at)
		if err != nil {
			t.Fatal(err)
		}
		tl := s.tail(t, from)
		defer tl.stop()
		txn, _ := tl.rows()
		for row := range txn.Rows() {
			return row.Values[0].Int
		}
		return -1
	}
	for i, at := range committed {
		if got := first(at.Add(time.Microsecond)); got != int64(i) {
			t.Errorf("just after message %d it begins with %d", i, got)
		}
		if got := first(at); got != int64(max(0, i-1)) {
			t.Errorf("at message %d it begins with %d", i, got)
		}
	}
	if got := first(time.Now().Add(time.Hour)); got != files-1 {
		t.Errorf("from a time to come it begins with %d", got)
	}
	purge(t, s)
	s.exec(t, insert(files))
	if got := first(committed[0]); got != files {
		t.Errorf("where all is purged it begins with %d", got)
	}
}

func TestAPositionTellsWhichTransactionsItHolds(t *testing.T) {
	for _, c := range []struct {
		at      Position
		in, out []string
	}{
		{Position{MariaDB, "0-1-7,1-2-9"}, []string{"0-1-7", "0-1-1", "0-5-3", "1-2-9"}, []string{"0-1-8", "2-1-1", "", "x"}},
		{Position{MySQL, scriptSID.String() + ":1-5:8:tag:3"}, []string{scriptSID.String() + ":1", scriptSID.String() + ":8", scriptSID.String() + ":tag:3"},
			[]string{scriptSID.String() + ":6", scriptSID.String() + ":tag:1", "", "x"}},
	} {
		holds, err := c.at.Holds()
		if err != nil {
			t.Fatal(err)
		}
		for _, gtid := range c.in {
			if !holds(gtid) {
				t.Errorf("%s is not in %s", gtid, c.at.GTIDs)
			}
		}
		for _, gtid := range c.out {
			if holds(gtid) {
				t.Errorf("%s is in %s", gtid, c.at.GTIDs)
			}
		}
	}
	if _, err := (Position{MariaDB, "x"}).Holds(); err == nil {
		t.Error("a position that is none")
	}
}
