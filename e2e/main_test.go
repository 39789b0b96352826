package e2e

import (
	"os"
	"testing"

	"notifymirror/e2e/stage"
)

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }
