package preflight

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/dsn"
)

// Role is what an account is for.
type Role int

// The roles.
const (
	// Broker reads and writes the store's tables, and installs them where they are missing.
	Broker Role = iota
	// Mirror reads the binlog and the row in table store.
	Mirror
)

// Options of a check.
type Options struct {
	Role Role
	// MaxBody is the largest body of a message in bytes; 0 is 4 MiB.
	MaxBody int64
}

// defaultMaxBody is the broker's default limit of a body.
const defaultMaxBody = 4 << 20

// Check looks at the server and account of an address (package dsn); of several servers, at the
// one that accepts writes. It always returns; what it could not find out is a problem too.
func Check(ctx context.Context, address string, opts Options) (report Report) {
	cfg := report.parse(address)
	if cfg == nil {
		return report
	}
	if p := dsn.NewPrimary(cfg); p.Several() {
		addr, err := p.Find(ctx)
		if err != nil {
			report.connectProblem(cfg, err)
			return report
		}
		cfg = dsn.At(cfg, addr)
	}
	report.server(ctx, cfg, opts, false)
	return report
}

// CheckAll looks at every server of an address, since each may be the primary one day.
func CheckAll(ctx context.Context, address string, opts Options) (report Report) {
	cfg := report.parse(address)
	if cfg == nil {
		return report
	}
	p := dsn.NewPrimary(cfg)
	if !p.Several() {
		return Check(ctx, address, opts)
	}
	if _, err := p.Find(ctx); err != nil {
		report.connectProblem(cfg, err)
	}
	for _, addr := range p.Servers() {
		report.server(ctx, dsn.At(cfg, addr), opts, true)
	}
	return report
}

// parse returns nil for an address that is none.
func (r *Report) parse(address string) *mysql.Config {
	cfg, err := dsn.Parse(address)
	if err != nil {
		r.refuse(codeConfig, err.Error(), "", do("correct the store's dsn"))
		return nil
	}
	return cfg
}

// server looks at one server. One of several may be read-only.
func (r *Report) server(ctx context.Context, cfg *mysql.Config, opts Options, several bool) {
	if opts.MaxBody == 0 {
		opts.MaxBody = defaultMaxBody
	}
	db, err := open(cfg)
	if err != nil {
		r.refuse(codeConfig, "store address "+dsn.Redact(cfg), err.Error(), do("correct the store's dsn"))
		return
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		r.connectProblem(cfg, err)
		return
	}
	defer conn.Close()
	c := checker{conn: conn, cfg: cfg, role: opts.Role, several: several, report: r}
	if err := c.run(ctx, opts.MaxBody); err != nil {
		r.refuse(codeFailed, "the check of "+dsn.Redact(cfg)+" did not end", err.Error(), do("try again"))
	}
}

// open returns a pool for the server, without its schema. It makes no connection yet.
func open(cfg *mysql.Config) (*sql.DB, error) {
	server := cfg.Clone()
	server.DBName = ""
	server.InterpolateParams = true // SHOW takes no parameters in prepared form
	connector, err := dsn.NewConnector(server)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// checker asks one session.
type checker struct {
	conn    *sql.Conn
	cfg     *mysql.Config
	role    Role
	several bool // servers have the store, and this is one of them
	report  *Report
}

// run adds what it finds to the report. Its error is of a question that every server and
// account should answer.
func (c *checker) run(ctx context.Context, maxBody int64) error {
	s := settings{addr: c.cfg.Addr, several: c.several, maxBody: maxBody, clientPacket: int64(c.cfg.MaxAllowedPacket)}
	err := c.conn.QueryRowContext(ctx, "SELECT VERSION(), CURRENT_USER()").Scan(&s.version, &s.account)
	if err != nil {
		return err
	}
	if s.global, err = c.variables(ctx, "GLOBAL"); err != nil {
		return err
	}
	if s.session, err = c.variables(ctx, "SESSION"); err != nil {
		return err
	}
	s.filters = c.filters(ctx, s.flavor())
	s.check(c.report)
	s.semiSync(c.report, c.replicatedTopics(ctx))
	if err := c.clock(ctx); err != nil {
		return err
	}
	return c.rights(ctx, quoteAccount(s.account))
}

// replicatedTopics counts the topics whose publishes wait for a replica. An account that may
// not ask is told of none.
func (c *checker) replicatedTopics(ctx context.Context) (n int) {
	const query = ` WHERE settings LIKE '%"durability":"replicated"%'`
	if c.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+c.table(schema.TableTopic)+query).Scan(&n) != nil {
		return 0
	}
	return n
}

// variables reads the settings that the check looks at.
func (c *checker) variables(ctx context.Context, scope string) (map[string]string, error) {
	rows, err := c.conn.QueryContext(ctx, "SHOW "+scope+" VARIABLES WHERE Variable_name IN ('"+strings.Join(settingNames, "','")+"')")
	if err != nil {
		return nil, fmt.Errorf("variables: %w", err)
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("variables: %w", err)
		}
		values[name] = value
	}
	return values, rows.Err()
}

// filters returns the binlog's filters by the names of their settings, as far as the
// account may see them.
func (c *checker) filters(ctx context.Context, f flavor) map[string]string {
	query := "SHOW MASTER STATUS"
	if f.kind == mysqlServer && !f.before(8, 4) {
		query = "SHOW BINARY LOG STATUS"
	}
	rows, err := c.conn.QueryContext(ctx, query)
	if err != nil {
		return nil
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil || len(names) < 4 || !rows.Next() {
		return nil
	}
	values := make([]sql.NullString, len(names))
	targets := make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	if rows.Scan(targets...) != nil {
		return nil
	}
	return map[string]string{"binlog_do_db": values[2].String, "binlog_ignore_db": values[3].String}
}
