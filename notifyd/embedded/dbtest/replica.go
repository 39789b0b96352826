package dbtest

import (
	"database/sql"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
)

// A Replica is a server that replicates the shared one from the moment it began, and acknowledges to
// it semi-synchronously.
type Replica struct {
	t       testing.TB
	db      *embedded.DB
	primary *sql.DB
	own     *sql.DB
	words   words
}

// words are what MySQL and MariaDB call the same.
type words struct{ prefix, replica, source, logs string }

const (
	// acknowledges is how long the shared server waits for a replica that is there: long, for a loaded machine, but
	// shorter than a broker waits for a COMMIT.
	acknowledges = 8 * time.Second
	// silent is how long it waits for one that answers nothing.
	silent = 200 * time.Millisecond
)

// SemiSync switches semi-synchronous replication on in the shared server and attaches a replica. All of it ends with
// the test; MySQL keeps the plugin, switched off.
func SemiSync(t testing.TB) *Replica {
	t.Helper()
	shared := Start(t)
	w := words{"rpl_semi_sync_master_", "SLAVE", "MASTER", "SHOW MASTER STATUS"}
	if shared.Server().Flavor == embedded.MySQL {
		w = words{"rpl_semi_sync_source_", "REPLICA", "SOURCE", "SHOW BINARY LOG STATUS"}
	}
	r := &Replica{t: t, words: w, primary: open(t, shared),
		db: Private(t, embedded.Config{Extra: []string{"--server-id=2", "--skip-log-bin"}})}
	r.own = open(t, r.db)
	peer := "rpl_semi_sync_slave_enabled"
	if w.replica == "REPLICA" {
		peer = "rpl_semi_sync_replica_enabled"
		r.run(r.own, "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
		var installed int
		if err := r.primary.QueryRow("SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'rpl_semi_sync_source'").Scan(&installed); err != nil {
			t.Fatal(err)
		}
		if installed == 0 {
			r.run(r.primary, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
		}
	}
	r.run(r.own, "SET GLOBAL "+peer+" = ON")
	r.run(r.primary, "SET GLOBAL "+w.prefix+"enabled = ON")
	t.Cleanup(func() { r.run(r.primary, "SET GLOBAL "+w.prefix+"enabled = OFF") })
	file, position := r.position()
	change := fmt.Sprintf("CHANGE %s TO x_HOST='127.0.0.1', x_PORT=%d, x_USER='%s', x_PASSWORD='%s', x_LOG_FILE='%s', x_LOG_POS=%s, x_CONNECT_RETRY=1",
		map[string]string{"SLAVE": "MASTER", "REPLICA": "REPLICATION SOURCE"}[w.replica], shared.Port(), shared.User(), shared.Password(), file, position)
	if w.replica == "REPLICA" {
		change += ", x_AUTO_POSITION=0, GET_x_PUBLIC_KEY=1"
	}
	r.run(r.own, strings.ReplaceAll(change, "x_", w.source+"_"))
	r.Start()
	return r
}

func open(t testing.TB, db *embedded.DB) *sql.DB {
	t.Helper()
	pool, err := sql.Open("mysql", db.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// run runs statements on one of the two servers.
func (r *Replica) run(on *sql.DB, statements ...string) {
	r.t.Helper()
	for _, s := range statements {
		if _, err := on.Exec(s); err != nil {
			r.t.Errorf("%s: %v", s, err)
		}
	}
}

// position is where the shared server's binlog ends.
func (r *Replica) position() (file, position string) {
	r.t.Helper()
	rows, err := r.primary.Query(r.words.logs)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		r.t.Fatalf("%s: %v", r.words.logs, err)
	}
	into := []any{&file, &position}
	for range columns[len(into):] {
		into = append(into, new(sql.RawBytes))
	}
	if err := rows.Scan(into...); err != nil {
		r.t.Fatal(err)
	}
	return file, position
}

// Start attaches the replica, and returns when it has.
func (r *Replica) Start() {
	r.t.Helper()
	r.run(r.own, "START "+r.words.replica)
	r.await("clients", "1")
	r.timeout(acknowledges)
}

// Stop detaches the replica, and returns when the shared server has noticed.
func (r *Replica) Stop() {
	r.t.Helper()
	r.timeout(silent)
	r.run(r.own, "STOP "+r.words.replica)
	r.await("clients", "0")
}

// Freeze lets the replica stay attached and answer nothing.
func (r *Replica) Freeze() {
	r.t.Helper()
	r.timeout(silent)
	r.signal(syscall.SIGSTOP)
}

// Thaw ends Freeze.
func (r *Replica) Thaw() {
	r.t.Helper()
	r.signal(syscall.SIGCONT)
	r.timeout(acknowledges)
}

// timeout is how long a COMMIT waits for an acknowledgement from now on.
func (r *Replica) timeout(d time.Duration) {
	r.t.Helper()
	r.run(r.primary, fmt.Sprintf("SET GLOBAL %stimeout = %d", r.words.prefix, d.Milliseconds()))
}

func (r *Replica) signal(s syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(r.db.PID(), s); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until the shared server's status says so.
func (r *Replica) await(variable, want string) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var name, got string
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if err := r.primary.QueryRow("SHOW GLOBAL STATUS LIKE '"+r.words.prefix+variable+"'").Scan(&name, &got); err != nil {
			r.t.Fatal(err)
		}
		if got == want {
			return
		}
	}
	r.t.Fatalf("%s%s is %s, want %s", r.words.prefix, variable, got, want)
}
