package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/canal"
)

// lockLimit is how long writers may be kept waiting while a snapshot is opened. The server
// ends the session that holds the locks when it hears nothing of it for a second.
const lockLimit = 5 * time.Second

// A snapshot is a view of the store's message tables at one moment.
type snapshot interface {
	// position is from where the binlog has all that the snapshot lacks. It may be a little
	// behind it, never ahead. Only a snapshot that was taken under lock knows it.
	position() canal.Position
	// takenAt is the store's clock at that moment, microseconds since 1970 UTC.
	takenAt() int64
	// highest is the highest pos of a shard, 0 for one without messages.
	highest(ctx context.Context, shard int) (int64, error)
	// rows are a shard's messages above one pos and up to another, in the order of pos. The
	// bytes of each are valid until the next.
	rows(ctx context.Context, shard int, above, upTo int64) iter.Seq2[message, error]
	close() error
}

// A view is a snapshot of a server: a transaction that only reads.
type view struct {
	db   *sql.DB
	conn *sql.Conn
	at   canal.Position
	time int64
}

// openView opens a snapshot. Under lock no message can be inserted while it is opened and the
// position read: whoever inserts reads its shard's epoch row under a shared lock first, and
// holds that until its commit is done. Without the lock the position would run ahead of what
// is visible on MariaDB. On MySQL it may be behind: the server gives up a commit's locks before it
// counts it as executed, so its messages may come from the binlog again; the reader leaves out
// what is not above the snapshot's highest pos.
func openView(ctx context.Context, cfg *mysql.Config, info storeInfo, locked bool) (_ *view, err error) {
	v := new(view)
	if v.db, err = openDB(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(backfillError(ctx, cfg, err), v.db.Close())
		}
	}()
	if v.conn, err = v.db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, q := range viewSettings(info.flavor) {
		if _, err := v.conn.ExecContext(ctx, q); err != nil {
			return nil, fmt.Errorf("%s: %w", q, err)
		}
	}
	if !locked {
		return v, v.begin(ctx)
	}
	return v, locking(ctx, cfg, func(ctx context.Context, lock *sql.Conn) (err error) {
		if v.at, err = canal.Executed(ctx, lock, info.flavor); err != nil {
			return err
		}
		return v.begin(ctx)
	})
}

// viewSettings make a session fit to read for long.
func viewSettings(f canal.Flavor) []string {
	limit := "SET SESSION max_execution_time = 0"
	if f == canal.MariaDB {
		limit = "SET SESSION max_statement_time = 0"
	}
	return []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", limit}
}

func (v *view) begin(ctx context.Context) error {
	if _, err := v.conn.ExecContext(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return v.conn.QueryRowContext(ctx, "SELECT "+nowMicros).Scan(&v.time)
}

// locking calls do while every epoch row is locked, over a connection of its own.
func locking(ctx context.Context, cfg *mysql.Config, do func(context.Context, *sql.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	db, err := openDB(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // which ends the session, and frees what it locked
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, q := range []string{"SET SESSION wait_timeout = 1, innodb_lock_wait_timeout = 1", "START TRANSACTION", lockEpochs} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("lock of the epoch rows: %w", err)
		}
	}
	if err := do(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil { // the session was ended before, and the lock was not held all the while
		return fmt.Errorf("lock of the epoch rows: %w", err)
	}
	return nil
}

func (v *view) position() canal.Position { return v.at }

func (v *view) takenAt() int64 { return v.time }

func (v *view) close() error { return errors.Join(v.conn.Close(), v.db.Close()) }

func (v *view) highest(ctx context.Context, shard int) (pos int64, err error) {
	err = v.conn.QueryRowContext(ctx, highestPos(shard)).Scan(&pos)
	return pos, err
}

func (v *view) rows(ctx context.Context, shard int, above, upTo int64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		rows, err := v.conn.QueryContext(ctx, selectMessages(shard, above, upTo))
		if err != nil {
			yield(message{}, fmt.Errorf("snapshot: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			m, err := scanMessage(rows, shard)
			if !yield(m, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(message{}, fmt.Errorf("snapshot: %w", err))
		}
	}
}

// scanMessage reads a row of selectMessages.
func scanMessage(rows *sql.Rows, shard int) (message, error) {
	m := message{shard: shard}
	var id, topic, key, headers, body sql.RawBytes
	if err := rows.Scan(&m.pos, &id, &topic, &key, &headers, &body, &m.mirrored, &m.bornAt); err != nil {
		return m, fmt.Errorf("snapshot: %w", err)
	}
	var err error
	if m.id, err = uuid.FromBytes(id); err != nil {
		return m, halt(ReasonRow, rowRepair, fmt.Errorf("%w: id of %d bytes at pos %s of shard %d", ErrRow, len(id), posText(m.pos), shard))
	}
	m.topic, m.key, m.headers, m.body = topic, key, headers, body
	return m, nil
}

// mayBackfill tells why a backfill would be refused; nil: it would not.
func mayBackfill(ctx context.Context, cfg *mysql.Config, shards int) (err error) {
	db, err := openDB(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, q := range backfillProbes(shards) {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return backfillError(ctx, cfg, err)
		}
	}
	return nil
}

// backfillError makes a halt of a right that the account lacks.
func backfillError(ctx context.Context, cfg *mysql.Config, err error) error {
	if !isServerError(err, 1044, 1142, 1143) {
		return err
	}
	return halt(ReasonConfig, "let an administrator type `"+backfillGrants(cfg.DBName, account(ctx, cfg))+"`, and start canald again; or begin with what the binlog still has: `"+resetCommand+"`",
		fmt.Errorf("%w: what the binlog no longer has must be copied from the store's tables, which the account may not read: %w", ErrConfig, err))
}

// account is whom the server takes the DSN's user for, quoted.
func account(ctx context.Context, cfg *mysql.Config) string {
	current := cfg.User + "@%"
	if db, err := openDB(cfg); err == nil {
		_ = db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&current) // else the most likely
		_ = db.Close()
	}
	return quoteAccount(current)
}
