package stage

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"notifymirror/notifyd/embedded/child"
)

// startLimit is the longest that a daemon may take to be ready, stopLimit to end by SIGTERM.
const (
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second
)

// Program is a daemon that can be started, ended in several ways, and started again.
type Program struct {
	t testing.TB
	// ID is the name given, which is the daemon's own too.
	ID string
	// Addr is the host:port of notifyd's API; empty for canald. Ops is that of /readyz.
	Addr, Ops string

	path, log string
	args      []string
	proc      *child.Process
}

// Notifyd is a broker of the store that is not started yet. more are lines of YAML added to
// its configuration.
func (s *Stage) Notifyd(id string, more ...string) *Program {
	s.t.Helper()
	p := s.daemon("notifyd", id)
	p.Addr = Free(s.t)
	p.configure(s, "notifyd-"+id+".yaml", "id: %s\nlisten: %s\nops_listen: %s\nstores: %s\n%s\n",
		id, p.Addr, p.Ops, s.stores(s.DSN, ", role: outbox-only"), strings.Join(more, "\n"))
	return p
}

// Canald is a mirror of the store into the Kafka that is not started yet. more are lines of
// YAML added to its configuration.
func (s *Stage) Canald(id string, more ...string) *Program {
	s.t.Helper()
	p := s.daemon("canald", id)
	p.configure(s, "canald-"+id+".yaml", "id: %s\ncluster: %s\ntopic_prefix: %s\nops_listen: %s\nstores: %s\nkafka: {brokers: [%q], allow_embedded: %t%s}\n%s\n",
		id, s.Cluster, s.Prefix, p.Ops, s.stores(cmp.Or(s.MirrorDSN, s.DSN), ""), s.Kafka, s.embedded, s.KafkaAccess, strings.Join(more, "\n"))
	return p
}

// stores is the configuration of the stores, the main one reached by the DSN main; more is
// added to each that is outbox-only.
func (s *Stage) stores(main, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{a: {dsn: %q}", main)
	for _, name := range slices.Sorted(maps.Keys(s.Outboxes)) {
		fmt.Fprintf(&b, ", %s: {dsn: %q%s}", name, s.Outboxes[name], more)
	}
	return b.String() + "}"
}

func (s *Stage) daemon(name, id string) *Program {
	s.t.Helper()
	p := NewProgram(s.t, name)
	p.ID, p.Ops = id, Free(s.t)
	return p
}

func (p *Program) configure(s *Stage, name, format string, args ...any) {
	p.t.Helper()
	p.args = []string{"--config", s.write(name, fmt.Sprintf(format, args...))}
}

// Config is the path of its configuration.
func (p *Program) Config() string { return p.args[1] }

// NewProgram is a program that runs until it is told to end, and is not started yet.
func NewProgram(t testing.TB, name string, args ...string) *Program {
	t.Helper()
	return newProgram(t, name, program(t, name), args)
}

// Self is this test binary as a program of its own, which is not started yet. Its TestMain must
// look at the arguments.
func Self(t testing.TB, id string, args ...string) *Program {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newProgram(t, id, path, args)
}

func newProgram(t testing.TB, name, path string, args []string) *Program {
	t.Helper()
	p := &Program{t: t, ID: name, path: path, args: args, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		if p.proc != nil {
			p.proc.Kill()
		}
		if t.Failed() {
			t.Logf("%s %s said last:\n%s", name, p.ID, tail(p.Log()))
		}
	})
	return p
}

// Start starts the program and returns it when it is ready.
func (p *Program) Start() *Program {
	p.t.Helper()
	p.Launch()
	Eventually(p.t, startLimit, p.ID+" ready", func() error {
		if p.proc.Ended() {
			p.t.Fatalf("%s ended: %v\n%s", p.ID, p.proc.Err(), tail(p.Log()))
		}
		return p.Ready()
	})
	return p
}

// Launch starts the program and does not wait.
func (p *Program) Launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.proc, err = child.Start(child.Config{Path: p.path, Args: p.args, Output: log})
	if err != nil {
		p.t.Fatal(err)
	}
}

// Ready returns nil when /readyz says so.
func (p *Program) Ready() error {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + p.Ops + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", answer.Status)
	}
	return nil
}

// Ended tells whether the program has ended, or was never started.
func (p *Program) Ended() bool { return p.proc == nil || p.proc.Ended() }

// Peak is the most bytes that the program ever had resident.
func (p *Program) Peak() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.proc.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); err != nil {
		p.t.Fatalf("%s: peak of %q: %v", p.ID, text, err)
	}
	return kilobytes << 10
}

// Kill is kill -9; it returns when the program is gone.
func (p *Program) Kill() { p.proc.Kill() }

// Freeze is kill -STOP, Thaw is kill -CONT.
func (p *Program) Freeze() { p.proc.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen program go on.
func (p *Program) Thaw() { p.proc.Signal(syscall.SIGCONT) }

// Stop is kill -TERM; it returns when the program has ended with exit code 0.
func (p *Program) Stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
}

// Interrupt is Ctrl-C; it returns when the program has ended with exit code 0.
func (p *Program) Interrupt() {
	p.t.Helper()
	p.end(syscall.SIGINT)
}

func (p *Program) end(sig syscall.Signal) {
	p.t.Helper()
	p.proc.Signal(sig)
	select {
	case <-p.proc.Done():
	case <-time.After(stopLimit):
		p.proc.Signal(syscall.SIGQUIT) // its goroutines are in the log then
		p.t.Fatalf("%s still runs %s after %s", p.ID, stopLimit, sig)
	}
	if err := p.proc.Err(); err != nil {
		p.t.Fatalf("%s ended by %s: %v", p.ID, sig, err)
	}
}

// Says waits until the program has printed a text.
func (p *Program) Says(text string, limit time.Duration) {
	p.t.Helper()
	Eventually(p.t, limit, fmt.Sprintf("%s says %q", p.ID, text), func() error {
		if strings.Contains(p.Log(), text) {
			return nil
		}
		if p.proc.Ended() {
			p.t.Fatalf("%s ended: %v\n%s", p.ID, p.proc.Err(), tail(p.Log()))
		}
		return fmt.Errorf("it said %q", tail(p.Log()))
	})
}

// Log is what the program has written since its first start, or since Forget.
func (p *Program) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Errorf("stage: %v", err)
	}
	return string(text)
}

// Forget empties the log.
func (p *Program) Forget() {
	p.t.Helper()
	if err := os.Truncate(p.log, 0); err != nil {
		p.t.Fatal(err)
	}
}

// tail is the end of a text.
func tail(text string) string {
	const most = 8 << 10
	if len(text) > most {
		return "..." + text[len(text)-most:]
	}
	return text
}
