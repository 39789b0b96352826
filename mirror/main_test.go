package mirror

import (
	"os"
	"testing"

	"notifymirror/notifyd/embedded/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
