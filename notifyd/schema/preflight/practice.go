package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"notifymirror/notifyd/finding"
)

// shortestExpiry is how long binlog must be kept at least, in seconds: a mirror or a Kafka
// that is away for longer loses what was purged meanwhile.
const shortestExpiry = 24 * 60 * 60

// A practice is a setting that does not keep a store from working, and its good values; a
// setting that the server does not have is good.
type practice struct {
	name     string
	good     []string
	severity finding.Severity
	why      string
	want     string // quoted where SQL wants that
	restart  bool   // a running server keeps it
}

var practices = []practice{
	{"log_slave_updates", []string{"ON", "1"}, finding.Note,
		"so a replica with this setting that is promoted has no binlog of what came before, and the mirror cannot go on from it", "ON", true},
	{"max_binlog_total_size", []string{"0"}, finding.Warning, "so it purges binlog by size, whether it was mirrored or not", "0", false},
	{"binlog_space_limit", []string{"0"}, finding.Warning, "so it purges binlog by size, whether it was mirrored or not", "0", true},
	{"binlog_annotate_row_events", []string{"OFF"}, finding.Note, "which doubles the binlog", "OFF", false},
	{"binlog_rows_query_log_events", []string{"OFF"}, finding.Note, "which doubles the binlog", "OFF", false},
	{"binlog_transaction_compression", []string{"OFF"}, finding.Note, "which costs the server and canald time for every transaction", "OFF", false},
	{"log_bin_compress", []string{"OFF"}, finding.Note, "which costs the server and canald time for every event", "OFF", false},
	{"binlog_row_value_options", []string{""}, finding.Warning,
		"so updates of JSON columns are in the binlog in parts, at which the mirror stops where they are in a table that it reads", "''", false},
	{"binlog_checksum", []string{"CRC32"}, finding.Warning, "so nobody notices a damaged binlog", "'CRC32'", false},
	{"transaction_isolation", []string{"READ-COMMITTED"}, finding.Note,
		"so applications that write to the outbox may lock gaps and wait for each other", "'READ-COMMITTED'", false},
	{"tx_isolation", []string{"READ-COMMITTED"}, finding.Note,
		"so applications that write to the outbox may lock gaps and wait for each other", "'READ-COMMITTED'", false},
	{"innodb_snapshot_isolation", []string{"OFF"}, finding.Note, "so transactions of applications may end with error 1020", "OFF", false},
	{"gtid_strict_mode", []string{"ON", "1"}, finding.Warning,
		"so a write on a replica can give it transactions that the primary has not, unnoticed until it is promoted", "ON", false},
	{"character_set_server", []string{"utf8mb4"}, finding.Note, "so new schemas of applications do not take every text", "'utf8mb4'", false},
}

// practice adds what works and should be otherwise.
func (s settings) practice(r *Report) {
	for _, p := range practices {
		value, has := s.global[p.name]
		if s.several && p.name == "log_slave_updates" {
			p.severity = finding.Warning // without it a promotion ends the mirror
		}
		switch {
		case !has || slices.Contains(p.good, value):
		case p.name == "tx_isolation" && s.global["transaction_isolation"] != "": // the same by its older name
		case p.restart:
			r.add(p.severity, s.has(p.name), p.why, restart(p.name, p.want))
		default:
			r.add(p.severity, s.has(p.name), p.why, s.set(p.name, p.want))
		}
	}
	s.expiry(r)
	if n, err := strconv.Atoi(s.global["wait_timeout"]); err == nil && n < 60 {
		r.warn(s.has("wait_timeout"), "so connections that are idle for a moment are cut, and what uses them next fails", s.set("wait_timeout", "28800"))
	}
}

// expiry warns where binlog is purged soon. MariaDB knew the setting in days at first.
func (s settings) expiry(r *Report) {
	const name = "binlog_expire_logs_seconds"
	if off(s.global["binlog_expire_logs_auto_purge"]) {
		return
	}
	seconds, err := strconv.Atoi(s.global[name])
	if days, other := strconv.ParseFloat(s.global["expire_logs_days"], 64); err != nil && other == nil {
		s.expires(r, "expire_logs_days", int(days*24*60*60), "7")
		return
	}
	if err == nil {
		s.expires(r, name, seconds, fmt.Sprint(7*shortestExpiry))
	}
}

func (s settings) expires(r *Report, name string, seconds int, week string) {
	if seconds > 0 && seconds < shortestExpiry {
		r.warn(s.has(name), "so binlog that is not mirrored yet may be purged within a day", s.set(name, week))
	}
}

// semiSync warns of topics with the durability replicated on a server that waits for no
// replica. topics is how many there are.
func (s settings) semiSync(r *Report, topics int) {
	name := "rpl_semi_sync_source_enabled"
	if _, has := s.global[name]; !has {
		name = "rpl_semi_sync_master_enabled"
	}
	value, has := s.global[name]
	if topics == 0 || on(value) {
		return
	}
	mend := s.set(name, "ON")
	if !has {
		mend = typed("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'", "SET PERSIST rpl_semi_sync_source_enabled = ON")
	}
	r.warn(fmt.Sprintf("%s has %s=%s", s.addr, name, cmp.Or(value, "(not installed)")),
		fmt.Sprintf("so publishes to topics with the durability replicated fail (%d such)", topics), mend)
}
