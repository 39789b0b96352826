package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"notifymirror/notifyd/schema"
)

// txnTimeout bounds one transaction of a Writer; beyond it the connection is given up.
const txnTimeout = 10 * time.Second

// A Connection names a writer's connection at the server, for KILL.
type Connection struct {
	// StartedAt is when the server started, in seconds since 1970 UTC, give or take one.
	StartedAt int64 `json:"started_at"`
	ID        int64 `json:"id"`
	// Server is the server's server_id, which is its own among those that replicate each other.
	Server int64 `json:"server_id,omitempty"`
}

// A Writer is one connection for the transactions of one shard, used by one goroutine.
type Writer struct {
	conn *sql.Conn
	id   Connection
}

// NewWriter opens a connection. Record it in the lease before its first transaction.
func (s *Store) NewWriter(ctx context.Context) (*Writer, error) {
	conn, err := s.writers.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("write connection: %w", err)
	}
	w := &Writer{conn: conn}
	// Not a connection parameter: the variable's name differs between the servers.
	if _, err = conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err == nil {
		w.id, err = identify(ctx, conn)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT") // what identify read
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("write connection: %w", err)
	}
	return w, nil
}

func identify(ctx context.Context, conn *sql.Conn) (Connection, error) {
	var c Connection
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID(), @@server_id").Scan(&c.ID, &c.Server); err != nil {
		return c, err
	}
	started, err := serverStart(ctx, conn)
	c.StartedAt = started
	return c, err
}

// querier is the part of *sql.DB, *sql.Conn and *sql.Tx that reading needs.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func serverStart(ctx context.Context, q querier) (int64, error) {
	var name string
	var uptime, now int64
	if err := q.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Uptime'").Scan(&name, &uptime); err != nil {
		return 0, err
	}
	err := q.QueryRowContext(ctx, "SELECT "+schema.NowMicros).Scan(&now)
	return now/1e6 - uptime, err
}

// Connection names the connection at the server.
func (w *Writer) Connection() Connection { return w.id }

// Close ends the connection; an open transaction is rolled back by the server.
func (w *Writer) Close() { w.conn.Close() }

// Ping keeps an idle connection alive. Call it at least every 30 s.
func (w *Writer) Ping(ctx context.Context) error {
	if err := w.conn.PingContext(ctx); err != nil {
		return unknown(err)
	}
	return nil
}

// A Fence is what a write transaction reads first.
type Fence struct {
	// Version is the registry version in force.
	Version int64
	// Now is the store's clock, microseconds since 1970 UTC.
	Now int64
}

// write runs body in a fenced transaction of a shard. Its error is ErrUnknown when the
// outcome could not be learned; with every other error the transaction is rolled back.
func (w *Writer) write(ctx context.Context, shard int, epoch int64, body func(context.Context, Fence) error) (Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, txnTimeout)
	defer cancel()
	fence, err := w.fence(ctx, shard, epoch)
	if err == nil {
		err = body(ctx, fence)
	}
	if err == nil {
		if _, err = w.conn.ExecContext(ctx, "COMMIT"); err != nil {
			return fence, unknown(err)
		}
		return fence, nil
	}
	return fence, w.rollback(ctx, err)
}

// rollback ends the transaction after cause and returns what is known then.
func (w *Writer) rollback(ctx context.Context, cause error) error {
	if !refused(cause) && !isOurs(cause) {
		return unknown(cause)
	}
	if _, err := w.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return unknown(errors.Join(cause, err))
	}
	return cause
}

// isOurs reports whether the error was made here, on a connection that stands.
func isOurs(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrVersion) || errors.Is(err, ErrOutboxMoved) || errors.Is(err, errSlot)
}

var errSlot = errors.New("no position")

func (w *Writer) fence(ctx context.Context, shard int, epoch int64) (Fence, error) {
	var f Fence
	var found int64
	err := w.conn.QueryRowContext(ctx, "SELECT epoch, registry_version, "+schema.NowMicros+
		" FROM epoch WHERE shard = ? LOCK IN SHARE MODE", shard).Scan(&found, &f.Version, &f.Now)
	if err == nil && found != epoch {
		err = ErrFenced
	}
	return f, err
}
