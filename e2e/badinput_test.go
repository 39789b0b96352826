package e2e

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/stage"
	"notifymirror/mirror/embedded"
	database "notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// Exit codes of the programs.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitDenied      = 5
	exitUnreachable = 6
)

// secret is in every address and may be in no output.
const secret = "PLANTED-pass"

// Whatever is wrong with what a program is given, it says so in one line with the repair,
// ends with the right code, and has created nothing: no schema, no topic, no directory.
func TestBadInputIsOneLineAndNothingIsCreated(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]badInput{
		"dsn without a host": {
			program: "notifyd", config: w.notifyd("root:" + secret + "/notify"), code: exitUsage, says: []string{"stores.a.dsn", "user:password@tcp(host:port)/schema"}},
		"unknown key": {
			program: "notifyd", config: w.notifyd(w.good(), "lisen: 127.0.0.1:1"), code: exitUsage, says: []string{`"lisen"`, `"listen"`, ".yaml:"}},
		"misplaced key": {
			program: "canald", config: w.canald(w.good(), w.kafka, "brokers: [127.0.0.1:1]"), code: exitUsage, says: []string{`"brokers"`, "its place is kafka.brokers"}},
		"listener beyond loopback": {
			program: "notifyd", config: w.notifyd(w.good(), "listen: 0.0.0.0:7700"), code: exitUsage, says: []string{"listen", "loopback", "insecure"}},
		"configuration file is missing": {
			program: "notifyd", config: filepath.Join(w.dir, "nothing.yaml"), code: exitUsage, says: []string{"--config", "nothing.yaml"}},

		"no server": {
			program: "notifyd", config: w.notifyd(w.address("broker", w.away)), code: exitUnreachable, says: []string{w.away, "start the server"}},
		"no server for the mirror": {
			program: "canald", config: w.canald(w.address("mirror", w.away), w.kafka), code: exitUnreachable, says: []string{w.away, "start the server"}},
		"wrong password": {
			program: "notifyd", config: w.notifyd(w.address("stranger", w.db.Addr())), code: exitDenied, says: []string{`"stranger"`, "correct the user or password"}},
		"wrong password of the mirror": {
			program: "canald", config: w.canald(w.address("stranger", w.db.Addr()), w.kafka), code: exitDenied, says: []string{`"stranger"`, "correct the user or password"}},
		"no right to create": {
			program: "notifyd", config: w.notifyd(w.address("reader", w.db.Addr())), code: exitDenied, says: []string{"GRANT ", "CREATE", " TO 'reader'@'%'"}},
		"no right to the binlog": {
			program: "canald", config: w.canald(w.installedAddress("reader"), w.kafka), code: exitDenied, says: []string{"GRANT REPLICATION SLAVE ON *.* TO 'reader'@'%'"}},
		"no store yet": {
			program: "canald", config: w.canald(w.address("mirror", w.db.Addr()), w.kafka), code: exitFailed, says: []string{"no store is installed", "notifyd migrate"}},

		"statement format": {set: "binlog_format = 'STATEMENT'",
			program: "notifyd", config: w.notifyd(w.good()), code: exitFailed, says: []string{"binlog_format=STATEMENT", "binlog_format = 'ROW'"}},
		"statement format for the mirror": {set: "binlog_format = 'STATEMENT'",
			program: "canald", config: w.canald(w.installedAddress("mirror"), w.kafka), code: exitFailed, says: []string{"binlog_format=STATEMENT", "binlog_format = 'ROW'"}},
		"mixed format": {set: "binlog_format = 'MIXED'",
			program: "notifyd", config: w.notifyd(w.good()), code: exitFailed, says: []string{"binlog_format=MIXED", "binlog_format = 'ROW'"}},
		"row images without column names": {set: "binlog_row_metadata = 'MINIMAL'",
			program: "notifyd", config: w.notifyd(w.good()), code: exitFailed, says: []string{"binlog_row_metadata=MINIMAL", "binlog_row_metadata = 'FULL'"}},
		"row images without column names for the mirror": {set: "binlog_row_metadata = 'MINIMAL'",
			program: "canald", config: w.canald(w.installedAddress("mirror"), w.kafka), code: exitFailed, says: []string{"binlog_row_metadata=MINIMAL", "binlog_row_metadata = 'FULL'"}},
		"packets too small for a body": {set: "max_allowed_packet = 1048576",
			program: "notifyd", config: w.notifyd(w.good()), code: exitFailed, says: []string{"max_allowed_packet=1048576", "max_allowed_packet = "}},
		"no binlog": {
			program: "notifyd", config: w.notifyd(w.address("broker", w.noBinlog.Addr())), code: exitFailed, says: []string{"log_bin=OFF", "log_bin = binlog"}},

		"no Kafka": {
			program: "canald", config: w.canald(w.installedAddress("mirror"), w.away), code: exitUnreachable, says: []string{w.away, "kafka.brokers"}},
		"spool directory is a file": {
			program: "canald", config: w.canald(w.installedAddress("mirror"), w.kafka, "spool_dir: "+w.file), code: exitFailed, says: []string{"spool_dir", w.file}},
		"data directory is below a file": {
			program: "notify", args: []string{"dev", "--data-dir", filepath.Join(w.file, "data"), "--base-port", "20000"}, code: exitFailed, says: []string{w.file, "--data-dir"}},
		"data directory on a read-only file system": {
			program: "notify", args: []string{"dev", "--data-dir", "/proc/notify", "--base-port", "20000"}, code: exitFailed, says: []string{"/proc/notify", "--data-dir"}},
	} {
		t.Run(name, func(t *testing.T) { w.refuses(t, c) })
	}
	if w.db.Server().Flavor == database.MySQL {
		t.Run("no GTIDs", func(t *testing.T) {
			w.exec(t, "SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE", "SET GLOBAL gtid_mode = OFF")
			w.refuses(t, badInput{program: "notifyd", config: w.notifyd(w.good()), code: exitFailed, says: []string{"gtid_mode=OFF", "SET PERSIST gtid_mode = ON"}})
			w.refuses(t, badInput{program: "canald", config: w.canald(w.installedAddress("mirror"), w.kafka), code: exitFailed, says: []string{"gtid_mode=OFF", "SET PERSIST gtid_mode = ON"}})
		})
	}
}

