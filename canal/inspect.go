package canal

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A ServerInfo is what a server says of itself over an ordinary connection.
type ServerInfo struct {
	Flavor  Flavor
	Version string
	Server  ServerID
	// Position holds all that is in the binlog, or was: gtid_executed on MySQL,
	// gtid_binlog_pos on MariaDB. On MariaDB it can run ahead of what a reader sees.
	Position Position
	// Purged is what the binlog holds no more. MariaDB tells only an account that may list
	// the files: without REPLICATION CLIENT it is zero there.
	Purged Position
	Survey
	// ReadOnly: the server accepts no writes of ordinary accounts.
	ReadOnly bool
	// BinlogExpire is after what time the server drops binlog; 0: never.
	BinlogExpire time.Duration

	vars map[string]string
	// logged, on MariaDB, is the last GTID of each server and domain that the binlog ever held.
	logged string
}

// Inspect reads a server's identity, settings and position over a short connection. The
// account needs no grant for it. Errors are *StopError when an operator must mend them.
func Inspect(ctx context.Context, c Config) (ServerInfo, error) {
	c, err := c.filled()
	if err != nil {
		return ServerInfo{}, err
	}
	if c, err = c.located(ctx); err != nil {
		return ServerInfo{}, err
	}
	info, err := inspect(ctx, &c)
	if err != nil {
		return ServerInfo{}, c.placed(err, stageLogin)
	}
	return info, nil
}

