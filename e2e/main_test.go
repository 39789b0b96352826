package e2e

import (
	"os"
	"testing"

	"notifymirror/e2e/bank"
	"notifymirror/e2e/stage"
)

// asBank as the first argument makes the test binary a bank.
const asBank = "bank"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asBank {
		os.Exit(bank.Main(os.Args[2:]))
	}
	os.Exit(stage.Run(m))
}

// complaints fails a test by the first few of what may be thousands of like faults.
type complaints struct {
	t *testing.T
	n int
}

func (c *complaints) say(format string, args ...any) {
	c.t.Helper()
	const most = 10
	c.n++
	switch {
	case c.n <= most:
		c.t.Errorf(format, args...)
	case c.n == most+1:
		c.t.Error("and more of the kind")
	}
}
