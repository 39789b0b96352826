package embedded_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// EnvParent makes the test binary a parent process that starts a server in the directory it
// names, says so, and waits to be killed.
const envParent = "NOTIFY_EMBEDDED_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envParent); dir != "" {
		parent(dir)
	}
	os.Exit(dbtest.Run(m))
}

func parent(dir string) {
	server, err := dbtest.Server()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	db, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Server: server})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("running", db.PID())
	select {}
}

func server(t *testing.T) embedded.Server {
	t.Helper()
	s, err := dbtest.Server()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func mustExec(t *testing.T, pool *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := pool.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// variable reads a global setting; ON is 1 and OFF is 0.
func variable(t *testing.T, pool *sql.DB, name string) string {
	t.Helper()
	var value string
	if err := pool.QueryRow("SELECT CAST(@@global." + name + " AS CHAR)").Scan(&value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	switch value {
	case "ON":
		return "1"
	case "OFF":
		return "0"
	}
	return value
}

func TestServerHasTheSettingsThatAStoreNeeds(t *testing.T) {
	db := dbtest.Start(t)
	pool := open(t, db.DSN(""))
	want := map[string]string{
		"log_bin":                        "1",
		"binlog_format":                  "ROW",
		"binlog_row_image":               "MINIMAL",
		"binlog_row_metadata":            "FULL",
		"sync_binlog":                    "1",
		"innodb_flush_log_at_trx_commit": "1",
		"time_zone":                      "+00:00",
		"character_set_server":           "utf8mb4",
		"bind_address":                   "127.0.0.1",
		"performance_schema":             "0",
		"tmpdir":                         filepath.Join(filepath.Dir(db.LogPath()), "tmp"),
	}
	if db.Server().Flavor == embedded.MySQL {
		want["gtid_mode"] = "1"
		want["enforce_gtid_consistency"] = "1"
		want["transaction_isolation"] = "READ-COMMITTED"
		want["binlog_transaction_compression"] = "0"
		want["binlog_row_value_options"] = ""
	} else {
		want["gtid_strict_mode"] = "1"
		want["tx_isolation"] = "READ-COMMITTED"
		want["binlog_annotate_row_events"] = "0"
	}
	for name, value := range want {
		if got := variable(t, pool, name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

func TestExtraFlagsOverrideOurs(t *testing.T) {
	db := dbtest.Private(t, embedded.Config{Extra: []string{"--skip-log-bin", "--binlog-format=STATEMENT"}})
	pool := open(t, db.DSN(""))
	if got := variable(t, pool, "log_bin"); got != "0" {
		t.Errorf("log_bin = %s", got)
	}
	if got := variable(t, pool, "binlog_format"); got != "STATEMENT" {
		t.Errorf("binlog_format = %s", got)
	}
}

func TestEachTestGetsAnEmptySchemaOfItsOwn(t *testing.T) {
	first := dbtest.Schema(t)
	mustExec(t, open(t, first), "CREATE TABLE a (id INT PRIMARY KEY)")
	second := dbtest.Schema(t)
	if first == second {
		t.Fatal("the same schema twice")
	}
	mustExec(t, open(t, second), "CREATE TABLE a (id INT PRIMARY KEY)")
}

func TestRootIsReachedThroughThePrivateSocketOnly(t *testing.T) {
	db := dbtest.Start(t)
	var user string
	if err := open(t, "root@unix("+db.Socket()+")/").QueryRow("SELECT CURRENT_USER()").Scan(&user); err != nil || user != "root@localhost" {
		t.Errorf("over the socket: %q, %v", user, err)
	}
	for _, dsn := range []string{"root@tcp(" + db.Addr() + ")/", "notify@tcp(" + db.Addr() + ")/", "notify:wrong@tcp(" + db.Addr() + ")/"} {
		if err := open(t, dsn).Ping(); err == nil || !strings.Contains(err.Error(), "1045") && !strings.Contains(err.Error(), "1698") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

func TestCommittedRowsSurviveKillAndStop(t *testing.T) {
	ctx := t.Context()
	db := dbtest.Private(t, embedded.Config{})
	mustExec(t, open(t, db.DSN("")), "CREATE DATABASE s", "CREATE TABLE s.a (id INT PRIMARY KEY)", "INSERT INTO s.a VALUES (1)")
	port := db.Port()
	for round, end := range []func() error{
		func() error { db.Kill(); return nil },
		func() error { return db.Stop(ctx) },
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := db.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if db.Port() != port {
			t.Errorf("round %d: port changed", round)
		}
		var n int
		if err := open(t, db.DSN("s")).QueryRow("SELECT COUNT(*) FROM a").Scan(&n); err != nil || n != 1 {
			t.Errorf("round %d: %d rows, %v", round, n, err)
		}
	}
	if err := db.Restart(ctx); !errors.Is(err, embedded.ErrRunning) {
		t.Errorf("restart of a running server: %v", err)
	}
}

func TestAnUnexpectedDeathIsNoticed(t *testing.T) {
	db := dbtest.Private(t, embedded.Config{})
	if err := db.Err(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := syscall.Kill(db.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-db.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not noticed")
	}
	if err := db.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
}

func TestADirectoryInUseIsAnErrorWithThePid(t *testing.T) {
	dir := t.TempDir()
	dbtest.Private(t, embedded.Config{Dir: dir})
	began := time.Now()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Server: server(t)})
	if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the refusal waited %v for a living owner", took)
	}
}

func TestATakenPortIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = embedded.Start(t.Context(), embedded.Config{Dir: dir, Server: server(t), Port: port})
	if !errors.Is(err, embedded.ErrPortInUse) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "db")); err == nil {
		t.Error("a database was made all the same")
	}
}

func TestAWrongFlagIsNamedByTheError(t *testing.T) {
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Server: server(t), Extra: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseOfAnotherServerIsRefused(t *testing.T) {
	s := server(t)
	newer := s
	newer.Version.Major++
	other := embedded.Server{Flavor: embedded.MySQL, Version: embedded.Version{Major: 8}}
	if s.Flavor == embedded.MySQL {
		other = embedded.Server{Flavor: embedded.MariaDB, Version: embedded.Version{Major: 10, Minor: 6}}
	}
	for _, maker := range []embedded.Server{newer, other} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "db", "made-by"), []byte(maker.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Server: s})
		if !errors.Is(err, embedded.ErrOtherServer) || !strings.Contains(err.Error(), maker.String()) {
			t.Errorf("made by %s: %v", maker, err)
		}
	}
}

func TestALongDirectoryNameDoesNotExceedASocketName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	db := dbtest.Private(t, embedded.Config{Dir: dir})
	if err := open(t, db.DSN("")).Ping(); err != nil {
		t.Fatal(err)
	}
}

