package main

import (
	"bytes"
	"context"
	"database/sql"
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/cmd/daemon"
	kafka "notifymirror/mirror/embedded"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// configured writes a configuration that uses free ports and returns its path.
func configured(t *testing.T, dsn string, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notifyd.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nstores: {a: {dsn: %q}}\n%s\n", dsn, strings.Join(more, "\n"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// program runs the program to its end.
func program(arguments ...string) (code int, stdout, stderr string) {
	var out, talk bytes.Buffer
	root := command()
	root.SetOut(&out)
	code = daemon.Main(root, append(arguments, "--log-level", "error"), &talk)
	return code, out.String(), talk.String()
}

func TestWhatNotifydCannotStartWithIsOneLineAndLeavesNothing(t *testing.T) {
	good := dbtest.Schema(t)
	cfg, err := mysql.ParseDSN(good)
	if err != nil {
		t.Fatal(err)
	}
	wrong := cfg.Clone()
	wrong.Passwd = "PLANTED"
	admin := open(t, good)
	exec(t, admin, "CREATE USER 'poor'@'127.%' IDENTIFIED BY 'secret'")
	t.Cleanup(func() { admin.Exec("DROP USER 'poor'@'127.%'") })
	poor := cfg.Clone()
	poor.User, poor.Passwd = "poor", "secret"
	statement := dbtest.Private(t, embedded.Config{Extra: []string{"--binlog-row-metadata=MINIMAL"}})
	const free = "ops_listen: 127.0.0.1:0"
	for name, c := range map[string]struct {
		path string
		code int
		says string
	}{
		"dsn does not parse": {configured(t, "root:PLANTED/x", free), daemon.ExitUsage, "stores.a.dsn: invalid store address"},
		"store away":         {configured(t, "u:PLANTED@tcp(127.0.0.1:1)/s", free), daemon.ExitUnreachable, "store a: no connection to tcp(127.0.0.1:1): connect: connection refused"},
		"wrong password":     {configured(t, wrong.FormatDSN(), free), daemon.ExitDenied, "a password was given"},
		"no grants":          {configured(t, poor.FormatDSN(), free), daemon.ExitDenied, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER ON `" + cfg.DBName + "`.* TO 'poor'@'127.%'"},
		"no column names":    {configured(t, statement.DSN("notify"), free), daemon.ExitFailed, "binlog_row_metadata"},
		"beyond loopback":    {configured(t, good, "ops_listen: 0.0.0.0:7701"), daemon.ExitUsage, "insecure: true"},
		"unknown key":        {configured(t, good, "ackwait: 5s"), daemon.ExitUsage, `"ackwait": the nearest known key is "ack_wait"`},
		"no configuration":   {"/nowhere.yaml", daemon.ExitUsage, "/nowhere.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, line := program("--config", c.path)
			if code != c.code || !strings.HasPrefix(line, "notifyd: ") || !strings.Contains(line, c.says) {
				t.Errorf("code %d, want %d; %s", code, c.code, line)
			}
			if strings.Contains(line, "PLANTED") {
				t.Errorf("the password is shown: %q", line)
			}
			if strings.Count(line, "\n") != 1 {
				t.Errorf("more than one line: %q", line)
			}
		})
	}
	var tables int
	err = admin.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("%d tables were made, %v", tables, err)
	}
	var schemas int
	err = open(t, statement.DSN("")).QueryRow("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'notify'").Scan(&schemas)
	if err != nil || schemas != 0 {
		t.Errorf("%d schemas were made, %v", schemas, err)
	}
}

func TestMigrateInstallsOnceWithTheNumberOfShardsAsked(t *testing.T) {
	dsn := dbtest.Schema(t)
	path := configured(t, dsn)
	code, out, line := program("migrate", "--config", path, "--shards", "3")
	if code != daemon.ExitOK || !strings.HasPrefix(out, "store a: schema version 3, 3 shards, id ") {
		t.Fatalf("code %d, %q, %q", code, out, line)
	}
	if code, again, line := program("migrate", "--config", path); code != daemon.ExitOK || again != out {
		t.Errorf("again: code %d, %q, %q", code, again, line)
	}
	if code, _, line := program("migrate", "--config", path, "--shards", "4"); code != daemon.ExitFailed || !strings.Contains(line, "4 asked") {
		t.Errorf("other number: code %d, %q", code, line)
	}
	if code, _, _ := program("migrate", "--config", path, "--shards", "101"); code != daemon.ExitUsage {
		t.Errorf("impossible number: code %d", code)
	}
	if code, out, _ := program("check-config", "--config", path); code != daemon.ExitOK || out != "the configuration is good\n" {
		t.Errorf("check-config: code %d, %q", code, out)
	}
}

func TestNotifydInstallsItsStoreAndOwnsEveryShard(t *testing.T) {
	dsn := dbtest.Schema(t)
	ops := freePort(t)
	path := configured(t, dsn, "ops_listen: "+ops)
	ctx, signal := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, daemon.Flags{Config: path, LogLevel: "error"}) }()
	until(t, ended, func() bool {
		code, _ := get(ops, "/readyz")
		return code == http.StatusOK
	})
	db := open(t, dsn)
	held := func() (n int) {
		if err := db.QueryRow("SELECT COUNT(*) FROM lease WHERE expires_at <> 0").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until(t, ended, func() bool { return held() == schema.DefaultShards })
	if info, err := schema.Read(t.Context(), db); err != nil || info.Shards != schema.DefaultShards {
		t.Errorf("store row: %+v, %v", info, err)
	}
	signal()
	if err := <-ended; err != nil {
		t.Errorf("a planned stop ends with %v", err)
	}
	if n := held(); n != 0 {
		t.Errorf("%d leases are held after a planned stop", n)
	}
}

