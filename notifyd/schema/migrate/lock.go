package migrate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
)

// lockWait is how long one request for the lock waits on the server, in seconds. Requests
// are repeated until the caller's context ends; a single long one would stay on the server
// after its client died.
const lockWait = 5

// locked runs f while a session of the pool holds the server-wide lock of this schema.
func locked(ctx context.Context, db *sql.DB, f func() error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	name, err := lockName(ctx, conn)
	if err != nil {
		return err
	}
	if err := acquire(ctx, conn, name); err != nil {
		return err
	}
	defer func() {
		// The pool may keep the session, so the lock is given back by name.
		_, releaseErr := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", name)
		if err == nil && releaseErr != nil {
			err = fmt.Errorf("migration lock: %w", releaseErr)
		}
	}()
	return f()
}

// acquire returns when the session holds the lock.
func acquire(ctx context.Context, conn *sql.Conn, name string) error {
	for {
		var got sql.NullInt64
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, lockWait).Scan(&got)
		switch {
		case err != nil:
			return fmt.Errorf("migration lock: %w", err)
		case !got.Valid:
			return errors.New("migration lock: the server refused it (out of memory, or the session was killed)")
		case got.Int64 == 1:
			return nil
		}
	}
}

// lockName returns a name of at most 64 bytes, the server's limit, that differs by schema:
// locks are server-wide.
func lockName(ctx context.Context, conn *sql.Conn) (string, error) {
	var name sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name); err != nil {
		return "", fmt.Errorf("migration lock: %w", err)
	}
	if !name.Valid {
		return "", errors.New("migration: the connection has no schema selected")
	}
	return fmt.Sprintf("notify-migrate-%x", sha256.Sum256([]byte(name.String)))[:48], nil
}
