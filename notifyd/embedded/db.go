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
	config   Config
	port     int
	password string

	mu   sync.Mutex
	proc *process
}

// Start makes the database if Dir has none, starts the server and returns when it answers.
// ctx bounds the start only: the server runs until Stop or Kill, or until this process ends.
// Errors that callers may tell apart: ErrInUse, ErrPortInUse, ErrOtherServer.
func Start(ctx context.Context, c Config) (*DB, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	db := &DB{config: c, port: c.Port}
	if db.port == 0 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		db.port = port
	}
	if err := db.Restart(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// Restart starts the server again after Stop, Kill or its own death, on the same port.
func (db *DB) Restart(ctx context.Context) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.proc != nil && !ended(db.proc) {
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
	db.password = string(password)
	if err := writeSynced(p.initFile(), accounts(db.password)); err != nil {
		return fmt.Errorf("database directory: %w", err)
	}
	// Left by a killed server: its pid may be another process's by now, and MySQL would
	// refuse to start.
	for _, stale := range []string{socketName, socketName + ".lock"} {
		if err := os.Remove(filepath.Join(p.data(), stale)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("database directory: %w", err)
		}
	}
	proc, err := spawn(db.config.Server.Path, flags(db.config, p.data(), p.initFile(), db.port, os.Geteuid()), log, lock)
	if err != nil {
		return err
	}
	if err := db.waitReady(ctx, proc); err != nil {
		proc.kill()
		return err
	}
	db.proc = proc
	db.config.Logger.Info("database started", "server", db.config.Server.String(), "path", db.config.Server.Path,
		"addr", db.Addr(), "pid", proc.pid, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// waitReady returns when the server answers on its port.
func (db *DB) waitReady(ctx context.Context, proc *process) error {
	c := db.driverConfig("")
	c.Logger = &mysql.NopLogger{} // refused connections are expected here
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	for {
		pingErr := pool.PingContext(ctx)
		if pingErr == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("database start: %w: %s", proc.err, lastError(paths(db.config.Dir).log()))
		default:
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("database start: %w: %w", err, pingErr)
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

// Stop lets the server end in order and waits for it. When ctx ends first the server is
// killed, which loses nothing that was committed, and the error is that of ctx.
func (db *DB) Stop(ctx context.Context) error {
	proc := db.current()
	proc.signal(syscall.SIGTERM)
	select {
	case <-proc.done:
		db.config.Logger.Info("database stopped")
		return nil
	case <-ctx.Done():
		proc.kill()
		return fmt.Errorf("database stop: killed: %w", ctx.Err())
	}
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (db *DB) Kill() { db.current().kill() }

// Done is closed when the server that now runs has ended, for whatever reason; after
// Restart there is a new one.
func (db *DB) Done() <-chan struct{} { return db.current().done }

// Err tells why the server ended by itself, with the last error of its log. Call it after
// Done was closed.
func (db *DB) Err() error {
	proc := db.current()
	if !ended(proc) {
		return nil
	}
	return fmt.Errorf("database ended: %v: %s", proc.err, lastError(paths(db.config.Dir).log()))
}

// PID is the server's process id, for signals in tests.
func (db *DB) PID() int { return db.current().pid }

// Server is the binary that runs.
func (db *DB) Server() Server { return db.config.Server }

// Port is the TCP port on 127.0.0.1.
func (db *DB) Port() int { return db.port }

// Addr is host:port.
func (db *DB) Addr() string { return net.JoinHostPort(host, strconv.Itoa(db.port)) }

// User and Password are the account of DSN, for clients that take them singly.
func (db *DB) User() string     { return account }
func (db *DB) Password() string { return db.password }

// Socket is the path of the server's socket, where root needs no password.
func (db *DB) Socket() string { return filepath.Join(paths(db.config.Dir).data(), socketName) }

// LogPath is the file that holds what the server says.
func (db *DB) LogPath() string { return paths(db.config.Dir).log() }

// DSN is for go-sql-driver/mysql: notify:PASSWORD@tcp(127.0.0.1:PORT)/schema, without
// parameters. The schema may be empty and is not created.
func (db *DB) DSN(schema string) string { return db.driverConfig(schema).FormatDSN() }

func (db *DB) driverConfig(schema string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = account, db.password, "tcp", db.Addr(), schema
	return c
}

func (db *DB) current() *process {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.proc
}

func ended(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
