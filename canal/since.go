package canal

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"
)

// StartBefore is a position from which everything is sent that was committed at t or later,
// and as little before it as the server's binlog files allow: the beginning of a file. When all
// of the binlog is younger it is the beginning of that. It asks over a short connection, and
// reads the first transaction of a few files. Errors are *StopError when an operator must mend
// them: on MariaDB the account needs REPLICATION CLIENT.
func StartBefore(ctx context.Context, c Config, t time.Time) (Position, error) {
	c.Logger = slog.New(slog.DiscardHandler)
	info, err := Inspect(ctx, c)
	if err != nil {
		return Position{}, err
	}
	oldest, err := info.GoOn(Position{Flavor: info.Flavor})
	if err != nil || len(info.Logs) == 0 {
		return oldest, err
	}
	// The files are in order of time: of those that begin before t the last one is wanted.
	from, to := 0, len(info.Logs)-1
	found := oldest
	for from < to {
		middle := (from + to + 1) / 2
		at, err := beginning(ctx, c, info.Flavor, info.Logs[middle])
		if err != nil {
			return Position{}, err
		}
		first, err := firstAfter(ctx, c, at)
		if err != nil {
			return Position{}, err
		}
		if first.IsZero() || !first.Before(t) {
			to = middle - 1
			continue
		}
		from, found = middle, at
	}
	return found, nil
}

// beginning is the position at the beginning of a binlog file.
func beginning(ctx context.Context, c Config, f Flavor, file LogFile) (at Position, err error) {
	at.Flavor = f
	if c, err = c.filled(); err != nil {
		return at, err
	}
	if c, err = c.located(ctx); err != nil {
		return at, err
	}
	err = c.asking(ctx, func(conn *sql.Conn) (err error) {
		if f == MariaDB {
			at.GTIDs, err = startOf(ctx, conn, file)
			return err
		}
		at.GTIDs, err = previousGTIDs(ctx, conn, file)
		return err
	})
	return at, err
}

// previousGTIDs is what a MySQL server had executed when it began a file: the file says so in
// one of its first events.
func previousGTIDs(ctx context.Context, conn *sql.Conn, file LogFile) (string, error) {
	rows, err := conn.QueryContext(ctx, "SHOW BINLOG EVENTS IN ? LIMIT 3", file.Name)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, info sql.NullString
		var other any
		if err := rows.Scan(&other, &other, &kind, &other, &other, &info); err != nil {
			return "", err
		}
		if kind.String == "Previous_gtids" {
			return info.String, nil
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("binlog file %s does not say which transactions are before it", file.Name)
}

// firstAfter is when the first transaction behind a position was committed; zero when there is none.
func firstAfter(ctx context.Context, c Config, at Position) (time.Time, error) {
	tailer, err := NewTailer(c)
	if err != nil {
		return time.Time{}, err
	}
	for t, err := range tailer.Txns(ctx, at) {
		if err != nil {
			return time.Time{}, err
		}
		return t.CommitTime, nil
	}
	return time.Time{}, ctx.Err()
}

// Holds returns a test that tells whether a transaction is in the position.
func (p Position) Holds() (func(gtid string) bool, error) {
	set, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		return nil, err
	}
	return func(gtid string) bool {
		one, err := parseSet(p.Flavor, gtid)
		return err == nil && gtid != "" && set.contains(one)
	}, nil
}
