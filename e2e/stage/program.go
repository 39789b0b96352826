package stage

import (
	"fmt"
	"net/http"
	"os"
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
	// ID is the name given; for notifyd also its broker id.
	ID string
	// Addr is the host:port of notifyd's API; empty for canald. Ops is that of /readyz.
	Addr, Ops string

	path, config, log string
	proc              *child.Process
}

// Notifyd is a broker of the store that is not started yet. more are lines of YAML added to
// its configuration.
func (s *Stage) Notifyd(id string, more ...string) *Program {
	s.t.Helper()
	p := s.daemon("notifyd", id)
	p.Addr = Free(s.t)
	p.config = s.write("notifyd-"+id+".yaml", fmt.Sprintf("id: %s\nlisten: %s\nops_listen: %s\nstores: {a: {dsn: %q}}\n%s\n",
		id, p.Addr, p.Ops, s.DSN, strings.Join(more, "\n")))
	return p
}

// Canald is a mirror of the store into the Kafka that is not started yet. more are lines of
// YAML added to its configuration.
func (s *Stage) Canald(id string, more ...string) *Program {
	s.t.Helper()
	p := s.daemon("canald", id)
	p.config = s.write("canald-"+id+".yaml", fmt.Sprintf("cluster: %s\ntopic_prefix: %s\nops_listen: %s\nstores: {a: {dsn: %q}}\nkafka: {brokers: [%q], allow_embedded: %t}\n%s\n",
		s.Cluster, s.Prefix, p.Ops, s.DSN, s.Kafka, s.embedded, strings.Join(more, "\n")))
	return p
}

func (s *Stage) daemon(name, id string) *Program {
	s.t.Helper()
	p := &Program{t: s.t, ID: id, Ops: Free(s.t), path: program(s.t, name), log: s.write(name+"-"+id+".log", "")}
	s.t.Cleanup(func() {
		if p.proc != nil {
			p.proc.Kill()
		}
		if s.t.Failed() {
			s.t.Logf("%s %s said last:\n%s", name, id, tail(p.Log()))
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
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.proc, err = child.Start(child.Config{Path: p.path, Args: []string{"--config", p.config}, Output: log})
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

// Kill is kill -9; it returns when the program is gone.
func (p *Program) Kill() { p.proc.Kill() }

// Freeze is kill -STOP, Thaw is kill -CONT.
func (p *Program) Freeze() { p.proc.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen program go on.
func (p *Program) Thaw() { p.proc.Signal(syscall.SIGCONT) }

// Stop is kill -TERM; it returns when the program has ended with exit code 0.
func (p *Program) Stop() {
	p.t.Helper()
	p.proc.Signal(syscall.SIGTERM)
	select {
	case <-p.proc.Done():
	case <-time.After(stopLimit):
		p.proc.Signal(syscall.SIGQUIT) // its goroutines are in the log then
		p.t.Fatalf("%s still runs %s after SIGTERM", p.ID, stopLimit)
	}
	if err := p.proc.Err(); err != nil {
		p.t.Fatalf("%s ended by SIGTERM: %v", p.ID, err)
	}
}

// Log is what the program has written since its first start.
func (p *Program) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Errorf("stage: %v", err)
	}
	return string(text)
}

// tail is the end of a text.
func tail(text string) string {
	const most = 8 << 10
	if len(text) > most {
		return "..." + text[len(text)-most:]
	}
	return text
}
