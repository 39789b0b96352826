package canal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// Config tells a Tailer where to read and what. The zero value of an optional field is
// its default.
type Config struct {
	// Addr is host:port, or the path of a Unix socket. Required.
	Addr string
	// Find, when set, tells before each connection at which address the server is now; Addr is
	// then a name for messages. Where TLS checks names it is that address's host that is checked.
	// An error is tried again.
	Find func(context.Context) (addr string, err error)
	// User needs REPLICATION SLAVE on *.* and nothing else. Required.
	User     string
	Password string
	// TLS, when not nil, is required of the server.
	TLS *tls.Config

	// Flavor, when set, must be the server's; otherwise it is found out.
	Flavor Flavor
	// Server, when set, is the identity that the server must have (ErrServerChanged).
	// Otherwise the first server seen is the one that must stay.
	Server ServerID
	// ServerID under which we read: unique among the server's replicas. 0 takes a random
	// one for each connection, from the upper half of the range.
	ServerID uint32

	// Schema holds the watched tables. Required.
	Schema string
	// Watch tells which tables of the schema are watched; nil: all. It must always give
	// the same answer for a name. Names come in lower case from a server that folds them.
	Watch func(table string) bool
	// Columns are those that each row image must hold (ErrPartialRow); nil: all. With
	// binlog_row_image=MINIMAL an image lacks the columns that the INSERT does not name.
	Columns []string

	// MemoryBytes bounds the row events that are read and not yet taken, one event of up to
	// a megabyte more at most: 64 MiB. It must be at least twice SpoolAbove. A row of a
	// watched table above it, or a statement's text, is refused (ErrTooLarge).
	MemoryBytes int64
	// SpoolDir is where transactions above SpoolAbove go: os.TempDir().
	SpoolDir string
	// SpoolAbove is the size of a transaction's rows above which they go to a file: 16 MiB.
	SpoolAbove int64
	// SpoolLimit is the size above which a transaction is refused (ErrSpool): 16 GiB.
	SpoolLimit int64

	// HeartbeatPeriod is how long the server is silent before it says that it is there: 1 s.
	HeartbeatPeriod time.Duration
	// ReadTimeout is how long nothing may come before the connection counts as dead: three
	// heartbeats. It must be at least twice HeartbeatPeriod.
	ReadTimeout time.Duration
	// SeekTimeout replaces ReadTimeout until the first transaction or heartbeat: the server may
	// have to search many files for the position: 5 minutes.
	SeekTimeout time.Duration

	// Logger gets one line for each change of state; nil: none.
	Logger *slog.Logger
}

// filled returns the configuration with defaults, or all that is wrong with it.
func (c Config) filled() (Config, error) {
	var wrong []error
	if c.Addr == "" {
		wrong = append(wrong, errors.New("address is missing"))
	}
	if c.User == "" {
		wrong = append(wrong, errors.New("user is missing"))
	}
	if c.Schema == "" {
		wrong = append(wrong, errors.New("schema is missing"))
	}
	if c.Flavor != "" && c.Flavor != MySQL && c.Flavor != MariaDB {
		wrong = append(wrong, fmt.Errorf("flavor %q is neither %q nor %q", c.Flavor, MySQL, MariaDB))
	}
	if c.Watch == nil {
		c.Watch = func(string) bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SpoolDir == "" {
		c.SpoolDir = os.TempDir()
	}
	def(&c.SpoolAbove, 16<<20)
	def(&c.MemoryBytes, max(64<<20, 2*c.SpoolAbove))
	def(&c.SpoolLimit, 16<<30)
	def(&c.HeartbeatPeriod, time.Second)
	def(&c.ReadTimeout, 3*c.HeartbeatPeriod)
	def(&c.SeekTimeout, max(5*time.Minute, c.ReadTimeout))
	if c.MemoryBytes < 2*c.SpoolAbove || c.SpoolAbove < 0 {
		wrong = append(wrong, fmt.Errorf("memory of %d bytes is less than twice the spool threshold of %d", c.MemoryBytes, c.SpoolAbove))
	}
	if c.ReadTimeout < 2*c.HeartbeatPeriod || c.HeartbeatPeriod < 0 {
		wrong = append(wrong, fmt.Errorf("read timeout %s is less than twice the heartbeat period %s", c.ReadTimeout, c.HeartbeatPeriod))
	}
	if c.SeekTimeout < c.ReadTimeout {
		wrong = append(wrong, fmt.Errorf("seek timeout %s is less than the read timeout %s", c.SeekTimeout, c.ReadTimeout))
	}
	return c, errors.Join(wrong...)
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// located is the configuration for the next connection.
func (c Config) located(ctx context.Context) (Config, error) {
	if c.Find == nil {
		return c, nil
	}
	addr, err := c.Find(ctx)
	if err != nil {
		return c, err
	}
	c.Addr = addr
	if host, _, err := net.SplitHostPort(addr); err == nil && c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.ServerName = host
	}
	return c, nil
}

// network is the kind of Addr.
func (c *Config) network() string {
	if len(c.Addr) > 0 && c.Addr[0] == '/' {
		return "unix"
	}
	return "tcp"
}
