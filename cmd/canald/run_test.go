package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
	"notifymirror/mirror/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// configured writes a configuration and returns its path.
func configured(t *testing.T, dsn string, brokers []string, more string) string {
	t.Helper()
	return configuredFor(t, fmt.Sprintf("{a: {dsn: %q}}", dsn), brokers, more)
}

func configuredFor(t *testing.T, stores string, brokers []string, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "canald.yaml")
	text := fmt.Sprintf("stores: %s\nkafka: {brokers: [\"%s\"], allow_embedded: true}\n%s\n", stores, strings.Join(brokers, `", "`), more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func installed(t *testing.T) string {
	t.Helper()
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	return dsn
}

func TestWhatCanaldCannotStartWithIsOneLineAndACode(t *testing.T) {
	good := installed(t)
	wrong, err := mysql.ParseDSN(good)
	if err != nil {
		t.Fatal(err)
	}
	wrong.Passwd = "PLANTED"
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const free = "ops_listen: 127.0.0.1:0"
	for name, c := range map[string]struct {
		path string
		code int
		says string
	}{
		"Kafka away":         {configured(t, good, []string{"127.0.0.1:1", "127.0.0.1:2"}, free), daemon.ExitUnreachable, "no Kafka at 127.0.0.1:1, 127.0.0.1:2"},
		"store away":         {configured(t, "u:PLANTED@tcp(127.0.0.1:1)/s", []string{"127.0.0.1:1"}, free), daemon.ExitUnreachable, "store a: no connection to tcp(127.0.0.1:1)"},
		"wrong password":     {configured(t, wrong.FormatDSN(), []string{"127.0.0.1:1"}, free), daemon.ExitDenied, "a password was given"},
		"no store installed": {configured(t, dbtest.Schema(t), []string{"127.0.0.1:1"}, free), daemon.ExitFailed, "notifyd migrate"},
		"no spool directory": {configured(t, good, []string{"127.0.0.1:1"}, free+"\nspool_dir: /dev/null/spool"), daemon.ExitFailed, "spool_dir: open /dev/null/spool/canald-check"},
		"taken port":         {configured(t, good, []string{"127.0.0.1:1"}, "ops_listen: "+taken.Addr().String()), daemon.ExitFailed, "ops_listen"},
		"unknown key":        {configured(t, good, []string{"127.0.0.1:1"}, "lingr: 5ms"), daemon.ExitUsage, `"lingr": the nearest known key is "linger"`},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := daemon.Main(command(), []string{"--config", c.path, "--log-level", "error"}, &stderr)
			line := stderr.String()
			if code != c.code || !strings.HasPrefix(line, "canald: ") || !strings.Contains(line, c.says) {
				t.Errorf("code %d, want %d; %s", code, c.code, line)
			}
			if strings.Count(line, "\n") != 1 || strings.Contains(line, "PLANTED") {
				t.Errorf("not one line, or the password is shown: %q", line)
			}
		})
	}
}

// running starts canald and returns the channel of its end, and what ends it.
func running(t *testing.T, path string) (ended chan error, signal context.CancelFunc) {
	ctx, signal := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- run(ctx, daemon.Flags{Config: path, LogLevel: "error"}) }()
	return ended, signal
}

// message commits one in a store's shard 0.
func message(t *testing.T, dsn string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec("INSERT INTO " + schema.Message(0) + " (" + schema.MessageColumnList +
		") VALUES ((1 << 40) + 1, UNHEX('0198f0a0b0c07000800000000000000a'), 't', 'k', '', 'body', 1, 1795982530041389)")
	if err != nil {
		t.Fatal(err)
	}
}

func started(t *testing.T) *embedded.Kafka {
	t.Helper()
	kafka, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kafka.Close(); err != nil {
			t.Error(err)
		}
	})
	return kafka
}

