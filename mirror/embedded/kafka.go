package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Config is the configuration of an embedded Kafka; the zero value of each field but
// Dir is its default.
type Config struct {
	// Dir is where the data lives; it is made if missing. One process may have it open.
	Dir string
	// Addr is the loopback host:port to listen on and to send clients to.
	// Default 127.0.0.1:0, a free port.
	Addr string
	// SyncWrites has every batch on disk before it is acknowledged (8 ms on a laptop's
	// disk instead of 0.2), so that data survives a crash of the machine too.
	SyncWrites bool
	// AutoCreateTopics creates a topic when a client asks for an unknown one.
	AutoCreateTopics bool
	// Partitions of topics that are created without a number. Default 8.
	Partitions int
	// Logger takes what the broker says. Default: nothing is logged.
	Logger *slog.Logger
}

// Kafka is a running embedded Kafka.
type Kafka struct {
	cluster *kfake.Cluster
	addrs   []string
	dir     string
	lock    *dirLock
	close   func() error
}

// Start opens the data directory and serves it; it returns when clients can connect.
// The caller closes the Kafka. The error wraps ErrInUse or ErrNotLoopback, or says
// which directory or address could not be used. An error leaves nothing behind that
// would block the next start.
func Start(cfg Config) (*Kafka, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dir == "" {
		return nil, errors.New("embedded kafka: no data directory is given")
	}
	if err := checkLoopback(cfg.Addr); err != nil {
		return nil, fmt.Errorf("embedded kafka: address %q: %w", cfg.Addr, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded kafka: data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded kafka: data directory %s: %w", cfg.Dir, err)
	}
	k, err := open(cfg)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	k.lock = lock
	k.close = sync.OnceValue(k.shutdown)
	return k, nil
}

// open starts the broker on a locked directory. The listener comes first: a taken
// address must not cost a repair.
func open(cfg Config) (*Kafka, error) {
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("embedded kafka: address %s: %w", cfg.Addr, err)
	}
	if err := makeReady(cfg); err != nil {
		_ = ln.Close() // nothing was accepted
		return nil, fmt.Errorf("embedded kafka: data directory %s: %w", cfg.Dir, err)
	}
	cluster, err := newCluster(cfg, ln)
	if err != nil {
		return nil, fmt.Errorf("embedded kafka: data directory %s: %w", cfg.Dir, err)
	}
	boundPerPartition(cluster)
	return &Kafka{cluster: cluster, addrs: []string{ln.Addr().String()}, dir: cfg.Dir}, nil
}

// makeReady repairs what a kill left, and marks the directory as open.
func makeReady(cfg Config) error {
	if err := repair(cfg); err != nil {
		return fmt.Errorf("repair after a kill: %w", err)
	}
	if err := os.Remove(filepath.Join(cfg.Dir, cleanFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// newCluster starts a broker of one node on a listener; it closes the listener when it
// ends, also with an error.
func newCluster(cfg Config, ln net.Listener) (*kfake.Cluster, error) {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("notify-embedded"),
		kfake.DataDir(cfg.Dir),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
		kfake.WithLogger(logger{cfg.Logger}),
	}
	if cfg.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	if cfg.AutoCreateTopics {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	return kfake.NewCluster(opts...)
}

// Addrs is the host:port of each broker, for a client's configuration: one.
func (k *Kafka) Addrs() []string { return k.addrs }

// Run serves until ctx ends, then closes the Kafka and returns Close's error.
func (k *Kafka) Run(ctx context.Context) error {
	<-ctx.Done()
	return k.Close()
}

// Close writes everything down and ends the broker. Closing again returns the
// first result.
func (k *Kafka) Close() error { return k.close() }

func (k *Kafka) shutdown() error {
	k.cluster.Close()
	return errors.Join(markClean(k.dir), k.lock.release())
}

// checkLoopback refuses an address that is not host:port on the loopback network.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ErrNotLoopback
	}
	return nil
}

// logger hands the broker's own text to slog, its requests at Debug.
type logger struct {
	to *slog.Logger
}

// Logf implements kfake.Logger.
func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	text := slog.Any("text", lazyText{format, args})
	switch level {
	case kfake.LogLevelError:
		l.to.Error("embedded kafka", text)
	case kfake.LogLevelWarn:
		l.to.Warn("embedded kafka", text)
	default:
		l.to.Debug("embedded kafka", text)
	}
}

// lazyText is formatted only when it is logged.
type lazyText struct {
	format string
	args   []any
}

// LogValue implements slog.LogValuer.
func (t lazyText) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf(t.format, t.args...)) }
