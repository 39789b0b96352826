package stage

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

// Result is how a program ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// commandLimit is the longest that a command may take.
const commandLimit = 2 * time.Minute

// Command runs notifyd, canald or notify until it ends.
func Command(t testing.TB, name string, args ...string) Result {
	t.Helper()
	return run(t, program(t, name), args...)
}

// System runs a program that is installed on the machine until it ends.
func System(t testing.TB, name string, args ...string) Result {
	t.Helper()
	return run(t, name, args...)
}

// Shell runs a line as a person would who has pasted it into a terminal.
func Shell(t testing.TB, line string) Result {
	t.Helper()
	return run(t, "sh", "-c", line)
}

func run(t testing.TB, path string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: still running after %s\nstdout: %s\nstderr: %s", cmd, commandLimit, &stdout, &stderr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Notify runs the command line tool with a broker and the stage's Kafka, and returns what it
// prints. It must succeed.
func (s *Stage) Notify(broker *Program, args ...string) string {
	s.t.Helper()
	r := Command(s.t, "notify", append([]string{"--server", broker.Addr, "--kafka", s.Kafka}, args...)...)
	if r.Code != 0 {
		s.t.Fatalf("notify %q: exit %d: %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}
