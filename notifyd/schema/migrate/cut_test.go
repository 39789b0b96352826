package migrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// cut is a client that dies: it lets k statements through, and from then on every statement
// of every session fails. The statement at which it dies is run by the server or not.
type cut struct {
	driver.Connector
	left       atomic.Int64
	lostAnswer bool
}

var errCut = errors.New("cut off")

// cutOff returns a pool that dies at the k-th statement, counted from 0.
func cutOff(t *testing.T, address string, k int, lostAnswer bool) (*cut, *sql.DB) {
	t.Helper()
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatal(err)
	}
	cfg.InterpolateParams = true // one statement, not prepare and execute
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{Connector: connector, lostAnswer: lostAnswer}
	c.left.Store(int64(k))
	return c, sql.OpenDB(c)
}

func (c *cut) happened() bool { return c.left.Load() < 0 }

func (c *cut) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, c}, nil
}

// do runs a statement, or dies before it or right after it.
func (c *cut) do(statement func() error) error {
	switch left := c.left.Add(-1); {
	case left >= 0:
		return statement()
	case left == -1 && c.lostAnswer:
		if err := statement(); err != nil {
			return err
		}
	}
	return errCut
}

type cutConn struct {
	driver.Conn
	cut *cut
}

func (c *cutConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.cut.do(func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *cutConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.cut.do(func() (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	if err != nil && rows != nil {
		rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *cutConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.cut.do(func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &cutTx{tx, c.cut}, nil
}

func (c *cutConn) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

type cutTx struct {
	driver.Tx
	cut *cut
}

func (t *cutTx) Commit() error { return t.cut.do(t.Tx.Commit) }
