package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"notifymirror/notifyd/finding"
)

// settingNames are the settings that the check reads.
var settingNames = []string{
	"log_bin", "sql_log_bin", "server_id", "binlog_format", "binlog_row_image", "binlog_row_metadata",
	"gtid_mode", "enforce_gtid_consistency", "sync_binlog", "innodb_flush_log_at_trx_commit",
	"read_only", "super_read_only", "innodb_read_only", "max_allowed_packet", "wsrep_on",
	"group_replication_group_name", "group_replication_single_primary_mode",
	"log_slave_updates", "log_replica_updates", "binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days",
	"max_binlog_total_size", "binlog_space_limit", "binlog_annotate_row_events", "binlog_rows_query_log_events",
	"binlog_transaction_compression", "log_bin_compress", "binlog_row_value_options", "binlog_checksum",
	"wait_timeout", "transaction_isolation", "tx_isolation", "innodb_snapshot_isolation", "gtid_strict_mode",
	"character_set_server", "rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled",
}

// settings is what a server says about itself. A variable that it does not have is "".
type settings struct {
	addr, version, account string
	global, session        map[string]string
	// filters of the binlog; nil where the account may not see them.
	filters map[string]string
	several bool // servers have the store: a replica is no fault
	// maxBody is the largest body, clientPacket the driver's own limit, in bytes.
	maxBody, clientPacket int64
}

func (s settings) flavor() flavor { return parseFlavor(s.version) }

// check adds everything that is wrong with the settings.
func (s settings) check(r *Report) {
	if !s.flavor().supported() {
		r.refuse(codeFailed, fmt.Sprintf("%s runs version %q", s.addr, s.version), "a store needs MySQL 8.0 or newer, or MariaDB 10.6 or newer", do("upgrade the server"))
		return
	}
	s.topology(r)
	s.binlog(r)
	s.gtid(r)
	s.durability(r)
	s.packet(r)
	s.practice(r)
}

// topology refuses servers that are not the one primary.
func (s settings) topology(r *Report) {
	const shared = "several nodes take writes there and the lock of a shard is not shared"
	if on(s.global["wsrep_on"]) {
		r.refuse(codeFailed, s.addr+" is a Galera node (wsrep_on=ON)", shared, do("use a server with one primary"))
	}
	if s.global["group_replication_group_name"] != "" && off(s.global["group_replication_single_primary_mode"]) {
		r.refuse(codeFailed, s.addr+" is in a multi-primary replication group", shared, typed("SELECT group_replication_switch_to_single_primary_mode()"))
	}
	readOnly := []string{"super_read_only", "read_only", "innodb_read_only"}
	if s.several {
		readOnly = readOnly[2:] // a replica has the others until it is promoted
	}
	for _, name := range readOnly {
		if value := s.global[name]; value != "" && !off(value) {
			r.refuse(codeFailed, fmt.Sprintf("%s is read-only (%s=%s)", s.addr, name, value), "so it is not the primary",
				finding.Mend{How: "put the primary's address into the store's dsn, or if this is the primary type", SQL: []string{"SET GLOBAL " + name + " = OFF"}})
			return
		}
	}
}

// binlog refuses settings under which the mirror would not see every message whole.
func (s settings) binlog(r *Report) {
	if !on(s.global["log_bin"]) {
		r.refuse(codeFailed, s.addr+" has no binlog (log_bin=OFF)", "so there is nothing to mirror from",
			do("put log_bin = binlog under [mysqld] in my.cnf, remove skip-log-bin, and restart the server"))
		return
	}
	if s.global["server_id"] == "0" {
		r.refuse(codeFailed, s.has("server_id"), "with which it gives nobody its binlog", s.set("server_id", "1"))
	}
	sessions := fmt.Sprintf("sessions of %s at %s ", s.account, s.addr)
	const fromDSN = "remove it from the store's dsn and from init_connect"
	if off(s.session["sql_log_bin"]) {
		r.refuse(codeConfig, sessions+"do not write the binlog (sql_log_bin=OFF)", "so the mirror would miss their messages", do(fromDSN))
	}
	if value := s.global["binlog_format"]; value != "" && value != "ROW" {
		r.refuse(codeFailed, s.has("binlog_format"), "which hides the rows", s.set("binlog_format", "'ROW'"))
	} else if value := s.session["binlog_format"]; value != "" && value != "ROW" {
		r.refuse(codeConfig, sessions+"have binlog_format="+value, "which hides the rows", do(fromDSN))
	}
	if !slices.Contains([]string{"MINIMAL", "NOBLOB", "FULL"}, s.global["binlog_row_image"]) {
		r.refuse(codeFailed, s.has("binlog_row_image"), "which is not known to hold whole rows", s.set("binlog_row_image", "'MINIMAL'"))
	}
	if s.global["binlog_row_metadata"] != "FULL" {
		r.refuse(codeFailed, s.has("binlog_row_metadata"), "so the binlog has no column names", s.set("binlog_row_metadata", "'FULL'"))
	}
	for _, name := range []string{"binlog_do_db", "binlog_ignore_db"} {
		if value := s.filters[name]; value != "" {
			r.refuse(codeFailed, fmt.Sprintf("%s filters its binlog (%s=%s)", s.addr, name, value), "so messages may be missing there",
				do("remove %s from my.cnf and restart the server", name))
		}
	}
}

