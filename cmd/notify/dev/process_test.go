package dev

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv makes this test binary a `notify dev`, with the variable's words as
// its data directory, base port and whether there is a demo.
const childEnv = "NOTIFY_DEV_TEST_CHILD"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(childEnv)); len(args) == 3 {
		os.Exit(child(args))
	}
	os.Exit(m.Run())
}

func child(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	base, err := strconv.Atoi(args[1])
	if err == nil {
		err = Run(ctx, Config{
			DataDir: args[0], BasePort: base, Demo: args[2] == "demo", LogLevel: slog.LevelWarn,
			Program: "notify", Version: "test", Out: os.Stdout, Err: os.Stderr,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notify:", err)
		return 1
	}
	return 0
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	lines chan string
	ended chan struct{}
	// isReady is closed at the line "ready in", or when the process has ended.
	isReady chan struct{}

	mu  sync.Mutex
	out []string
	err bytes.Buffer
}

func launch(t *testing.T, dir string, base int, demo bool) *process {
	t.Helper()
	p := &process{lines: make(chan string, 1000), ended: make(chan struct{}), isReady: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	words := "plain"
	if demo {
		words = "demo"
	}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", childEnv, dir, base, words))
	p.cmd.Stderr = &p.err
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		ready := sync.OnceFunc(func() { close(p.isReady) })
		defer ready()
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.mu.Lock()
			p.out = append(p.out, s.Text())
			p.mu.Unlock()
			p.lines <- s.Text()
			if strings.HasPrefix(s.Text(), "ready in ") {
				ready()
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// await waits for a line that begins with prefix.
func (p *process) await(t *testing.T, prefix string) string {
	t.Helper()
	limit := time.After(90 * time.Second)
	for {
		select {
		case line := <-p.lines:
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-p.ended:
			t.Fatalf("ended without a line %q\nstdout:\n%s\nstderr:\n%s", prefix, p.stdout(), p.err.String())
		case <-limit:
			t.Fatalf("no line %q\nstdout:\n%s", prefix, p.stdout())
		}
	}
}

// end waits for the process and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("still running\nstdout:\n%s", p.stdout())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.out, "\n")
}

// freeBase returns a base of which all ports are free at the moment. It stays
// below the range from which the system takes ports of outgoing connections, and
// below that in which other tests look for theirs.
func freeBase(t *testing.T) int {
	t.Helper()
	for range 1000 {
		if base := 10000 + 100*rand.IntN(98); portsFrom(base).free(t.Context(), 0) == nil {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

// launchFirst launches a child on ports that nobody else took meanwhile, and waits
// until it is ready.
func launchFirst(t *testing.T, dir string, demo bool) (p *process, base int) {
	t.Helper()
	for {
		base = freeBase(t)
		p = launch(t, dir, base, demo)
		if p.ready() || !strings.Contains(p.err.String(), "in use") {
			break
		}
	}
	p.await(t, "ready in ")
	return p, base
}

// ready waits for the line that begins "ready in", which await then finds; false
// when the process ended without it.
func (p *process) ready() bool {
	<-p.isReady
	return strings.Contains(p.stdout(), "\nready in ")
}

func TestSecondInstanceOnADirectoryIsToldThePidAtOnce(t *testing.T) {
	dir := t.TempDir()
	held, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	begun := time.Now()
	second := launch(t, dir, freeBase(t), false)
	if code := second.end(t); code != 1 {
		t.Errorf("exit %d", code)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	if text := second.err.String(); !strings.Contains(text, fmt.Sprintf("pid %d", os.Getpid())) || !strings.Contains(text, dir) || strings.Count(text, "\n") != 1 {
		t.Errorf("stderr %q", text)
	}
}

func TestLockIsFreeAgainWhenItsHolderIsGone(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		held, err := lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		held.Close()
	}
}

func TestTakenPortIsOneLineThatNamesTheFlag(t *testing.T) {
	base := freeBase(t)
	for _, one := range portsFrom(base).all() {
		ln, err := net.Listen("tcp", addr(one.port))
		if err != nil {
			t.Fatal(err)
		}
		err = portsFrom(base).free(t.Context(), 0)
		ln.Close()
		want := fmt.Sprintf("port %d (%s) is in use: --base-port %d moves all", one.port, one.what, base+100)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPortThatIsJustBeingGivenUpIsWaitedFor(t *testing.T) {
	base := freeBase(t)
	ln, err := net.Listen("tcp", addr(base+6))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { ln.Close() })
	if err := portsFrom(base).free(t.Context(), 10*time.Second); err != nil {
		t.Error(err)
	}
}

func TestImpossibleBasePortIsRefused(t *testing.T) {
	for _, base := range []int{0, -1, 65535, 65444} {
		if err := portsFrom(base).free(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "--base-port") {
			t.Errorf("%d: %v", base, err)
		}
	}
}

func TestDirectoryThatCannotBeMadeNamesTheFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Config{DataDir: filepath.Join(file, "dir"), BasePort: 1, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	if err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultDirectoryFollowsXDG(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/xdg")
	t.Setenv("HOME", "/home/someone")
	if dir, err := defaultDir(); err != nil || dir != "/xdg/notify/dev" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_DATA_HOME", "")
	if dir, err := defaultDir(); err != nil || dir != "/home/someone/.local/share/notify/dev" {
		t.Errorf("%s, %v", dir, err)
	}
}