// badInput is a program's start that cannot succeed.
type badInput struct {
	set     string // a global variable of the server for the time of the test
	program string
	config  string // with it, the arguments are --config and this path
	args    []string
	code    int
	says    []string
}

// world is what the programs are started in: a server with a store and without one, accounts
// with more or less rights, a Kafka without topics.
type world struct {
	t            *testing.T
	dir, file    string
	db, noBinlog *database.DB
	kafka, away  string
	pool         *sql.DB
	configs      int
}

const (
	freshSchema     = "fresh" // nothing may ever create it
	installedSchema = "installed"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), away: stage.Free(t)}
	w.file = filepath.Join(w.dir, "file")
	if err := os.WriteFile(w.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.db = dbtest.Private(t, database.Config{})
	w.noBinlog = dbtest.Private(t, database.Config{Extra: []string{"--skip-log-bin"}})
	k, err := embedded.Start(embedded.Config{Dir: filepath.Join(w.dir, "kafka")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	w.kafka = k.Addrs()[0]
	for _, db := range []*database.DB{w.noBinlog, w.db} {
		if w.pool, err = sql.Open("mysql", db.DSN("")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.pool.Close() })
		for _, user := range []string{"broker", "mirror", "reader"} {
			w.exec(t, "CREATE USER '"+user+"'@'%' IDENTIFIED BY '"+secret+"'")
		}
		w.exec(t, "CREATE USER 'stranger'@'%' IDENTIFIED BY 'another'",
			"GRANT ALL ON "+freshSchema+".* TO 'broker'@'%'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'mirror'@'%'",
			"GRANT REPLICATION CLIENT ON *.* TO 'reader'@'%'",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON "+freshSchema+".* TO 'reader'@'%'", "GRANT SELECT ON "+freshSchema+".* TO 'mirror'@'%'")
	}
	migrate := stage.Command(t, "notifyd", "migrate", "--config", w.notifyd(w.db.DSN(installedSchema)))
	if migrate.Code != 0 {
		t.Fatal(migrate.Stderr)
	}
	w.exec(t, "GRANT SELECT ON "+installedSchema+".store TO 'mirror'@'%'", "GRANT SELECT ON "+installedSchema+".* TO 'reader'@'%'")
	return w
}

// refuses runs the program and looks at what it says and leaves.
func (w *world) refuses(t *testing.T, c badInput) {
	t.Helper()
	if c.set != "" {
		name, _, _ := strings.Cut(c.set, " ")
		var before string
		if err := w.pool.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&before); err != nil {
			t.Fatal(err)
		}
		w.exec(t, "SET GLOBAL "+c.set)
		defer func() {
			if name != "max_allowed_packet" {
				before = "'" + before + "'"
			}
			w.exec(t, "SET GLOBAL "+name+" = "+before)
		}()
	}
	args := c.args
	if c.config != "" {
		args = []string{"--config", c.config}
	}
	r := stage.Command(t, c.program, args...)
	if r.Code != c.code {
		t.Errorf("exit code %d, want %d", r.Code, c.code)
	}
	if strings.Count(r.Stderr, "\n") != 1 || !strings.HasPrefix(r.Stderr, c.program+": ") || r.Stdout != "" {
		t.Errorf("not one line\nstderr: %s\nstdout: %s", r.Stderr, r.Stdout)
	}
	for _, text := range c.says {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("does not say %q: %s", text, r.Stderr)
		}
	}
	if strings.Contains(r.Stderr, secret) {
		t.Errorf("tells the password: %s", r.Stderr)
	}
	w.nothingCreated(t)
}