// The limits of a running mirror's topics are known to a publisher.
func TestWhatKafkaWouldRefuseIsRefusedAtPublish(t *testing.T) {
	mirror, err := kafka.Start(kafka.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	admin, err := kgo.NewClient(kgo.SeedBrokers(mirror.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	limit := "2000"
	if _, err := kadm.NewClient(admin).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "notify.orders"); err != nil {
		t.Fatal(err)
	}
	ops, api := freePort(t), freePort(t)
	path := filepath.Join(t.TempDir(), "notifyd.yaml")
	text := fmt.Sprintf("listen: %s\nops_listen: %s\nauto_create_topics: true\nstores: {a: {dsn: %q}}\nkafka: {brokers: [%q]}\n", api, ops, dbtest.Schema(t), mirror.Addrs()[0])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, signal := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, daemon.Flags{Config: path, LogLevel: "error"}) }()
	until(t, ended, func() bool {
		code, _ := get(ops, "/readyz")
		return code == http.StatusOK
	})
	publish := func(bytes int) (code int) {
		body := fmt.Sprintf(`{"message":{"topic":"orders","text":"%s"}}`, strings.Repeat("x", bytes))
		res, err := http.Post("http://"+api+"/notify.v1.Messaging/Publish", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	until(t, ended, func() bool { return publish(3000) == http.StatusBadRequest })
	if code := publish(1000); code != http.StatusOK {
		t.Errorf("a message that fits: status %d", code)
	}
	signal()
	if err := <-ended; err != nil {
		t.Errorf("a planned stop ends with %v", err)
	}
}

func TestAnApplicationsDatabaseBecomesAStoreByItsDSN(t *testing.T) {
	mainDSN, shopDSN := dbtest.Schema(t), dbtest.Schema(t)
	ops := freePort(t)
	path := filepath.Join(t.TempDir(), "notifyd.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nops_listen: %s\nauto_create_topics: true\nstores:\n  a: {dsn: %q}\n  shop: {dsn: %q, role: outbox-only}\n"+
		"  lost: {dsn: 'u@tcp(127.0.0.1:1)/s', role: outbox-only}\n", ops, mainDSN, shopDSN)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, line := program("migrate", "--config", path, "--shards", "2"); code != daemon.ExitUsage || !strings.Contains(line, "--store NAME") {
		t.Errorf("shards of which store: code %d, %s", code, line)
	}
	if code, _, line := program("migrate", "--config", path, "--store", "x"); code != daemon.ExitUsage || !strings.Contains(line, `"lost" "shop"`) {
		t.Errorf("a store that is not there: code %d, %s", code, line)
	}
	if code, out, line := program("migrate", "--config", path); code != daemon.ExitUnreachable || !strings.Contains(line, "store lost: ") ||
		!strings.Contains(out, fmt.Sprintf("store a: schema version %d, 8 shards", schema.Latest)) || !strings.Contains(out, fmt.Sprintf("store shop: schema version %d, 1 shard,", schema.Latest)) {
		t.Errorf("migrate: code %d, %s, %s", code, out, line)
	}
	shop := open(t, shopDSN)
	exec(t, shop, "INSERT INTO outbox (id, topic, msg_key, headers, body) VALUES (UNHEX(REPLACE(UUID(), '-', '')), 'orders', '1', '', 'x')")
	ctx, signal := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, daemon.Flags{Config: path, LogLevel: "error"}) }()
	until(t, ended, func() bool {
		var n int
		if err := shop.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&n); err != nil {
			t.Fatal(err)
		}
		code, _ := get(ops, "/readyz")
		return n == 0 && code == http.StatusOK
	})
	signal()
	if err := <-ended; err != nil {
		t.Errorf("a planned stop ends with %v", err)
	}
}

func TestTheSchemaIsPrintedWithoutAConfiguration(t *testing.T) {
	for _, arguments := range [][]string{{"migrate", "--print"}, {"migrate", "--shards", "0"}} {
		if code, out, line := program(arguments...); code != daemon.ExitUsage || out != "" || !strings.Contains(line, "shards") {
			t.Errorf("%q: code %d, %s%s", arguments, code, out, line)
		}
	}
	if code, out, line := program("migrate", "--print", "--from", "1", "--shards", "2"); code != daemon.ExitOK || !strings.Contains(out, "ALTER TABLE half_01") {
		t.Errorf("an upgrade: code %d, %s%s", code, out, line)
	}
	code, out, line := program("migrate", "--print", "--shards", "1")
	if code != daemon.ExitOK || !strings.Contains(out, "CREATE TABLE message_00 (") || strings.Contains(out, "message_01") {
		t.Errorf("code %d, %s\n%s", code, line, out)
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
			t.Fatalf("notifyd ended: %v", err)
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

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
