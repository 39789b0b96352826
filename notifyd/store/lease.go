package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// Leases reads every shard's lease, by shard, and the store's clock.
func (s *Store) Leases(ctx context.Context) (leases []shard.Lease, now int64, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT shard, "+leaseColumns+" FROM lease ORDER BY shard")
	if err != nil {
		return nil, 0, fmt.Errorf("leases: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var no int
		var l leaseRow
		if err := l.scan(rows, &no); err != nil {
			return nil, 0, fmt.Errorf("leases: %w", err)
		}
		now = l.now
		leases = append(leases, shard.Lease{Shard: no, Epoch: l.epoch, Owner: l.owner, ExpiresAt: l.expires, Void: l.void()})
	}
	return leases, now, rows.Err()
}

// Renew prolongs the leases of held shards (by their epochs) and returns those that are the
// owner's still. It touches lease rows only, which no writer locks.
func (s *Store) Renew(ctx context.Context, owner string, held map[int]int64, d time.Duration) (kept []int, err error) {
	for _, no := range slices.Sorted(maps.Keys(held)) {
		res, err := s.db.ExecContext(ctx, "UPDATE lease SET expires_at = "+schema.NowMicros+" + ? WHERE shard = ? AND epoch = ? AND owner = ? AND expires_at > 0",
			d.Microseconds(), no, held[no], owner)
		if err != nil {
			return kept, fmt.Errorf("lease of shard %d: %w", no, err)
		}
		if n, err := res.RowsAffected(); err != nil {
			return kept, fmt.Errorf("lease of shard %d: %w", no, err)
		} else if n == 1 {
			kept = append(kept, no)
		}
	}
	return kept, nil
}

// A Take asks for a shard.
type Take struct {
	Shard int
	Owner string
	Lease time.Duration
	// Connections of the new owner's writers.
	Connections []Connection
	// Retake is the asker's own epoch when it lost a connection and wants to begin anew;
	// 0: only a shard whose lease is over.
	Retake int64
	// Known is the highest epoch of the shard that the asker has ever seen.
	Known int64
}

// Taken is a shard that is the asker's now.
type Taken struct {
	Epoch int64
	// Version of the registry in force, and the server_id of the server that says so.
	Version, Server int64
	Settled         shard.Pos
	// Moved tells that the owner before had it at another server.
	Moved bool
}

// Take makes the asker the owner under a new epoch, or returns ErrNotFree. Transactions of
// the owner before are over when it returns: a connection of its that held the epoch row was killed.
// A lease that was given at another server is void, also for who asks to have it again: this one was
// promoted, and may lack what that one committed last. So the epoch goes up by shard.NextEpoch.
func (s *Store) Take(ctx context.Context, t Take) (Taken, error) {
	conn, err := s.takers.Conn(ctx)
	if err != nil {
		return Taken{}, fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	defer conn.Close()
	for {
		taken, err := take(ctx, conn, t)
		if !hasCode(err, codeLockTimeout) {
			return taken, err
		}
		if err := s.kill(ctx, conn, t); err != nil {
			return Taken{}, err
		}
	}
}

func readCommitted() *sql.TxOptions { return &sql.TxOptions{Isolation: sql.LevelReadCommitted} }

// leaseRow is a lease as its row has it, with the clock and the name of the server that was asked.
type leaseRow struct {
	epoch, expires, now, server int64
	owner                       string
	connections                 []Connection
}

// leaseColumns are what scan reads.
const leaseColumns = "epoch, owner, expires_at, connections, " + schema.NowMicros + ", @@server_id"

// scan reads leaseColumns, which stand behind others.
func (l *leaseRow) scan(row interface{ Scan(...any) error }, before ...any) error {
	var connections string
	if err := row.Scan(append(before, &l.epoch, &l.owner, &l.expires, &connections, &l.now, &l.server)...); err != nil || connections == "" {
		return err
	}
	if err := json.Unmarshal([]byte(connections), &l.connections); err != nil {
		return fmt.Errorf("connections in the lease row: %w", err)
	}
	return nil
}

func readLease(ctx context.Context, q querier, no int) (l leaseRow, err error) {
	err = l.scan(q.QueryRowContext(ctx, "SELECT "+leaseColumns+" FROM lease WHERE shard = ?", no))
	return l, err
}

// void reports whether the lease was given at another server. One that names none was not.
func (l leaseRow) void() bool {
	return len(l.connections) > 0 && l.connections[0].Server != 0 && l.connections[0].Server != l.server
}

func (l leaseRow) free(t Take) bool {
	if t.Retake != 0 {
		return l.epoch == t.Retake && l.owner == t.Owner && !l.void()
	}
	return l.void() || l.expires <= l.now
}

func take(ctx context.Context, conn *sql.Conn, t Take) (Taken, error) {
	tx, err := conn.BeginTx(ctx, readCommitted())
	if err != nil {
		return Taken{}, fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	defer tx.Rollback()
	var out Taken
	var epoch int64
	if err := tx.QueryRowContext(ctx, "SELECT epoch, registry_version FROM epoch WHERE shard = ? FOR UPDATE", t.Shard).Scan(&epoch, &out.Version); err != nil {
		return Taken{}, fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	lease, err := readLease(ctx, tx, t.Shard)
	if err != nil {
		return Taken{}, fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	if !lease.free(t) || t.Retake != 0 && epoch != t.Retake {
		return Taken{}, ErrNotFree
	}
	out.Server, out.Moved = lease.server, lease.void()
	out.Epoch = shard.NextEpoch(max(epoch, lease.epoch), t.Known, out.Moved)
	connections, err := json.Marshal(t.Connections)
	if err != nil {
		return Taken{}, err
	}
	_, err = tx.ExecContext(ctx, "UPDATE epoch SET epoch = ? WHERE shard = ?", out.Epoch, t.Shard)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE lease SET epoch = ?, owner = ?, connections = ?, expires_at = "+schema.NowMicros+" + ? WHERE shard = ?",
			out.Epoch, t.Owner, string(connections), t.Lease.Microseconds(), t.Shard)
	}
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT pos FROM settled WHERE shard = ?", t.Shard).Scan(&out.Settled)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return Taken{}, fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	return out, nil
}

// kill ends the write connections that the lease records, if the shard may still be taken.
// The same account needs no privilege for it. A connection of an earlier run of the server is left alone.
func (s *Store) kill(ctx context.Context, conn *sql.Conn, t Take) error {
	lease, err := readLease(ctx, conn, t.Shard)
	if err != nil {
		return fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	if !lease.free(t) {
		return ErrNotFree
	}
	started, err := serverStart(ctx, conn)
	if err != nil {
		return fmt.Errorf("takeover of shard %d: %w", t.Shard, err)
	}
	for _, c := range lease.connections {
		if lease.void() || c.StartedAt < started-2 || c.StartedAt > started+2 {
			continue
		}
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("KILL %d", c.ID)); err != nil && !hasCode(err, codeNoThread) {
			return fmt.Errorf("takeover of shard %d: kill of connection %d: %w", t.Shard, c.ID, err)
		}
	}
	return nil
}

// Release gives a shard up, so that another broker need not wait for the lease to end.
func (s *Store) Release(ctx context.Context, no int, epoch int64, owner string) error {
	_, err := s.db.ExecContext(ctx, "UPDATE lease SET expires_at = 0 WHERE shard = ? AND epoch = ? AND owner = ?", no, epoch, owner)
	if err != nil {
		return fmt.Errorf("release of shard %d: %w", no, err)
	}
	return nil
}

// A Broker is one notifyd as others see it.
type Broker struct {
	ID, Address, Version string
	// SeenAt by the store's clock, microseconds since 1970 UTC.
	SeenAt int64
}

// Heartbeat tells the others that the broker lives.
func (s *Store) Heartbeat(ctx context.Context, b Broker) error {
	_, err := s.db.ExecContext(ctx, "INSERT INTO registry_broker (id, address, version, seen_at) VALUES (?, ?, ?, "+schema.NowMicros+
		") ON DUPLICATE KEY UPDATE address = VALUES(address), version = VALUES(version), seen_at = VALUES(seen_at)", b.ID, b.Address, b.Version)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// Brokers reads the brokers seen within d, by id.
func (s *Store) Brokers(ctx context.Context, d time.Duration) (live []Broker, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, address, version, seen_at FROM registry_broker WHERE seen_at > "+schema.NowMicros+" - ? ORDER BY id", d.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("brokers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b Broker
		if err := rows.Scan(&b.ID, &b.Address, &b.Version, &b.SeenAt); err != nil {
			return nil, fmt.Errorf("brokers: %w", err)
		}
		live = append(live, b)
	}
	return live, rows.Err()
}

// Farewell takes the broker out of the list, and with it those not seen for a day.
func (s *Store) Farewell(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM registry_broker WHERE id = ? OR seen_at < "+schema.NowMicros+" - 86400000000", id)
	if err != nil {
		return fmt.Errorf("farewell: %w", err)
	}
	return nil
}

// IsAway reports whether the error says that the store cannot be reached, rather than that
// it refused something.
func IsAway(err error) bool {
	return err != nil && !refused(err) && !errors.Is(err, context.Canceled)
}

// Settled reads the settled position of every shard.
func (s *Store) Settled(ctx context.Context) (map[int]shard.Pos, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT shard, pos FROM settled")
	if err != nil {
		return nil, fmt.Errorf("settled positions: %w", err)
	}
	defer rows.Close()
	out := map[int]shard.Pos{}
	for rows.Next() {
		var no int
		var pos shard.Pos
		if err := rows.Scan(&no, &pos); err != nil {
			return nil, fmt.Errorf("settled positions: %w", err)
		}
		out[no] = pos
	}
	return out, rows.Err()
}
