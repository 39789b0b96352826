package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"notifymirror/notifyd/embedded/dbtest"
)

// EnvPrograms names the environment variable with the directory of the built programs. Run
// builds them and sets it where it is not set.
const EnvPrograms = "NOTIFY_TEST_PROGRAMS"

// Run builds the programs, runs the package's tests, and removes what it made. It returns
// what os.Exit wants.
func Run(m *testing.M) int {
	if os.Getenv(EnvPrograms) != "" {
		return dbtest.Run(m)
	}
	dir, err := os.MkdirTemp("", "notify-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "notifymirror/cmd/notifyd", "notifymirror/cmd/canald", "notifymirror/cmd/notify")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "stage: build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(EnvPrograms, dir); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		return 1
	}
	return dbtest.Run(m)
}

// program is the path of a built program.
func program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(EnvPrograms)
	if dir == "" {
		t.Fatal("stage: the package needs: func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }")
	}
	return filepath.Join(dir, name)
}
