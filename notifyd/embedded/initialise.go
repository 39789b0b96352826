package embedded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"notifymirror/notifyd/embedded/child"
)

// paths of one database directory; its layout is in the package's documentation.
type paths string

func (p paths) log() string      { return filepath.Join(string(p), "server.log") }
func (p paths) tmp() string      { return filepath.Join(string(p), "tmp") }
func (p paths) db() string       { return filepath.Join(string(p), "db") }
func (p paths) fresh() string    { return filepath.Join(string(p), "db.new") }
func (p paths) data() string     { return filepath.Join(p.db(), "data") }
func (p paths) madeBy() string   { return filepath.Join(p.db(), "made-by") }
func (p paths) password() string { return filepath.Join(p.db(), "password") }
func (p paths) initFile() string { return filepath.Join(p.db(), "init.sql") }

// initialise makes the database unless it is there. The directory's lock is held; what an
// interrupted first run left is removed.
func initialise(ctx context.Context, c Config, lock, log *os.File) error {
	p := paths(c.Dir)
	if err := os.RemoveAll(p.fresh()); err != nil {
		return fmt.Errorf("database directory %s: %w", c.Dir, err)
	}
	if err := os.MkdirAll(p.tmp(), 0o700); err != nil {
		return fmt.Errorf("database directory %s: %w", c.Dir, err)
	}
	if _, err := os.Stat(p.db()); err == nil {
		return checkMaker(p, c.Server)
	}
	if err := os.Mkdir(p.fresh(), 0o700); err != nil {
		return fmt.Errorf("database directory %s: %w", c.Dir, err)
	}
	if err := runInit(ctx, c, filepath.Join(p.fresh(), "data"), lock, log); err != nil {
		return errors.Join(err, os.RemoveAll(p.fresh()))
	}
	if err := writeSynced(filepath.Join(p.fresh(), "made-by"), c.Server.String()+"\n"); err != nil {
		return err
	}
	password := make([]byte, 16)
	rand.Read(password)
	if err := writeSynced(filepath.Join(p.fresh(), "password"), hex.EncodeToString(password)); err != nil {
		return err
	}
	if err := os.Rename(p.fresh(), p.db()); err != nil {
		return fmt.Errorf("database directory %s: %w", c.Dir, err)
	}
	return nil
}

// runInit runs the server's own initialisation and waits for it.
func runInit(ctx context.Context, c Config, dataDir string, lock, log *os.File) error {
	program, args, err := initCommand(c, dataDir, os.Geteuid())
	if err != nil {
		return err
	}
	said := logSize(log)
	proc, err := child.Start(child.Config{Path: program, Args: args, Output: log, Hold: []*os.File{lock}})
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
		return fmt.Errorf("database initialisation: %w", ctx.Err())
	}
	if err := proc.Err(); err != nil {
		return fmt.Errorf("database initialisation: %s: %w: %s", program, err, lastError(log.Name(), said))
	}
	return nil
}

// initCommand is what makes a data directory: MySQL does it itself, MariaDB has a script.
func initCommand(c Config, dataDir string, uid int) (string, []string, error) {
	if c.Server.Flavor == MySQL {
		args := []string{"--no-defaults", "--initialize-insecure", "--datadir=" + dataDir, tmpdir(c)}
		args = append(args, redoLog(c)...)
		return c.Server.Path, append(args, user(uid)...), nil
	}
	script, err := installScript(c.Server.Path)
	if err != nil {
		return "", nil, err
	}
	args := []string{"--no-defaults", "--datadir=" + dataDir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", tmpdir(c)}
	args = append(args, redoLog(c)...)
	return script, append(args, user(uid)...), nil
}

// installScript finds MariaDB's initialisation script: near the server, or in PATH.
func installScript(server string) (string, error) {
	real, err := filepath.EvalSymlinks(server)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	base := filepath.Dir(filepath.Dir(real))
	for _, name := range []string{"bin/mariadb-install-db", "scripts/mariadb-install-db", "bin/mysql_install_db"} {
		path := filepath.Join(base, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return "", fmt.Errorf("%w: %s lacks its mariadb-install-db; on Debian and Ubuntu type: %s",
			ErrNotFound, server, installCommand(os.Geteuid()))
	}
	return path, nil
}

// checkMaker refuses a directory that the server cannot open, before it damages it.
func checkMaker(p paths, s Server) error {
	text, err := os.ReadFile(p.madeBy())
	if err != nil {
		return fmt.Errorf("database directory %s: %w", string(p), err)
	}
	maker, ok := parseMadeBy(string(text))
	if !ok {
		return fmt.Errorf("database directory %s: made-by says %q", string(p), strings.TrimSpace(string(text)))
	}
	if maker.Flavor != s.Flavor || !s.Version.sameOrLater(maker.Version) {
		return fmt.Errorf("%w: %s was made by %s, and %s is %s; set %s to the server that made it or use another directory",
			ErrOtherServer, string(p), maker, s.Path, s, EnvServer)
	}
	return nil
}

// parseMadeBy reads the form of Server.String.
func parseMadeBy(text string) (Server, bool) {
	flavor, version, ok := strings.Cut(strings.TrimSpace(text), " ")
	s, parsed := parseVersion("Ver " + version)
	s.Flavor = Flavor(flavor)
	return s, ok && parsed && (s.Flavor == MySQL || s.Flavor == MariaDB)
}

// accounts is run by the server at each start, one statement a line: it leaves root the
// socket only and gives notify its password. Nothing of it enters the binlog.
func accounts(password string) string {
	return strings.Join([]string{
		"SET sql_log_bin = 0;",
		"DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1';",
		"CREATE USER IF NOT EXISTS '" + account + "'@'" + host + "';",
		"ALTER USER '" + account + "'@'" + host + "' IDENTIFIED BY '" + password + "';",
		"GRANT ALL PRIVILEGES ON *.* TO '" + account + "'@'" + host + "' WITH GRANT OPTION;",
	}, "\n") + "\n"
}

// writeSynced writes a small private file and forces it to disk.
func writeSynced(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

// lastError is the last line of a log that tells of an error, else the last line, and where
// the log is; what the log held before offset is passed over. A line that says no more than "Aborting" is passed over.
func lastError(path string, offset int64) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	last := "it said nothing"
	for line := range strings.Lines(string(text[min(offset, int64(len(text))):])) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasSuffix(line, "Aborting") && (strings.Contains(line, "[ERROR]") || !strings.Contains(last, "[ERROR]")) {
			last = line
		}
	}
	return fmt.Sprintf("%s (all of it in %s)", last, path)
}
