package dbtest

import (
	"fmt"
	"strings"
	"testing"

	"notifymirror/notifyd/embedded"
)

// A Pair is a server and its read-only replica by GTID, both the test's own.
type Pair struct {
	// Primary is the one that took writes first, Replica the other.
	Primary, Replica *embedded.DB

	t     testing.TB
	words words
}

// NewPair starts two servers, of which one replicates the other. They end with the test. What is
// to be replicated must be made after it, by Primary's account.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	logs := "--loose-log-slave-updates=ON" // MySQL does by default
	p := &Pair{t: t, Primary: Private(t, embedded.Config{Extra: []string{logs}}),
		Replica: Private(t, embedded.Config{Extra: []string{"--server-id=2", "--read-only=ON", logs}})}
	reset := "RESET MASTER"
	p.words = words{"", "SLAVE", "MASTER", ""}
	if p.isMySQL() {
		p.words = words{"", "REPLICA", "SOURCE", ""}
		reset = "RESET BINARY LOGS AND GTIDS"
	}
	exec(t, p.Primary, reset)
	exec(t, p.Replica, reset)
	p.Attach(p.Replica, p.Primary)
	return p
}

func (p *Pair) isMySQL() bool { return p.Primary.Server().Flavor == embedded.MySQL }

// Addrs are the addresses of both, as a store's address names them.
func (p *Pair) Addrs() string { return p.Primary.Addr() + "," + p.Replica.Addr() }

// Attach lets one server replicate the other, read-only.
func (p *Pair) Attach(replica, primary *embedded.DB) {
	p.t.Helper()
	exec(p.t, replica, "SET GLOBAL read_only = ON")
	change := fmt.Sprintf("CHANGE %s TO x_HOST='127.0.0.1', x_PORT=%d, x_USER='%s', x_PASSWORD='%s', x_CONNECT_RETRY=1, ",
		map[string]string{"SLAVE": "MASTER", "REPLICA": "REPLICATION SOURCE"}[p.words.replica], primary.Port(), primary.User(), primary.Password())
	if p.isMySQL() {
		change += "x_AUTO_POSITION=1, GET_x_PUBLIC_KEY=1"
	} else {
		change += "x_USE_GTID=current_pos"
	}
	exec(p.t, replica, strings.ReplaceAll(change, "x_", p.words.source+"_"))
	exec(p.t, replica, "START "+p.words.replica)
}

// CatchUp waits until the replica has all that the primary has.
func (p *Pair) CatchUp() {
	p.t.Helper()
	ask, wait := "SELECT @@global.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT(?, ?)"
	if p.isMySQL() {
		ask, wait = "SELECT @@global.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)"
	}
	var at string
	var late int
	if err := open(p.t, p.Primary).QueryRow(ask).Scan(&at); err != nil {
		p.t.Fatal(err)
	}
	if err := open(p.t, p.Replica).QueryRow(wait, at, patience.Seconds()).Scan(&late); err != nil || late != 0 {
		p.t.Fatalf("replica does not come to %s: %d, %v", at, late, err)
	}
}

// Cut ends what the replica receives: what the primary commits from now on is not replicated.
func (p *Pair) Cut() {
	p.t.Helper()
	exec(p.t, p.Replica, "STOP "+p.words.replica+" IO_THREAD")
}

// Promote makes the replica take writes, with what it has applied.
func (p *Pair) Promote() {
	p.t.Helper()
	exec(p.t, p.Replica, "STOP "+p.words.replica)
	exec(p.t, p.Replica, "RESET "+p.words.replica+" ALL")
	exec(p.t, p.Replica, "SET GLOBAL read_only = OFF")
}

// Swap gives the two servers each other's part, after a Promote and an Attach.
func (p *Pair) Swap() { p.Primary, p.Replica = p.Replica, p.Primary }

// Schema makes a schema, and an account with all rights in it that may read the binlog. It returns
// the store address that names both servers, and the schema's name.
func (p *Pair) Schema() (dsn, name string) {
	p.t.Helper()
	name = fmt.Sprintf("test_%d", names.Add(1))
	const account = "pair@'127.0.0.1'"
	for _, s := range []string{
		"CREATE DATABASE " + name,
		"CREATE USER IF NOT EXISTS " + account + " IDENTIFIED BY 'secret'",
		"GRANT ALL ON " + name + ".* TO " + account,
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO " + account,
	} {
		exec(p.t, p.Primary, s)
	}
	return "pair:secret@tcp(" + p.Addrs() + ")/" + name, name
}