// settings are the variables read by SHOW GLOBAL VARIABLES, which leaves out those that
// a server does not have. It cuts values at 1024 bytes, so GTID sets are selected.
const settings = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_id', 'server_uuid', 'gtid_domain_id',
	'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'gtid_mode', 'read_only',
	'binlog_expire_logs_seconds', 'expire_logs_days', 'lower_case_table_names')`

// asking asks over a short connection.
func (c *Config) asking(ctx context.Context, ask func(*sql.Conn) error) error {
	m := mysql.NewConfig()
	m.Net, m.Addr, m.User, m.Passwd, m.TLS = c.network(), c.Addr, c.User, c.Password, c.TLS
	m.Timeout, m.ReadTimeout, m.WriteTimeout = loginTimeout, loginTimeout, loginTimeout
	m.Logger, m.InterpolateParams = driverLog{c.Logger}, true
	m.Params = map[string]string{"time_zone": "'+00:00'"}
	connector, err := mysql.NewConnector(m)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return ask(conn)
}

func inspect(ctx context.Context, c *Config) (info ServerInfo, err error) {
	err = c.asking(ctx, func(conn *sql.Conn) error {
		info, err = inspectOn(ctx, conn)
		return err
	})
	return info, err
}

func inspectOn(ctx context.Context, conn *sql.Conn) (info ServerInfo, err error) {
	if info.vars, err = readSettings(ctx, conn); err != nil {
		return info, err
	}
	info.describe()
	info.Position.Flavor, info.Purged.Flavor = info.Flavor, info.Flavor
	if info.Survey, err = survey(ctx, conn); err != nil {
		return info, err
	}
	return info, info.readPosition(ctx, conn)
}

// readPosition asks what the server has logged, and what it still has.
func (i *ServerInfo) readPosition(ctx context.Context, conn *sql.Conn) (err error) {
	if i.Flavor == MySQL {
		return conn.QueryRowContext(ctx, "SELECT @@global.gtid_executed, @@global.gtid_purged").Scan(&i.Position.GTIDs, &i.Purged.GTIDs)
	}
	err = conn.QueryRowContext(ctx, "SELECT @@global.gtid_binlog_pos, @@global.gtid_binlog_state").Scan(&i.Position.GTIDs, &i.logged)
	if err == nil && len(i.Logs) > 0 {
		i.Purged.GTIDs, err = startOf(ctx, conn, i.Logs[0])
	}
	return err
}

// Executed reads the position behind all that a server has logged, over the caller's
// connection. On MariaDB it can run ahead of what a reader sees, and on MySQL be behind it.
func Executed(ctx context.Context, conn *sql.Conn, f Flavor) (Position, error) {
	variable := "@@global.gtid_executed"
	if f == MariaDB {
		variable = "@@global.gtid_binlog_pos"
	}
	var text string
	if err := conn.QueryRowContext(ctx, "SELECT "+variable).Scan(&text); err != nil {
		return Position{}, fmt.Errorf("server's position: %w", err)
	}
	set, err := parseSet(f, text)
	if err != nil {
		return Position{}, fmt.Errorf("server's position: %w", err)
	}
	return set.position(), nil
}

func readSettings(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, settings)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	vars := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		vars[strings.ToLower(name)] = value
	}
	return vars, rows.Err()
}

// describe fills in what follows from the variables.
func (i *ServerInfo) describe() {
	i.Version = i.vars["version"]
	i.Flavor, i.Server = MySQL, ServerID(i.vars["server_uuid"])
	if strings.Contains(strings.ToLower(i.Version), "mariadb") {
		i.Flavor, i.Server = MariaDB, ServerID(i.vars["server_id"]+"/"+i.vars["gtid_domain_id"])
	}
	i.ReadOnly = i.vars["read_only"] != "OFF" && i.vars["read_only"] != "0"
	if s, err := strconv.ParseInt(i.vars["binlog_expire_logs_seconds"], 10, 64); err == nil && s > 0 {
		i.BinlogExpire = time.Duration(s) * time.Second
	} else if d, err := strconv.ParseFloat(i.vars["expire_logs_days"], 64); err == nil {
		i.BinlogExpire = time.Duration(d * 24 * float64(time.Hour))
	}
}

// foldsNames: table names are in lower case in the binlog, or compare without case.
func (i *ServerInfo) foldsNames() bool { return i.vars["lower_case_table_names"] != "0" }

// A rule is a setting without which the binlog is no complete copy.
type rule struct {
	variable, want string
	mend           string
}

// rules for both flavors; gtid_mode is MySQL's alone.
var rules = [...]rule{
	{"log_bin", "ON", "add log_bin to the server's my.cnf and restart it"},
	{"binlog_format", "ROW", "SET GLOBAL binlog_format=ROW, put it into my.cnf, and reconnect all writers"},
	{"binlog_row_metadata", "FULL", "SET GLOBAL binlog_row_metadata=FULL and put it into my.cnf"},
	{"gtid_mode", "ON", "SET GLOBAL enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE, ON, one after another, and put both into my.cnf"},
}

// Check returns an error for the first setting that keeps the binlog from being a
// complete copy. Sessions can still override some of them; the tailer notices.
func (i *ServerInfo) Check() error {
	for _, r := range rules {
		if r.variable == "gtid_mode" && i.Flavor == MariaDB {
			continue
		}
		switch got, ok := i.vars[r.variable]; {
		case !ok && r.variable == "binlog_format": // deprecated: some day there is only ROW
		case !ok:
			return &StopError{
				Reason: ErrSettings, What: fmt.Sprintf("%s knows no %s", i.Version, r.variable),
				Mend: "use MySQL 8.0 or MariaDB 10.6, or newer",
			}
		case !strings.EqualFold(got, r.want):
			return &StopError{Reason: ErrSettings, What: fmt.Sprintf("%s is %s and must be %s", r.variable, got, r.want), Mend: r.mend}
		}
	}
	return nil
}

// Covers returns an error when reading cannot go on from a position: it is of another
// flavor (ErrPosition), holds what the server does not have (ErrAheadOfServer), or needs
// what is purged (ErrPurged). A server that does not tell what it purged, see Purged, says
// so when reading begins.
func (i *ServerInfo) Covers(from Position) error {
	_, err := i.start(from)
	return err
}

// start is Covers, and the position as a set.
func (i *ServerInfo) start(from Position) (*gtidSet, error) {
	if from.Flavor != i.Flavor && from != (Position{}) {
		return nil, &StopError{
			Reason: ErrPosition, What: fmt.Sprintf("it is of %q, the server is %s", from.Flavor, i.Version),
			Mend: "point the store's address back to its server",
		}
	}
	set, err := parseSet(i.Flavor, from.GTIDs)
	if err != nil {
		return nil, &StopError{Reason: ErrPosition, Cause: err, Mend: "restore the checkpoint; or " + acceptGap}
	}
	return set, i.coversSet(set)
}

func (i *ServerInfo) coversSet(set *gtidSet) error {
	executed, err := parseSet(i.Flavor, i.Position.GTIDs)
	if err != nil {
		return fmt.Errorf("server's position: %w", err)
	}
	if more := executed.missing(set); more != "" {
		return aheadError("the server has not " + more + upTo(", only up to ", executed))
	}
	switch more, err := unlogged(i.logged, set); {
	case err != nil:
		return err
	case more != "":
		return aheadError("the server never logged " + more)
	}
	purged, err := parseSet(i.Flavor, i.Purged.GTIDs)
	if err != nil {
		return fmt.Errorf("server's purged set: %w", err)
	}
	if lost := set.missing(purged); lost != "" {
		return purgedError("the server has dropped " + lost + upTo(", and the position is ", set))
	}
	return nil
}

// upTo completes the text of what is missing: MariaDB's names only the end of it.
func upTo(words string, s *gtidSet) string {
	if s.flavor == MySQL || len(s.maria) == 0 {
		return ""
	}
	return words + s.text()
}

// An origin is what counts GTIDs on MariaDB.
type origin struct{ domain, server uint32 }

// originsOf is the last sequence number of each origin in a MariaDB server's binlog state; of
// a state that is not known there are none.
func originsOf(state string) (map[origin]uint64, error) {
	last := map[origin]uint64{}
	if strings.TrimSpace(state) == "" {
		return last, nil
	}
	for part := range strings.SplitSeq(state, ",") {
		one := newGTIDSet(MariaDB)
		if err := one.parseMariaDB(strings.TrimSpace(part)); err != nil {
			return nil, fmt.Errorf("server's binlog state: %w", err)
		}
		for _, g := range one.maria {
			last[origin{g.domain, g.server}] = g.seq
		}
	}
	return last, nil
}

// unlogged is a text of those GTIDs of a MariaDB position that a server's binlog state does
// not have: what counts there is the server that gave the GTID, too. A state that is not
// known has all.
func unlogged(state string, set *gtidSet) (string, error) {
	last, err := originsOf(state)
	if err != nil || len(last) == 0 {
		return "", err
	}
	var out []string
	for _, d := range slices.Sorted(maps.Keys(set.maria)) {
		if g := set.maria[d]; last[origin{g.domain, g.server}] < g.seq {
			out = append(out, g.text(MariaDB))
		}
	}
	return strings.Join(out, ","), nil
}

func aheadError(what string) *StopError {
	return &StopError{
		Reason: ErrAheadOfServer, What: what,
		Mend: "it lost transactions (restored from a backup, sync_binlog was not 1) or is not the server that was read before: point the store's address to that server, or go on without them by `notify mirror resume --accept-gap`",
	}
}

func fileGoneError(what string) *StopError {
	return &StopError{
		Reason: ErrFileGone, What: what,
		Mend: "somebody deleted a file that the server still lists: put it back from a copy and restart canald, or " + acceptGap + "; drop files only by PURGE BINARY LOGS",
	}
}

func pastEndError(what string) *StopError {
	return &StopError{
		Reason: ErrPastEnd, What: what,
		Mend: "the server lost the end of its binlog (crash with sync_binlog other than 1, copied back from a backup): restore the file, or " + acceptGap + "; set sync_binlog=1",
	}
}

func purgedError(what string) *StopError {
	return &StopError{
		Reason: ErrPurged, What: what,
		Mend: "restore the binlog files and restart the server, or " + acceptGap + "; raise binlog_expire_logs_seconds",
	}
}

// driverLog sends the SQL driver's own lines to the debug level: what matters comes as
// an error, too.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("sql driver", "text", fmt.Sprint(v...)) }