// startParent runs the test binary as a process that owns a server in dir.
func startParent(t *testing.T, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envParent+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func killParent(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
}

func TestAKilledParentTakesItsServerAlongAndBlocksNothing(t *testing.T) {
	dir := t.TempDir()
	cmd, out := startParent(t, dir)
	line, err := out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "running ") {
		t.Fatalf("parent says %q, %v", line, err)
	}
	pid, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	killParent(t, cmd)
	db := dbtest.Private(t, embedded.Config{Dir: dir})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && state(pid) != "Z" {
		t.Errorf("the first server (pid %d) still runs beside the new one", pid)
	}
	if err := open(t, db.DSN("")).Ping(); err != nil {
		t.Error(err)
	}
}

// state is the one-letter state of a process, "" when there is none.
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)[0]
}

func TestAParentKilledWhileItInitialisesLeavesNothingHalfMade(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startParent(t, dir)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if made, _ := filepath.Glob(filepath.Join(dir, "db.new", "data", "ib*")); len(made) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the initialisation did not begin")
		}
	}
	killParent(t, cmd)
	if _, err := os.Stat(filepath.Join(dir, "db")); err == nil {
		t.Fatal("killed too late to prove anything")
	}
	db := dbtest.Private(t, embedded.Config{Dir: dir})
	mustExec(t, open(t, db.DSN("")), "CREATE DATABASE s", "CREATE TABLE s.a (id INT PRIMARY KEY)")
	if _, err := os.Stat(filepath.Join(dir, "db.new")); err == nil {
		t.Error("the half-made database is still there")
	}
}
