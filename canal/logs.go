package canal

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"time"
)

// A LogFile is one binlog file of a server.
type LogFile struct {
	Name  string
	Bytes int64
}

// A Survey is what of a server changes all the time.
type Survey struct {
	// Clock is the server's clock minus ours, exact to half a round trip.
	Clock time.Duration
	// Logs are the binlog files, oldest first; nil when the account may not list them.
	Logs []LogFile
}

// Look surveys a server over a short connection: a SHOW BINARY LOGS, and some looks at the
// clock. Errors are as those of Inspect.
func Look(ctx context.Context, c Config) (s Survey, err error) {
	if c, err = c.filled(); err != nil {
		return s, err
	}
	if c, err = c.located(ctx); err != nil {
		return s, err
	}
	err = c.asking(ctx, func(conn *sql.Conn) error {
		s, err = survey(ctx, conn)
		return err
	})
	if err != nil {
		return s, c.placed(err, stageLogin)
	}
	return s, nil
}

func survey(ctx context.Context, conn *sql.Conn) (s Survey, err error) {
	if s.Clock, err = readClock(ctx, conn); err != nil {
		return s, err
	}
	s.Logs, err = readLogs(ctx, conn)
	return s, err
}

// clockLooks is how often the clock is read; the quickest answer counts.
const clockLooks = 3

// readClock is the server's clock minus ours, as if the server had looked in the middle of
// the round trip.
func readClock(ctx context.Context, conn *sql.Conn) (ahead time.Duration, err error) {
	quickest := time.Duration(math.MaxInt64)
	for range clockLooks {
		var text string
		asked := time.Now()
		if err := conn.QueryRowContext(ctx, "SELECT UNIX_TIMESTAMP(NOW(6))").Scan(&text); err != nil {
			return 0, err
		}
		took := time.Since(asked)
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("server's clock: %w", err)
		}
		if took < quickest {
			quickest = took
			ahead = time.UnixMicro(int64(seconds * 1e6)).Sub(asked.Add(took / 2))
		}
	}
	return ahead, nil
}

// readLogs lists the server's binlog files, oldest first. An account without REPLICATION
// CLIENT (MariaDB: BINLOG MONITOR) may not ask; then there is no list, and no error.
func readLogs(ctx context.Context, conn *sql.Conn) ([]LogFile, error) {
	rows, err := conn.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		if code, _ := serverError(err); code == erSpecificAccess || code == erNoBinlog {
			return nil, nil
		}
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if len(columns) < 2 {
		return nil, fmt.Errorf("SHOW BINARY LOGS: columns %q", columns)
	}
	logs := []LogFile{}
	for rows.Next() {
		var f LogFile
		into := []any{&f.Name, &f.Bytes}
		for range columns[len(into):] { // MySQL tells also whether it is encrypted
			into = append(into, new(sql.RawBytes))
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		logs = append(logs, f)
	}
	return logs, rows.Err()
}

// startOf is a MariaDB server's position at the beginning of one of its files; empty also
// when the server cannot tell, as for a file that somebody deleted.
func startOf(ctx context.Context, conn *sql.Conn, f LogFile) (gtids string, err error) {
	var at sql.NullString
	err = conn.QueryRowContext(ctx, "SELECT BINLOG_GTID_POS(?, 4)", f.Name).Scan(&at)
	if code, _ := serverError(err); code != 0 {
		return "", nil
	}
	return at.String, err
}