func (w *world) nothingCreated(t *testing.T) {
	t.Helper()
	for _, db := range []*database.DB{w.db, w.noBinlog} {
		pool, err := sql.Open("mysql", db.DSN(""))
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var n int
		if err := pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", freshSchema).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d schemas were created, error %v", n, err)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context())
	if err != nil || len(topics) > 0 {
		t.Errorf("topics %v were created, error %v", topics.Names(), err)
	}
	if info, err := os.Stat(w.file); err != nil || info.Size() > 0 {
		t.Errorf("the file was touched: %v", err)
	}
}

// good is the address of a broker's account and a schema that does not exist.
func (w *world) good() string { return w.address("broker", w.db.Addr()) }

func (w *world) address(user, addr string) string { return dsnOf(user, addr, freshSchema) }

// installedAddress is the address of an account and a store that is installed.
func (w *world) installedAddress(user string) string {
	return dsnOf(user, w.db.Addr(), installedSchema)
}

func dsnOf(user, addr, schema string) string {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = user, secret, "tcp", addr, schema
	return c.FormatDSN()
}

func (w *world) notifyd(dsn string, more ...string) string {
	return w.config(more, "ops_listen: %s\nstores: {a: {dsn: %q}}\n", net.JoinHostPort("127.0.0.1", "0"), dsn)
}

func (w *world) canald(dsn, kafka string, more ...string) string {
	return w.config(more, "ops_listen: %s\nstores: {a: {dsn: %q}}\nkafka: {brokers: [%q], allow_embedded: true}\n", net.JoinHostPort("127.0.0.1", "0"), dsn, kafka)
}

// config writes a configuration file and returns its path.
func (w *world) config(more []string, format string, args ...any) string {
	w.t.Helper()
	w.configs++
	path := filepath.Join(w.dir, fmt.Sprintf("%d.yaml", w.configs))
	text := fmt.Sprintf(format, args...) + strings.Join(more, "\n") + "\n"
	if !strings.Contains(text, "\nlisten: ") && !strings.Contains(text, "kafka: ") {
		text += "listen: 127.0.0.1:0\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := w.pool.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
