package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/dsn"
	"notifymirror/notifyd/shard"
)

// Seconds that a server waits for a lock, and for the next statement of an idle connection.
const (
	writerLockWait = "2"
	writerIdle     = "60"
	takerLockWait  = "1"
	takerIdle      = "10" // a broker that stops while it holds epoch rows loses them
)

// A Store is one MySQL or MariaDB primary as the broker uses it.
type Store struct {
	Name string
	schema.Info

	db      *sql.DB // reads, leases, registry
	writers *sql.DB // one connection per Writer
	takers  *sql.DB // what locks epoch rows: takeovers and registry changes
}

// Open connects and reads what the store is. The schema must be installed.
func Open(ctx context.Context, name, address string) (*Store, error) {
	cfg, err := dsn.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	s := &Store{Name: name}
	primary := dsn.NewPrimary(cfg) // one for all pools
	if s.db, err = pool(primary, cfg, nil); err != nil {
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	s.db.SetMaxOpenConns(16)
	s.db.SetMaxIdleConns(8)
	limited := cfg.Clone()
	limited.ReadTimeout, limited.WriteTimeout = txnTimeout, txnTimeout
	if s.writers, err = pool(primary, limited, map[string]string{
		"autocommit":               "0",
		"innodb_lock_wait_timeout": writerLockWait,
		"wait_timeout":             writerIdle,
	}); err != nil {
		s.db.Close()
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	s.writers.SetMaxIdleConns(0)
	if s.takers, err = pool(primary, cfg, map[string]string{"innodb_lock_wait_timeout": takerLockWait, "wait_timeout": takerIdle}); err != nil {
		s.db.Close()
		s.writers.Close()
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	s.takers.SetMaxIdleConns(0)
	s.takers.SetMaxOpenConns(16)
	if s.Info, err = installed(ctx, s.db); err != nil {
		s.Close()
		return nil, fmt.Errorf("store %s at %s: %w", name, dsn.Redact(cfg), err)
	}
	return s, nil
}

// installed reads what the store is, and refuses one of another version than this program's.
func installed(ctx context.Context, db *sql.DB) (schema.Info, error) {
	info, err := schema.Read(ctx, db)
	if err != nil {
		return info, err
	}
	version, err := schema.Version(ctx, db)
	if err == nil && version < schema.Latest {
		err = fmt.Errorf("schema version %d, this program works with %d: run notifyd migrate", version, schema.Latest)
	}
	return info, err
}

// pool opens a pool whose sessions have the given variables.
func pool(primary *dsn.Primary, cfg *mysql.Config, vars map[string]string) (*sql.DB, error) {
	c := cfg.Clone()
	c.InterpolateParams = true // one round trip per statement
	c.MultiStatements = true
	c.RejectReadOnly = true // a primary that was demoted: connect again
	c.MaxAllowedPacket = 0  // ask the server
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	for k, v := range vars {
		c.Params[k] = v
	}
	connector, err := primary.Connector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Close ends all connections.
func (s *Store) Close() {
	s.takers.Close()
	s.writers.Close()
	s.db.Close()
}

// deleteByPos deletes rows of a table, called t, by positions, and an optional condition on t.
func deleteByPos(table string, poss []shard.Pos, and string) string {
	return "DELETE t FROM " + joinKeys(table, "pos", poss) + and
}

// joinKeys joins a table, called t, to a list of values of its primary key's first column, so that each
// row is found by the key: for an IN list, a server scans a small table instead, index hints or
// not, and then waits for rows that others have just inserted.
func joinKeys[T ~int64 | ~int32](table, column string, keys []T) string {
	return "JSON_TABLE('[" + strings.Trim(inList(keys), "()") + "]', '$[*]' COLUMNS (k BIGINT PATH '$')) v STRAIGHT_JOIN " +
		table + " t FORCE INDEX (PRIMARY) ON t." + column + " = v.k"
}

// joinIDs is joinKeys for a table whose primary key is a message id. It can be locked:
// MySQL does not take FOR UPDATE together with JSON_TABLE.
func joinIDs(table string, ids []uuid.UUID) string {
	return "(" + selectIDs(ids) + ") v STRAIGHT_JOIN " + table + " t FORCE INDEX (PRIMARY) ON t.id = v.k"
}

// selectIDs makes a table of message ids, column k.
func selectIDs(ids []uuid.UUID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "SELECT UNHEX('%x') AS k", id[:])
	}
	return b.String()
}

// groups of placeholders: "(?,?),(?,?)".
func tuples(n, width int) string {
	one := "(" + strings.Repeat("?,", width-1) + "?)"
	return strings.Repeat(one+",", n-1) + one
}

// inList is "(1,2,3)" of sorted numbers.
func inList[T ~int64 | ~int32](ns []T) string {
	var b strings.Builder
	b.Grow(20 * len(ns))
	for i, n := range ns {
		if i == 0 {
			b.WriteByte('(')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte(')')
	return b.String()
}
