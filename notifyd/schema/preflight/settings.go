package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// variableList names the settings that the check reads, as SQL strings.
const variableList = `'log_bin','sql_log_bin','server_id','binlog_format','binlog_row_image','binlog_row_metadata',` +
	`'gtid_mode','enforce_gtid_consistency','sync_binlog','innodb_flush_log_at_trx_commit',` +
	`'read_only','super_read_only','innodb_read_only','max_allowed_packet','wsrep_on',` +
	`'group_replication_group_name','group_replication_single_primary_mode'`

// settings is what a server says about itself. A variable that it does not have is "".
type settings struct {
	addr, version, account string
	global, session        map[string]string
	// filters of the binlog; nil where the account may not see them.
	filters map[string]string
	// maxBody is the largest body, clientPacket the driver's own limit, in bytes.
	maxBody, clientPacket int64
}

func (s settings) flavor() flavor { return parseFlavor(s.version) }

// check adds everything that is wrong with the settings.
func (s settings) check(r *Report) {
	if !s.flavor().supported() {
		r.refuse(codeFailed, "%s runs version %q: a store needs MySQL 8.0 or newer, or MariaDB 10.6 or newer: upgrade the server", s.addr, s.version)
		return
	}
	s.topology(r)
	s.binlog(r)
	s.gtid(r)
	s.durability(r)
	s.packet(r)
}

// topology refuses servers that are not the one primary.
func (s settings) topology(r *Report) {
	if on(s.global["wsrep_on"]) {
		r.refuse(codeFailed, "%s is a Galera node (wsrep_on=ON), where several nodes take writes and the lock of a shard is not shared: use a server with one primary", s.addr)
	}
	if s.global["group_replication_group_name"] != "" && off(s.global["group_replication_single_primary_mode"]) {
		r.refuse(codeFailed, "%s is in a multi-primary replication group, where the lock of a shard is not shared: type on a member: SELECT group_replication_switch_to_single_primary_mode()", s.addr)
	}
	for _, name := range []string{"super_read_only", "read_only", "innodb_read_only"} {
		if value := s.global[name]; value != "" && !off(value) {
			r.refuse(codeFailed, "%s is read-only (%s=%s), so it is not the primary: put the primary's address into the store's dsn, or if this is the primary type: SET GLOBAL %s = OFF", s.addr, name, value, name)
			return
		}
	}
}

// binlog refuses settings under which the mirror would not see every message whole.
func (s settings) binlog(r *Report) {
	if !on(s.global["log_bin"]) {
		r.refuse(codeFailed, "%s has no binlog (log_bin=OFF): put log_bin = binlog under [mysqld] in my.cnf, remove skip-log-bin, and restart the server", s.addr)
		return
	}
	if s.global["server_id"] == "0" {
		r.refuse(codeFailed, "%s has server_id=0, with which it gives nobody its binlog: %s", s.addr, s.set("server_id", "1"))
	}
	if off(s.session["sql_log_bin"]) {
		r.refuse(codeConfig, "sessions of %s at %s do not write the binlog (sql_log_bin=OFF): remove it from the store's dsn and from init_connect", s.account, s.addr)
	}
	if value := s.global["binlog_format"]; value != "" && value != "ROW" {
		r.refuse(codeFailed, "%s has binlog_format=%s, which hides the rows: %s", s.addr, value, s.set("binlog_format", "'ROW'"))
	} else if value := s.session["binlog_format"]; value != "" && value != "ROW" {
		r.refuse(codeConfig, "sessions of %s at %s have binlog_format=%s: remove it from the store's dsn and from init_connect", s.account, s.addr, value)
	}
	if value := s.global["binlog_row_image"]; !slices.Contains([]string{"MINIMAL", "NOBLOB", "FULL"}, value) {
		r.refuse(codeFailed, "%s has binlog_row_image=%s, which is not known to hold whole rows: %s", s.addr, value, s.set("binlog_row_image", "'MINIMAL'"))
	}
	if value := s.global["binlog_row_metadata"]; value != "FULL" {
		r.refuse(codeFailed, "%s has binlog_row_metadata=%s, so the binlog has no column names: %s", s.addr, value, s.set("binlog_row_metadata", "'FULL'"))
	}
	for _, name := range []string{"binlog_do_db", "binlog_ignore_db"} {
		if value := s.filters[name]; value != "" {
			r.refuse(codeFailed, "%s filters its binlog (%s=%s), so messages may be missing there: remove %s from my.cnf and restart the server", s.addr, name, value, name)
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
	r.refuse(codeFailed, "%s has gtid_mode=%s and enforce_gtid_consistency=%s, both must be ON: type in this order, the last when SHOW STATUS LIKE 'Ongoing_anonymous_transaction_count' is 0: %s", s.addr, mode, consistency, strings.Join(steps, "; "))
}

// durability warns where a crash of the machine loses what was acknowledged.
func (s settings) durability(r *Report) {
	for _, name := range []string{"sync_binlog", "innodb_flush_log_at_trx_commit"} {
		if value := s.global[name]; value != "1" {
			r.warn("%s has %s=%s: acknowledged messages may be lost when its machine fails: %s", s.addr, name, value, s.set(name, "1"))
		}
	}
}

// packet refuses limits under which a message of the largest size, with every byte of it
// escaped, or a batch of 1 MiB, does not fit into one statement.
func (s settings) packet(r *Report) {
	need := 2*s.maxBody + 1<<20
	if value, err := strconv.ParseInt(s.global["max_allowed_packet"], 10, 64); err != nil || value < need {
		r.refuse(codeFailed, "%s has max_allowed_packet=%s, too small for bodies of %d bytes: %s", s.addr, s.global["max_allowed_packet"], s.maxBody, s.set("max_allowed_packet", fmt.Sprint(roundUp(need))))
	}
	if s.clientPacket > 0 && s.clientPacket < need {
		r.refuse(codeConfig, "the store's dsn has maxAllowedPacket=%d, too small for bodies of %d bytes: remove it or raise it to %d", s.clientPacket, s.maxBody, roundUp(need))
	}
}

// set says how a setting that can be changed at run time is changed for good.
func (s settings) set(name, value string) string {
	if s.flavor().kind == mysqlServer {
		return fmt.Sprintf("type: SET PERSIST %s = %s", name, value)
	}
	return fmt.Sprintf("type: SET GLOBAL %s = %s and put %s = %s into my.cnf", name, value, name, strings.Trim(value, "'"))
}

// roundUp returns the next MiB.
func roundUp(n int64) int64 { return (n + 1<<20 - 1) >> 20 << 20 }

func on(value string) bool  { return value == "ON" || value == "1" }
func off(value string) bool { return value == "OFF" || value == "0" }
