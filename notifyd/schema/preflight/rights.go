package preflight

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema"
)

// rights adds what the account lacks, and what it has beyond need. account is quoted for GRANT.
func (c *checker) rights(ctx context.Context, account string) error {
	global, err := c.globalPrivileges(ctx)
	if err != nil {
		return err
	}
	c.excess(global, account)
	if c.role == Mirror {
		return c.mirrorRights(ctx, global, account)
	}
	return c.brokerRights(ctx, account)
}

// excess notes rights on every schema that the account has no use for.
func (c *checker) excess(global privileges, account string) {
	need := []string{"USAGE"}
	if c.role == Mirror {
		need = append(need, "REPLICATION SLAVE", "REPLICATION REPLICA", "REPLICATION CLIENT", "BINLOG MONITOR")
	}
	more := slices.DeleteFunc(slices.Sorted(maps.Keys(global)), func(name string) bool { return slices.Contains(need, name) })
	if len(more) == 0 {
		return
	}
	if first := 3; len(more) > first {
		more = append(more[:first], "and others")
	}
	c.report.add(finding.Note, fmt.Sprintf("account %s at %s has more rights on *.* than it needs (%s)", account, c.cfg.Addr, strings.Join(more, ", ")),
		"so whoever gets its password has them too", do("use the accounts of deploy/grants.sql"))
}

// brokerRights asks for the right to read and write the tables, and to make them if they
// are not there.
func (c *checker) brokerRights(ctx context.Context, account string) error {
	table := c.table(schema.TableEpoch)
	probes := []struct{ privilege, statement string }{
		{"SELECT", "EXPLAIN SELECT epoch FROM " + table + " WHERE shard = 0"},
		{"INSERT", "EXPLAIN INSERT INTO " + table + " (shard, epoch, registry_version) VALUES (0, 0, 0)"},
		{"UPDATE", "EXPLAIN UPDATE " + table + " SET epoch = 0"},
		{"DELETE", "EXPLAIN DELETE FROM " + table},
	}
	var missing []string
	for _, p := range probes {
		denied, err := c.denied(ctx, p.statement)
		switch {
		case err != nil:
			return fmt.Errorf("right to %s: %w", p.privilege, err)
		case denied:
			missing = append(missing, p.privilege)
		}
	}
	version, err := c.version(ctx)
	if err != nil {
		return err
	}
	if version == 0 {
		denied, err := c.mayNotCreate(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("right to CREATE: %w", err)
		case denied:
			missing = append(missing, "CREATE")
		}
	}
	if version < schema.Latest {
		denied, err := c.denied(ctx, "ALTER TABLE "+c.table("notify_preflight_missing")+" ENGINE = InnoDB")
		switch {
		case err != nil:
			return fmt.Errorf("right to ALTER: %w", err)
		case denied:
			missing = append(missing, "ALTER")
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		mend := byAdmin(fmt.Sprintf("GRANT %s ON %s.* TO %s", list, quoteName(c.cfg.DBName), account))
		if last := missing[len(missing)-1]; last == "CREATE" || last == "ALTER" {
			mend.Also = "(CREATE and ALTER are not needed where notifyd migrate was run with another account's dsn)"
		}
		c.report.refuse(codeDenied, fmt.Sprintf("account %s at %s lacks %s on schema %s", account, c.cfg.Addr, list, c.cfg.DBName), "", mend)
	}
	return nil
}

// version is that of the schema that is there, 0 for none.
func (c *checker) version(ctx context.Context) (int64, error) {
	var version sql.NullInt64
	err := c.conn.QueryRowContext(ctx, "SELECT MAX(version_id) FROM "+c.table(schema.TableVersion)).Scan(&version)
	switch {
	case isCode(err, errNoSuchTable, errUnknownDatabase, errTableDenied, errSchemaDenied):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("schema version: %w", err)
	case version.Int64 > schema.Latest:
		c.report.refuse(codeFailed, fmt.Sprintf("schema %s at %s has version %d", c.cfg.DBName, c.cfg.Addr, version.Int64), schema.ErrNewer.Error(), do("run a newer version"))
	}
	return version.Int64, nil
}

// mirrorRights asks for the binlog and for the store's row.
func (c *checker) mirrorRights(ctx context.Context, global privileges, account string) error {
	var grants []string
	if !global.has("REPLICATION SLAVE", "REPLICATION REPLICA") {
		grants = append(grants, "GRANT REPLICATION SLAVE ON *.* TO "+account)
	}
	if !global.has("REPLICATION CLIENT", "BINLOG MONITOR") {
		c.report.warn(fmt.Sprintf("account %s at %s lacks REPLICATION CLIENT", account, c.cfg.Addr), "so nobody is told before the binlog is purged",
			byAdmin("GRANT REPLICATION CLIENT ON *.* TO "+account))
	}
	var id string
	err := c.conn.QueryRowContext(ctx, "SELECT id FROM "+c.table(schema.TableStore)+" WHERE one = 1").Scan(&id)
	switch {
	case isCode(err, errTableDenied, errColumnDenied, errSchemaDenied):
		grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s.%s TO %s", quoteName(c.cfg.DBName), schema.TableStore, account))
	case errors.Is(err, sql.ErrNoRows), isCode(err, errNoSuchTable, errUnknownDatabase):
		c.report.refuse(codeFailed, fmt.Sprintf("no store is installed in schema %s at %s", c.cfg.DBName, c.cfg.Addr), "",
			finding.Mend{How: "start notifyd with that store first, or type", Shell: []string{"notifyd migrate --config notifyd.yaml"}})
	case err != nil:
		return fmt.Errorf("store row: %w", err)
	}
	if err := c.backfillRights(ctx, account); err != nil {
		return err
	}
	if len(grants) > 0 {
		c.report.refuse(codeDenied, fmt.Sprintf("account %s at %s may not read the binlog or the store's row", account, c.cfg.Addr), "", byAdmin(grants...))
	}
	return nil
}

// backfillRights notes that the mirror may not read the tables, which it needs only where the
// binlog has not all.
func (c *checker) backfillRights(ctx context.Context, account string) error {
	for _, probe := range []string{
		"SELECT shard FROM " + c.table(schema.TableEpoch) + " WHERE shard < 0 FOR UPDATE",
		"SELECT pos FROM " + c.table(schema.Message(0)) + " WHERE pos < 0",
	} {
		denied, err := c.denied(ctx, probe)
		if err != nil {
			return fmt.Errorf("right to backfill: %w", err)
		}
		if denied {
			name := quoteName(c.cfg.DBName)
			c.report.add(finding.Note, fmt.Sprintf("account %s at %s may not read the messages or lock the epoch rows", account, c.cfg.Addr),
				"so the mirror cannot backfill: begin with a store whose first binlog is purged, or copy what the tables still hold of a gap",
				byAdmin("GRANT SELECT ON "+name+".* TO "+account, "GRANT UPDATE ON "+name+"."+schema.TableEpoch+" TO "+account))
			return nil
		}
	}
	return nil
}

// denied runs a statement that changes nothing, and reports whether it lacks a right.
func (c *checker) denied(ctx context.Context, statement string) (bool, error) {
	rows, err := c.conn.QueryContext(ctx, statement)
	if err == nil {
		rows.Close()
		return false, rows.Err()
	}
	switch {
	case isCode(err, errTableDenied, errColumnDenied, errSchemaDenied):
		return true, nil
	case isCode(err, errNoSuchTable, errUnknownDatabase), readOnly(err):
		return false, nil
	}
	return false, err
}

// readOnly tells whether a server refused a statement since it takes no writes, before it
// looked at rights. That it does is reported with the settings, where it is a fault; the rights
// of an account that is replicated are those at the primary.
func readOnly(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && (strings.Contains(server.Message, "read-only") || strings.Contains(server.Message, "read only"))
}

// mayNotCreate reports whether the account lacks CREATE on the schema. It asks for a copy of
// a table that does not exist.
func (c *checker) mayNotCreate(ctx context.Context) (bool, error) {
	_, err := c.conn.ExecContext(ctx, "CREATE TABLE "+c.table("notify_preflight")+" LIKE "+c.table("notify_preflight_missing"))
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false, err
	}
	switch server.Number {
	case errTableDenied:
		return strings.HasPrefix(server.Message, "CREATE "), nil
	case errSchemaDenied:
		return true, nil
	case errNoSuchTable, errUnknownDatabase:
		return false, nil
	}
	if readOnly(err) {
		return false, nil
	}
	return false, err
}

