package dbtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func TestWhatKilledTestsLeftIsRemovedAndNothingElse(t *testing.T) {
	temp := t.TempDir()
	used := filepath.Join(temp, "notify-dbtest-used")
	db := Private(t, embedded.Config{Dir: used})
	for _, name := range []string{"notify-dbtest-left", "other"} {
		if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		entries, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		var names string
		for _, e := range entries {
			names += e.Name() + " "
		}
		return names
	}
	sweep(temp, time.Minute, time.Now())
	if got := left(); got != "notify-dbtest-left notify-dbtest-used other " {
		t.Errorf("at once: %s", got)
	}
	later := time.Now().Add(time.Hour)
	sweep(temp, time.Minute, later)
	if got := left(); got != "notify-dbtest-used other " {
		t.Errorf("while a server runs: %s", got)
	}
	db.Kill()
	sweep(temp, time.Minute, later)
	if got := left(); got != "other " {
		t.Errorf("when it has ended: %s", got)
	}
}