func TestCanaldCopiesAndShowsItsState(t *testing.T) {
	dsn, port := installed(t), freePort(t)
	ended, signal := running(t, configured(t, dsn, started(t).Addrs(), "ops_listen: "+port))
	message(t, dsn)
	var report mirror.Report
	until(t, ended, func() bool {
		code, body := get(port, "/status")
		return code == http.StatusOK && json.Unmarshal(body, &report) == nil && report.Stores[0].Seq == 1
	})
	if code, body := get(port, "/readyz?verbose"); code != http.StatusOK || string(body) != "[+]process ok\n[+]mirror/a ok\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
	if _, body := get(port, "/metrics"); !bytes.Contains(body, []byte(`notify_mirror_messages_total{store="a",topic="t"} 1`)) {
		t.Error("the record is not counted")
	}
	for _, request := range []struct {
		kind, body, says string
		code             int
	}{
		{"text/plain", `{"what":"reset"}`, "application/json", http.StatusUnsupportedMediaType},
		{"application/json", `{"what":"reset","store":"b"}`, `store "b" is not there`, http.StatusConflict},
		{"application/json", `{"whet":"reset"}`, "unknown field", http.StatusConflict},
		{"application/json", `{"what":"accept-gap"}`, "there is no gap", http.StatusConflict},
		{"application/json", `{"what":"reset","dry_run":true}`, `"applied":false`, http.StatusOK},
		{"application/json", `{"what":"reset"}`, `"applied":true`, http.StatusOK},
	} {
		if code, body := post(t, port, request.kind, request.body); code != request.code || !strings.Contains(body, request.says) {
			t.Errorf("%s as %s: %d %s", request.body, request.kind, code, body)
		}
	}
	until(t, ended, func() bool {
		_, body := get(port, "/status")
		return json.Unmarshal(body, &report) == nil && report.Stores[0].Generation == 2 && report.Stores[0].Seq == 1
	})
	signal()
	if err := <-ended; err != nil {
		t.Errorf("a planned stop ends with %v", err)
	}
}

// post changes a checkpoint.
func post(t *testing.T, address, kind, body string) (int, string) {
	t.Helper()
	answer, err := http.Post("http://"+address+"/change", kind, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// One store is away from the start, one was never installed; the third is copied all the
// same, and each is shown by its name.
func TestCanaldCopiesEveryStoreThatItCan(t *testing.T) {
	dsn, port := installed(t), freePort(t)
	stores := fmt.Sprintf("{good: {dsn: %q}, bare: {dsn: %q, role: outbox-only}, away: {dsn: 'u@tcp(127.0.0.1:1)/s'}}", dsn, dbtest.Schema(t))
	ended, signal := running(t, configuredFor(t, stores, started(t).Addrs(), "ops_listen: "+port))
	message(t, dsn)
	states := map[string]mirror.Status{}
	until(t, ended, func() bool {
		var report mirror.Report
		_, body := get(port, "/status")
		if json.Unmarshal(body, &report) != nil {
			return false
		}
		for _, s := range report.Stores {
			states[s.Store] = s
		}
		return states["good"].Seq == 1 && states["bare"].State == mirror.Halted && states["away"].State == mirror.Waiting
	})
	code, body := get(port, "/readyz?verbose")
	for _, line := range []string{"[+]mirror/good ok\n", "[-]mirror/bare mirror of store bare: halted", "[-]mirror/away mirror of store away: waiting"} {
		if code != http.StatusServiceUnavailable || !strings.Contains(string(body), line) {
			t.Errorf("readyz: %d, no line %q in %s", code, line, body)
		}
	}
	_, body = get(port, "/metrics")
	for _, sample := range []string{`notify_mirror_active{store="good"} 1`, `notify_mirror_active{store="away"} 0`, `notify_mirror_halted{reason="config",store="bare"} 1`} {
		if !bytes.Contains(body, []byte(sample+"\n")) {
			t.Errorf("no sample %s", sample)
		}
	}
	signal()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "store bare stopped") {
		t.Errorf("it ends with %v", err)
	}
}

// until waits for a condition while the daemon runs.
func until(t *testing.T, ended <-chan error, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !condition() {
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("canald ended: %v", err)
		case <-deadline:
			t.Fatal("not within 30 s")
		}
	}
}

// get returns code 0 when there is no answer.
func get(address, path string) (int, []byte) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil
	}
	return answer.StatusCode, body
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
