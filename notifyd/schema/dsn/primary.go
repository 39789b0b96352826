package dsn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

var (
	// ErrNoPrimary is returned when none of several servers accepts writes: the primary is gone,
	// and no replica was promoted yet.
	ErrNoPrimary = errors.New("no server of the store accepts writes")
	// ErrTwoPrimaries is returned when more than one of them does: nothing tells which of them
	// has what was written last.
	ErrTwoPrimaries = errors.New("more than one server of the store accepts writes")

	errReadOnly = errors.New("it is read-only")
)

// A Primary is the server of a store that accepts writes, read_only and super_read_only being
// off, wherever it is among the servers of the store's address. Connectors that share one
// agree on it: once one of them found another server, pooled connections to the server before are not
// used any more. With a single server there is nothing to find, and read_only is not looked at.
type Primary struct {
	cfg *mysql.Config
	at  atomic.Pointer[string] // where it was last; nil: it is to be looked for
}

// NewPrimary makes a Primary of what Parse returned. It connects to nothing.
func NewPrimary(cfg *mysql.Config) *Primary { return &Primary{cfg: cfg.Clone()} }

// Several tells whether the address names more servers than one.
func (p *Primary) Several() bool { return len(p.Servers()) > 1 }

// Servers are the addresses of all.
func (p *Primary) Servers() []string {
	if p.cfg.Net != "tcp" {
		return []string{p.cfg.Addr}
	}
	return strings.Split(p.cfg.Addr, ",")
}

// Find asks all servers, side by side, and returns the address of the one that accepts writes.
// The error, which wraps ErrNoPrimary or ErrTwoPrimaries, says of each server why not. It takes
// no longer than dialling may.
func (p *Primary) Find(ctx context.Context) (addr string, err error) {
	servers := p.Servers()
	if len(servers) == 1 {
		return servers[0], nil
	}
	answers := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() { answers[i] = p.ask(ctx, server) })
	}
	asking.Wait()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	var writable, others []string
	for i, server := range servers {
		if answers[i] == nil {
			writable = append(writable, server)
		} else {
			others = append(others, fmt.Sprintf("%s: %v", server, answers[i]))
		}
	}
	switch len(writable) {
	case 1:
		return writable[0], nil
	case 0:
		return "", fmt.Errorf("%w (%s): promote one, SET GLOBAL read_only=OFF", ErrNoPrimary, strings.Join(others, "; "))
	}
	return "", fmt.Errorf("%w (%s): SET GLOBAL read_only=ON on all but the primary", ErrTwoPrimaries, strings.Join(writable, ", "))
}

// At is a configuration that Parse returned, for one of its servers alone.
func At(cfg *mysql.Config, server string) *mysql.Config {
	one := cfg.Clone()
	one.Addr = server
	if one.TLS != nil && server != cfg.Addr {
		one.TLS.ServerName = "" // the driver fills in the server's own
	}
	return one
}

// ask returns nil for a server that accepts writes.
func (p *Primary) ask(ctx context.Context, server string) error {
	cfg := At(p.cfg, server)
	cfg.DBName, cfg.Params = "", nil
	cfg.ReadTimeout, cfg.WriteTimeout = cfg.Timeout, cfg.Timeout
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return writable(ctx, conn)
}

// writable returns nil when the server of a connection accepts writes of ordinary accounts. On
// MySQL super_read_only implies read_only.
func writable(ctx context.Context, conn driver.Conn) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SELECT @@global.read_only", nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return err
	}
	text := fmt.Sprint(value[0])
	if b, ok := value[0].([]byte); ok {
		text = string(b)
	}
	if err := rows.Next(make([]driver.Value, 1)); err != io.EOF {
		return err
	}
	if text != "0" && !strings.EqualFold(text, "OFF") {
		return errReadOnly
	}
	return nil
}

// NewConnector is the driver's NewConnector for what Parse returned, also when that names
// several servers.
func NewConnector(cfg *mysql.Config) (driver.Connector, error) {
	return NewPrimary(cfg).Connector(cfg)
}

// Connector connects to the primary by a configuration that differs from that of NewPrimary in
// settings of sessions only.
func (p *Primary) Connector(cfg *mysql.Config) (driver.Connector, error) {
	c := &connector{primary: p, to: map[string]driver.Connector{}}
	for _, server := range p.Servers() {
		to, err := mysql.NewConnector(At(cfg, server))
		if err != nil {
			return nil, err
		}
		if !p.Several() {
			return to, nil
		}
		c.to[server] = to
	}
	return c, nil
}

// A connector connects to the primary.
type connector struct {
	primary *Primary
	to      map[string]driver.Connector // of each server
}

// Driver implements driver.Connector.
func (*connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// Connect implements driver.Connector. It tries the server that was the primary last; when that
// one is not any more, or cannot be asked, it looks at all.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	p := c.primary
	if at := p.at.Load(); at != nil {
		try, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
		conn, err := c.connect(try, at)
		cancel()
		if err == nil {
			return conn, nil
		}
		p.at.CompareAndSwap(at, nil)
	}
	addr, err := p.Find(ctx)
	if err != nil {
		return nil, err
	}
	at := &addr
	if known := p.at.Load(); known != nil && *known == addr {
		at = known // another connection has found it meanwhile
	}
	conn, err := c.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	p.at.Store(at)
	return conn, nil
}

func (c *connector) connect(ctx context.Context, at *string) (driver.Conn, error) {
	conn, err := c.to[*at].Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := writable(ctx, conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", *at, err)
	}
	return &bound{conn.(session), c.primary, *at}, nil
}

// session is all that a connection of the driver can do.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A bound session is used again only as long as its server is the primary: one that was demoted
// still answers, and what it says is old.
type bound struct {
	session
	primary *Primary
	server  string
}

// ResetSession implements driver.SessionResetter.
func (b *bound) ResetSession(ctx context.Context) error {
	if at := b.primary.at.Load(); at != nil && *at != b.server {
		return driver.ErrBadConn
	}
	return b.session.ResetSession(ctx)
}
