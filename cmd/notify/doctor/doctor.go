package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema/dsn"
	"notifymirror/notifyd/schema/preflight"
)

// Target is what there is to look at.
type Target struct {
	Stores []Store
	// Kafka is the mirror's, if any.
	Kafka *Kafka
	// Daemons are ops addresses by name of the daemon.
	Daemons []Daemon
	Disks   []Disk
	// Said is what reading the configurations already found.
	Said []finding.Finding
}

// Store is a store as one of the daemons uses it.
type Store struct {
	DSN  string
	Role preflight.Role
	// MaxBody is the largest body in bytes; 0 is the broker's default.
	MaxBody int64
}

// Daemon is a running daemon of ours.
type Daemon struct{ Name, Ops string }

// Disk is a directory that must have room.
type Disk struct {
	// Path may be of something that is not made yet.
	Path string
	// Need is how many bytes should be free, For what for.
	Need uint64
	For  string
}

// roomForData is what a data directory should have free.
const roomForData = 1 << 30

// Check looks at everything, and returns what there is to say, the worst first.
func Check(ctx context.Context, t Target) []finding.Finding {
	all := t.Said
	for _, s := range t.Stores {
		report := preflight.CheckAll(ctx, s.DSN, preflight.Options{Role: s.Role, MaxBody: s.MaxBody})
		all = append(all, report.Findings...)
		for _, dir := range localData(ctx, s.DSN) {
			t.Disks = append(t.Disks, Disk{Path: dir, Need: roomForData, For: "the data and binlog of a store"})
		}
	}
	if t.Kafka != nil {
		all = append(all, t.Kafka.check(ctx)...)
	}
	for _, d := range t.Daemons {
		all = append(all, d.check(ctx)...)
	}
	for _, d := range t.Disks {
		all = append(all, d.check()...)
	}
	all = once(all)
	finding.Sort(all)
	return all
}

// once leaves out what was said before.
func once(all []finding.Finding) (distinct []finding.Finding) {
	seen := map[string]bool{}
	for _, f := range all {
		if text := f.String(); !seen[text] {
			seen[text] = true
			distinct = append(distinct, f)
		}
	}
	return distinct
}

// localData are the data directories of those servers of an address that are on this machine.
func localData(ctx context.Context, address string) (dirs []string) {
	cfg, err := dsn.Parse(address)
	if err != nil {
		return nil
	}
	for _, server := range dsn.NewPrimary(cfg).Servers() {
		if dir := dataOf(ctx, dsn.At(cfg, server)); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// dataOf is the data directory of a server on this machine, "" for any other.
func dataOf(ctx context.Context, cfg *mysql.Config) (dir string) {
	host, _, err := net.SplitHostPort(cfg.Addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	cfg.DBName = ""
	connector, err := dsn.NewConnector(cfg)
	if err != nil {
		return ""
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir) != nil {
		return "" // reported with the server
	}
	if _, err := os.Stat(dir); err != nil {
		return "" // of another machine behind a tunnel, or not ours to see
	}
	return dir
}

// Exit returns the exit code for findings: 0 when there is nothing but notes, 3 when the
// worst is a warning, else that of the first error: 1 a setting, 2 the configuration, 5 a
// right or password, 6 what cannot be reached, and so was not looked at.
func Exit(all []finding.Finding) int {
	code := 0
	for _, f := range all {
		switch {
		case f.Severity == finding.Error:
			return f.Exit
		case f.Severity == finding.Warning:
			code = daemon.ExitPartly
		}
	}
	return code
}

// Summary is how many findings there are of each kind.
func Summary(all []finding.Finding) string {
	n := map[finding.Severity]int{}
	for _, f := range all {
		n[f.Severity]++
	}
	return fmt.Sprintf("errors: %d, warnings: %d, notes: %d", n[finding.Error], n[finding.Warning], n[finding.Note])
}

// byHand is a Mend in words.
func byHand(format string, args ...any) finding.Mend {
	return finding.Mend{How: fmt.Sprintf(format, args...)}
}
