package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded/child"
)

const (
	host       = "127.0.0.1"
	account    = "notify"
	socketName = "mysqld.sock"
	// maxLog is the size in bytes above which a start begins the server's log anew.
	maxLog = 4 << 20
)

// Config says which server runs where; the zero value of each field but Dir and Server is
// its default.
type Config struct {
	// Dir holds the database and is made when missing. It belongs to one running server.
	Dir string
	// Server is what Find returned.
	Server Server
	// Port on 127.0.0.1. Default: a free one, kept over Restart.
	Port int
	// BufferPool is InnoDB's cache in bytes. Default 64 MiB.
	BufferPool int64
	// RedoLog is the size in bytes of InnoDB's redo log. Default 16 MiB.
	RedoLog int64
	// Extra are server flags that are added last and so override ours, such as
	// "--binlog-format=STATEMENT".
	Extra []string
	// StartTimeout bounds Start and Restart, initialisation included. Default 60 s.
	StartTimeout time.Duration
	// Logger is told of each change of state. Default: none.
	Logger *slog.Logger
}

func (c *Config) setDefaults() error {
	if c.Dir == "" || c.Server.Path == "" {
		return errors.New("database: Dir and Server are needed")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("database directory: %w", err)
	}
	c.Dir = dir
	if c.BufferPool == 0 {
		c.BufferPool = 64 << 20
	}
	if c.RedoLog == 0 {
		c.RedoLog = 16 << 20
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// DB is a server that was started. Its methods may be called from several goroutines.
type DB struct {
	config Config
	port   int

	mu       sync.Mutex
	password string
	proc     *child.Process
	said     int64 // size of the log when proc began
}

// Start makes the database if Dir has none, starts the server and returns when it answers.
// ctx bounds the start only: the server runs until Stop or Kill, or until this process ends.
// Errors that callers may tell apart: ErrInUse, ErrPortInUse, ErrOtherServer.
func Start(ctx context.Context, c Config) (*DB, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	db := &DB{config: c, port: c.Port}
	const tries = 10
	for try := 1; ; try++ {
		if c.Port == 0 {
			port, err := FreePort()
			if err != nil {
				return nil, err
			}
			db.port = port
		}
		err := db.Restart(ctx)
		if err == nil {
			return db, nil
		}
		// Somebody else may take a free port before the server does.
		if c.Port != 0 || try == tries || !errors.Is(err, ErrPortInUse) {
			return nil, err
		}
	}
}

// Restart starts the server again after Stop, Kill or its own death, on the same port.
func (db *DB) Restart(ctx context.Context) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.proc != nil && !db.proc.Ended() {
		return ErrRunning
	}
	ctx, cancel := context.WithTimeout(ctx, db.config.StartTimeout)
	defer cancel()
	if err := os.MkdirAll(db.config.Dir, 0o700); err != nil {
		return fmt.Errorf("database directory: %w", err)
	}
	lock, err := lockDir(ctx, db.config.Dir)
	if err != nil {
		return err
	}
	defer lock.Close() // the server holds it too
	if err := checkPort(db.port); err != nil {
		return err
	}
	log, err := openLog(paths(db.config.Dir).log())
	if err != nil {
		return err
	}
	defer log.Close()
	return db.launch(ctx, lock, log)
}

// launch initialises, starts the server and waits until it answers.
func (db *DB) launch(ctx context.Context, lock, log *os.File) error {
	p, began := paths(db.config.Dir), time.Now()
	if err := initialise(ctx, db.config, lock, log); err != nil {
		return err
	}
	password, err := os.ReadFile(p.password())
	if err != nil {
		return fmt.Errorf("database directory: %w", err)
	}
	if err := writeSynced(p.initFile(), accounts(string(password))); err != nil {
		return fmt.Errorf("database directory: %w", err)
	}
	// Left by a killed server: its pid may be another process's by now, and MySQL would
	// refuse to start.
	for _, stale := range []string{socketName, socketName + ".lock"} {
		if err := os.Remove(filepath.Join(p.data(), stale)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("database directory: %w", err)
		}
	}
	said := logSize(log)
	proc, err := child.Start(child.Config{
		Path:   db.config.Server.Path,
		Args:   flags(db.config, p.data(), p.initFile(), db.port, os.Geteuid()),
		Env:    []string{"TZ=UTC"},
		Output: log,
		Hold:   []*os.File{lock},
	})
	if err != nil {
		return err
	}
	if err := db.waitReady(ctx, proc, string(password)); err != nil {
		ended := proc.Ended()
		proc.Kill()
		if ended {
			if err := checkPort(db.port); err != nil {
				return err
			}
			return fmt.Errorf("database start: %w: %s", proc.Err(), lastError(p.log(), said))
		}
		return fmt.Errorf("database start: %w", err)
	}
	db.proc, db.said, db.password = proc, said, string(password)
	db.config.Logger.Info("database started", "server", db.config.Server.String(), "path", db.config.Server.Path,
		"addr", db.Addr(), "pid", proc.PID(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// waitReady returns nil when the server answers on its port, else when it or ctx has ended.
func (db *DB) waitReady(ctx context.Context, proc *child.Process, password string) error {
	c := db.driverConfig("", password)
	c.Logger = &mysql.NopLogger{} // refused connections are expected here
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	for {
		pingErr := pool.PingContext(ctx)
		if pingErr == nil || proc.Ended() {
			return pingErr
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %w", err, pingErr)
		}
	}
}

// openLog opens the server's log for appending.
func openLog(path string) (*os.File, error) {
	mode := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	return f, nil
}

// logSize is the size of the server's log now; 0 if that is unknown.
func logSize(log *os.File) int64 {
	info, err := log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// Stop lets the server end in order and waits for it. When ctx ends first the server is
// killed, which loses nothing that was committed, and the error is that of ctx.
func (db *DB) Stop(ctx context.Context) error {
	proc, _ := db.current()
	proc.Signal(syscall.SIGTERM)
	select {
	case <-proc.Done():
		db.config.Logger.Info("database stopped")
		return nil
	case <-ctx.Done():
		proc.Kill()
		return fmt.Errorf("database stop: killed: %w", ctx.Err())
	}
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (db *DB) Kill() {
	proc, _ := db.current()
	proc.Kill()
}

// Done is closed when the server that now runs has ended, for whatever reason; after
// Restart there is a new one.
func (db *DB) Done() <-chan struct{} {
	proc, _ := db.current()
	return proc.Done()
}

// Err tells how the server ended, with the last error that it logged; nil while it runs and
// after an end in order.
func (db *DB) Err() error {
	proc, said := db.current()
	if !proc.Ended() || proc.Err() == nil {
		return nil
	}
	return fmt.Errorf("database ended: %w: %s", proc.Err(), lastError(db.LogPath(), said))
}

// PID is the server's process id, for signals in tests.
func (db *DB) PID() int {
	proc, _ := db.current()
	return proc.PID()
}

// Server is the binary that runs.
func (db *DB) Server() Server { return db.config.Server }

// Port is the TCP port on 127.0.0.1.
func (db *DB) Port() int { return db.port }

// Addr is host:port.
func (db *DB) Addr() string { return net.JoinHostPort(host, strconv.Itoa(db.port)) }

// User is the account of DSN, for clients that take its parts singly.
func (db *DB) User() string { return account }

// Password is the password of DSN.
func (db *DB) Password() string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.password
}

// Socket is the path of the server's socket, where root needs no password.
func (db *DB) Socket() string { return filepath.Join(paths(db.config.Dir).data(), socketName) }

// LogPath is the file that holds what the server says.
func (db *DB) LogPath() string { return paths(db.config.Dir).log() }

// DSN is for go-sql-driver/mysql: notify:PASSWORD@tcp(127.0.0.1:PORT)/schema, without
// parameters. The schema may be empty and is not created.
func (db *DB) DSN(schema string) string { return db.driverConfig(schema, db.Password()).FormatDSN() }

// DSN is that of the server which another process started in a directory on a port; it works
// while that runs.
func DSN(dir string, port int, schema string) (string, error) {
	password, err := os.ReadFile(paths(dir).password())
	if err != nil {
		return "", fmt.Errorf("database directory: %w", err)
	}
	db := &DB{port: port}
	return db.driverConfig(schema, string(password)).FormatDSN(), nil
}

func (db *DB) driverConfig(schema, password string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = account, password, "tcp", db.Addr(), schema
	return c
}

// current is the newest run and where its part of the log begins.
func (db *DB) current() (*child.Process, int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.proc, db.said
}
