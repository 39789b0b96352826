package child_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"notifymirror/notifyd/embedded/child"
)

func start(t *testing.T, c child.Config) *child.Process {
	t.Helper()
	p, err := child.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func killedBy(t *testing.T, p *child.Process) syscall.Signal {
	t.Helper()
	var exit *exec.ExitError
	if err := p.Err(); !errors.As(err, &exit) {
		t.Fatalf("got %v", err)
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

func TestTheWayAChildEndsIsKept(t *testing.T) {
	if err := start(t, child.Config{Path: "true"}).Err(); err != nil {
		t.Errorf("exit code 0: %v", err)
	}
	var exit *exec.ExitError
	if err := start(t, child.Config{Path: "sh", Args: []string{"-c", "exit 7"}}).Err(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit code 7: %v", err)
	}
	p := start(t, child.Config{Path: "sleep", Args: []string{"1000"}})
	if p.Ended() {
		t.Error("ended at once")
	}
	p.Kill()
	if got := killedBy(t, p); got != syscall.SIGKILL || !p.Ended() {
		t.Errorf("killed by %v", got)
	}
	p.Signal(syscall.SIGTERM) // must not hit whoever has the pid now
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	if _, err := child.Start(child.Config{Path: "/nowhere/program"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/program") {
		t.Errorf("got %v", err)
	}
}

func TestOutputAndEnvironmentReachTheChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, child.Config{Path: "sh", Args: []string{"-c", "echo $GREETING; echo no >&2"}, Env: []string{"GREETING=yes"}, Output: out})
	out.Close()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); string(text) != "yes\nno\n" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestKillReachesWhatTheChildStarted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := start(t, child.Config{Path: "sh", Args: []string{"-c", "sleep 1000 & echo started; wait"}, Output: w})
	w.Close()
	if _, err := r.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	// The pipe ends when nobody has its other end: neither the shell nor its sleep.
	if n, err := r.Read(make([]byte, 16)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
