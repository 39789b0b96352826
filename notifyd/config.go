package notifyd

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is the broker's configuration; the zero value of each field is its default.
// deploy/notifyd.yaml explains every key.
type Config struct {
	// ID names the broker in leases and listings: 1 to 64 bytes of [A-Za-z0-9._-].
	// Default: host name, "-", 8 random hex digits, new at each start.
	ID string `yaml:"id"`
	// Listen is the host:port of the API. Default 127.0.0.1:7700. An address that is
	// not loopback needs Insecure.
	Listen string `yaml:"listen"`
	// Advertise is the host:port that clients and other brokers use. Default: the
	// address listened on.
	Advertise string `yaml:"advertise"`
	// Insecure allows listening beyond loopback without authentication.
	Insecure bool `yaml:"insecure"`
	// Stores by name. Exactly one in this version.
	Stores map[string]StoreConfig `yaml:"stores"`
	// AutoCreateTopics declares an unknown topic at its first publish.
	AutoCreateTopics bool `yaml:"auto_create_topics"`
	// MaxBodyBytes is the largest body. Default 4 MiB.
	MaxBodyBytes Bytes `yaml:"max_body"`
	// PublishMemory bounds the bytes of messages between arrival and COMMIT. Default 256 MiB.
	PublishMemory Bytes `yaml:"publish_memory"`
	// DeliveryMemory bounds the bytes of messages kept for delivery, over all shards;
	// above it they are paged from the store later. Default 256 MiB.
	DeliveryMemory Bytes `yaml:"delivery_memory"`
	// AckWait is how long a delivery may stay unacknowledged. Default 5 s.
	AckWait Duration `yaml:"ack_wait"`
	// RetryMin and RetryMax bound the exponential backoff of redelivery. Default 1 s and 10 min.
	RetryMin Duration `yaml:"retry_min"`
	RetryMax Duration `yaml:"retry_max"`
	// DedupWindow is how long an idempotency key is remembered. Default 24 h.
	DedupWindow Duration `yaml:"dedup_window"`
	// LeaseTime is how long a shard stays with an owner that does not renew. Default 6 s.
	LeaseTime Duration `yaml:"lease_time"`
}

// StoreConfig is one store.
type StoreConfig struct {
	// DSN in the form user:password@tcp(host:port)/schema.
	DSN string `yaml:"dsn"`
}

// Deps is what the broker is given to work with.
type Deps struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Version is the program's, for ListBrokers.
	Version string
}

// Bytes is a size; in YAML a number, or a number with KiB, MiB or GiB.
type Bytes int64

// Duration is a time.Duration; in YAML in Go's form, such as 5s.
type Duration time.Duration
