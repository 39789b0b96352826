package canal

import (
	"context"
	"database/sql"
	"fmt"
)

// A LogFile is one binlog file of a server.
type LogFile struct {
	Name  string
	Bytes int64
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