// gtid refuses MySQL without GTIDs. MariaDB always has them.
func (s settings) gtid(r *Report) {
	mode, consistency := s.global["gtid_mode"], s.global["enforce_gtid_consistency"]
	if s.flavor().kind != mysqlServer || mode == "ON" && consistency == "ON" {
		return
	}
	var steps []string
	if consistency != "ON" {
		steps = append(steps, "SET PERSIST enforce_gtid_consistency = ON")
	}
	modes := []string{"OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"}
	for _, next := range modes[slices.Index(modes, mode)+1:] {
		steps = append(steps, "SET PERSIST gtid_mode = "+next)
	}
	r.refuse(codeFailed, fmt.Sprintf("%s has gtid_mode=%s and enforce_gtid_consistency=%s", s.addr, mode, consistency), "both must be ON",
		finding.Mend{How: "type in this order, the last when SHOW STATUS LIKE 'Ongoing_anonymous_transaction_count' is 0", SQL: steps})
}

// durability warns where a crash of the machine loses what was acknowledged.
func (s settings) durability(r *Report) {
	for _, name := range []string{"sync_binlog", "innodb_flush_log_at_trx_commit"} {
		if s.global[name] != "1" {
			r.warn(s.has(name), "so acknowledged messages may be lost when its machine fails", s.set(name, "1"))
		}
	}
}

// packet refuses limits under which a message of the largest size, with every byte of it
// escaped, or a batch of 1 MiB, does not fit into one statement.
func (s settings) packet(r *Report) {
	need := 2*s.maxBody + 1<<20
	small := fmt.Sprintf("too small for bodies of %d bytes", s.maxBody)
	if value, err := strconv.ParseInt(s.global["max_allowed_packet"], 10, 64); err != nil || value < need {
		r.refuse(codeFailed, s.has("max_allowed_packet"), small, s.set("max_allowed_packet", fmt.Sprint(roundUp(need))))
	}
	if s.clientPacket > 0 && s.clientPacket < need {
		r.refuse(codeConfig, fmt.Sprintf("the store's dsn has maxAllowedPacket=%d", s.clientPacket), small, do("remove it or raise it to %d", roundUp(need)))
	}
}

// has is a server with the value of a setting.
func (s settings) has(name string) string {
	return fmt.Sprintf("%s has %s=%s", s.addr, name, s.global[name])
}

// set changes a setting, which can be changed at run time, for good.
func (s settings) set(name, value string) finding.Mend {
	if s.flavor().kind == mysqlServer {
		return typed("SET PERSIST " + name + " = " + value)
	}
	mend := typed("SET GLOBAL " + name + " = " + value)
	mend.Also = fmt.Sprintf("and put %s = %s into my.cnf", name, strings.Trim(value, "'"))
	return mend
}

// restart changes a setting that a running server keeps.
func restart(name, value string) finding.Mend {
	return do("put %s = %s under [mysqld] in my.cnf and restart the server", name, value)
}

// roundUp returns the next MiB.
func roundUp(n int64) int64 { return (n + 1<<20 - 1) >> 20 << 20 }

func on(value string) bool  { return value == "ON" || value == "1" }
func off(value string) bool { return value == "OFF" || value == "0" }