// privileges are global rights by name.
type privileges map[string]bool

func (p privileges) has(names ...string) bool {
	for _, n := range append(names, "ALL PRIVILEGES") {
		if p[n] {
			return true
		}
	}
	return false
}

// globalPrivileges reads the account's rights on *.*, those of its active roles among them.
func (c *checker) globalPrivileges(ctx context.Context) (privileges, error) {
	query := "SHOW GRANTS"
	var role sql.NullString
	err := c.conn.QueryRowContext(ctx, "SELECT CURRENT_ROLE()").Scan(&role)
	if err == nil && strings.HasPrefix(role.String, "`") { // MySQL's form; MariaDB shows them unasked
		query = "SHOW GRANTS FOR CURRENT_USER() USING " + role.String
	}
	rows, err := c.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("grants: %w", err)
	}
	defer rows.Close()
	all := privileges{}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, fmt.Errorf("grants: %w", err)
		}
		list, _, isGlobal := strings.Cut(line, " ON *.* TO ")
		if !isGlobal {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimPrefix(list, "GRANT "), ", ") {
			all[name] = true
		}
	}
	return all, rows.Err()
}

// table returns a table's full name.
func (c *checker) table(name string) string { return quoteName(c.cfg.DBName) + "." + name }

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// quoteAccount turns user@host, as CURRENT_USER() gives it, into 'user'@'host'.
func quoteAccount(account string) string {
	at := strings.LastIndexByte(account, '@')
	if at < 0 {
		return "'" + account + "'"
	}
	return "'" + account[:at] + "'@'" + account[at+1:] + "'"
}
