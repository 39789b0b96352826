package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/notifyd/embedded/dbtest"
)

// devLimit is the longest that the stack may take to be ready on a busy machine.
const devLimit = 90 * time.Second

// A stranger types one command, pastes what it prints into another terminal, stops it, and
// finds everything again the next day.
func TestFirstRunWorksAndIsFoundAgain(t *testing.T) {
	d := newDev(t, t.TempDir(), "--demo")
	d.start()
	t.Log(d.line("ready in"))
	listen, publish, tail := d.pasted(0), d.pasted(1), d.pasted(2)

	id := ""
	heard := d.listen(listen+" --count 1 -o jsonl", func() { id = d.shell(publish) })
	if !strings.Contains(heard, strings.TrimSpace(id)) || !strings.Contains(heard, `"body":"first message"`) {
		t.Errorf("%s published %s%s shows %s", publish, id, listen, heard)
	}
	tailOne := tail + " --count 1 -o jsonl"
	if record := d.shell(tailOne); !strings.Contains(record, strings.TrimSpace(id)) || !strings.Contains(record, `"body":"first message"`) {
		t.Errorf("%s published %s%s shows %s", publish, id, tailOne, record)
	}
	d.demoRuns()
	kept := d.shell(publish) // for the group that listened; nobody listens now
	d.program.Interrupt()
	d.nothingRuns()

	d.program.Forget()
	d.start()
	if records := d.shell(tail + " --to newest -o jsonl"); !strings.Contains(records, strings.TrimSpace(id)) {
		t.Errorf("message %safter a restart the mirror has %s", id, records)
	}
	if heard := d.listen(listen+" --count 1 -o jsonl", func() {}); !strings.Contains(heard, strings.TrimSpace(kept)) {
		t.Errorf("message %safter a restart %s shows %s", kept, listen, heard)
	}
	d.program.Interrupt()
	d.nothingRuns()
}

// A second one beside a running one is told what to do, whichever it shares.
func TestSecondInstanceIsToldWhatToDo(t *testing.T) {
	d := newDev(t, t.TempDir())
	d.start()
	sameDir := stage.Command(t, "notify", "dev", "--data-dir", d.dir, "--base-port", strconv.Itoa(freeBase(t)), "--mysqld", d.server)
	if sameDir.Code != exitFailed || strings.Count(sameDir.Stderr, "\n") != 1 ||
		!strings.Contains(sameDir.Stderr, d.dir) || !strings.Contains(sameDir.Stderr, "--data-dir") {
		t.Errorf("same directory: %+v", sameDir)
	}
	other := filepath.Join(t.TempDir(), "other")
	samePort := stage.Command(t, "notify", "dev", "--data-dir", other, "--base-port", strconv.Itoa(d.base), "--mysqld", d.server)
	if samePort.Code != exitFailed || strings.Count(samePort.Stderr, "\n") != 1 ||
		!strings.Contains(samePort.Stderr, fmt.Sprintf("port %d ", d.base)) || !strings.Contains(samePort.Stderr, "--base-port ") {
		t.Errorf("same port: %+v", samePort)
	}
	if _, err := os.Stat(filepath.Join(other, "database")); err == nil {
		t.Error("a database was made although the port was taken")
	}
	d.shell(d.pasted(1)) // the first one does not mind
}

// kill -9 leaves nothing that keeps the next one from starting at once, and no message is lost.
func TestKilledInstanceBlocksNothing(t *testing.T) {
	d := newDev(t, t.TempDir())
	d.start()
	id := d.shell(d.pasted(1))
	for range 2 {
		d.program.Kill()
		d.program.Forget()
		d.start()
	}
	record := d.shell(d.pasted(2) + " --count 1 -o jsonl")
	if !strings.Contains(record, strings.TrimSpace(id)) {
		t.Errorf("published %safter the kills %s", id, record)
	}
	d.program.Kill()
	d.nothingRuns()
}

func TestEphemeralInstanceLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := newDev(t, temp, "--ephemeral")
	d.start()
	d.shell(d.pasted(1))
	d.program.Interrupt()
	d.nothingRuns()
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, error %v", left, err)
	}
}

// dev is one `notify dev`.
type dev struct {
	t       *testing.T
	program *stage.Program
	dir     string
	base    int
	server  string
}

