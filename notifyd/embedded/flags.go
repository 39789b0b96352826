package embedded

import (
	"fmt"
	"strconv"
)

// flags are the server's arguments: what a store needs, then what keeps a private server
// small, then the caller's own, which win. The same settings for a server that is not ours
// are in deploy/my.cnf.
func flags(c Config, dataDir, initFile string, port, uid int) []string {
	f := []string{
		"--no-defaults",
		"--datadir=" + dataDir,
		"--socket=" + socketName,
		"--pid-file=mysqld.pid",
		"--port=" + strconv.Itoa(port),
		"--bind-address=" + host,
		"--skip-name-resolve",
		"--init-file=" + initFile,
		tmpdir(c),

		"--server-id=1",
		"--log-bin=binlog",
		"--binlog-row-image=MINIMAL",
		"--binlog-row-metadata=FULL",
		"--sync-binlog=1",
		"--innodb-flush-log-at-trx-commit=1",
		"--transaction-isolation=READ-COMMITTED",
		"--character-set-server=utf8mb4",
		"--max-allowed-packet=64M",
		"--default-time-zone=+00:00",

		"--performance-schema=OFF",
		"--innodb-buffer-pool-size=" + strconv.FormatInt(c.BufferPool, 10),
	}
	f = append(f, redoLog(c)...)
	f = append(f, user(uid)...)
	switch c.Server.Flavor {
	case MySQL:
		f = append(f,
			"--gtid-mode=ON",
			"--enforce-gtid-consistency=ON",
			"--binlog-transaction-compression=OFF",
			"--binlog-row-value-options=",
			"--mysqlx=OFF",
			"--secure-file-priv=NULL",
		)
	case MariaDB:
		f = append(f,
			"--binlog-format=ROW",
			"--binlog-annotate-row-events=OFF",
			"--gtid-strict-mode=ON",
			"--loose-innodb-snapshot-isolation=OFF",
		)
	}
	return append(f, c.Extra...)
}

// redoLog sets the redo log's size; the default would make the directory 100 MB larger.
func redoLog(c Config) []string {
	if c.Server.Flavor == MySQL {
		return []string{fmt.Sprintf("--loose-innodb-redo-log-capacity=%d", c.RedoLog)}
	}
	return []string{fmt.Sprintf("--innodb-log-file-size=%d", c.RedoLog)}
}

// tmpdir keeps temporary files apart: a MariaDB that starts removes those that it finds in
// its directory, also when they are another server's that runs.
func tmpdir(c Config) string { return "--tmpdir=" + paths(c.Dir).tmp() }

// user is what both servers ask of a caller who is root.
func user(uid int) []string {
	if uid == 0 {
		return []string{"--user=root"}
	}
	return nil
}