func newDev(t *testing.T, dir string, args ...string) *dev {
	t.Helper()
	server, err := dbtest.Server()
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{t: t, dir: dir, base: freeBase(t), server: server.Path}
	args = append([]string{"dev", "--base-port", strconv.Itoa(d.base), "--mysqld", server.Path}, args...)
	if !strings.Contains(strings.Join(args, " "), "--ephemeral") {
		args = append(args, "--data-dir", dir)
	}
	d.program = stage.NewProgram(t, "notify", args...)
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(dir, "database", "server.log")); err == nil && t.Failed() {
			t.Logf("the database said:\n%s", log)
		}
	})
	return d
}

func (d *dev) start() {
	d.t.Helper()
	d.program.Launch()
	d.program.Says("\nready in ", devLimit)
}

// line is the line of the banner that holds a text.
func (d *dev) line(text string) string {
	d.t.Helper()
	for line := range strings.Lines(d.program.Log()) {
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
	}
	d.t.Fatalf("no line with %q in\n%s", text, d.program.Log())
	return ""
}

// pasted is one of the commands that the banner prints, as it stands there.
func (d *dev) pasted(n int) string {
	d.t.Helper()
	_, text, _ := strings.Cut(d.program.Log(), "try, in another terminal\n")
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(line, strings.Repeat(" ", 13))
		if is && n == 0 {
			return strings.TrimSpace(command)
		}
		if is {
			n--
		}
	}
	d.t.Fatalf("no command %d in\n%s", n, d.program.Log())
	return ""
}

func (d *dev) shell(line string) string {
	d.t.Helper()
	r := stage.Shell(d.t, line)
	if r.Code != 0 {
		d.t.Fatalf("%s\nexit %d: %s", line, r.Code, r.Stderr)
	}
	return r.Stdout
}

// listen starts a command that listens until it has printed enough, does something once it
// is subscribed, and returns what it printed.
func (d *dev) listen(line string, meanwhile func()) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), "sh", "-c", "exec "+line)
	var out bytes.Buffer
	cmd.Stdout = &out
	said, err := cmd.StderrPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	timer := time.AfterFunc(devLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	first, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "listening to hello") {
		d.t.Errorf("%s says %q, %v", line, first, err)
	}
	meanwhile()
	if err := cmd.Wait(); err != nil {
		d.t.Errorf("%s: %v", line, err)
	}
	return out.String()
}

// demoRuns waits until both sample groups have acknowledged trades and the mirror has some.
func (d *dev) demoRuns() {
	d.t.Helper()
	url := regexp.MustCompile(`http://\S+/metrics`).FindString(d.line("metrics"))
	stage.Eventually(d.t, time.Minute, "trades reach both groups", func() error {
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		for _, group := range []string{"risk", "settlement"} {
			if !strings.Contains(string(text), `notify_push_attempts_total{group="`+group+`",topic="trades"`) {
				return fmt.Errorf("no trade reached %s", group)
			}
		}
		return nil
	})
	trades := d.shell(strings.Replace(d.pasted(2), "hello", "trades", 1) + " --count 3")
	if strings.Count(trades, "\n") != 3 {
		d.t.Errorf("trades in the mirror: %s", trades)
	}
}

// nothingRuns waits until no process knows the data directory and all ports are free.
func (d *dev) nothingRuns() {
	d.t.Helper()
	stage.Eventually(d.t, 10*time.Second, "every child has ended", func() error {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range lines {
			text, err := os.ReadFile(path)
			if err == nil && bytes.Contains(text, []byte(d.dir)) {
				return fmt.Errorf("%s is %s", path, bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
			}
		}
		return portsFree(d.base)
	})
}

// freeBase is a base port with all that follow from it free.
func freeBase(t *testing.T) int {
	t.Helper()
	for range 100 {
		_, port, err := net.SplitHostPort(stage.Free(t))
		if err != nil {
			t.Fatal(err)
		}
		base, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		if portsFree(base) == nil {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func portsFree(base int) error {
	for _, offset := range []int{0, 1, 6, 11, 80, 92} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base+offset)))
		if err != nil {
			return err
		}
		l.Close()
	}
	return nil
}
