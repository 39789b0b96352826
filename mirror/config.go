package mirror

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/mirror/access"
	"notifymirror/mirror/record"
)

// Config is the configuration of canald; the zero value of each field is its default.
// deploy/canald.yaml explains every key.
type Config struct {
	// ID is the name of this canald among those of the same stores, for people: 1 to 64 bytes
	// of [A-Za-z0-9._-]. Default: the host's name with eight random hex digits.
	ID string `yaml:"id"`
	// Insecure allows listening beyond loopback without authentication.
	Insecure bool `yaml:"insecure"`
	// Cluster names this installation in Kafka: transactional ids and consumer groups are
	// Cluster/store id.
	// 1 to 64 bytes of [A-Za-z0-9._-]. Default "notify".
	Cluster string `yaml:"cluster"`
	// Stores by name; at least one. What is said below of memory, files and Kafka
	// transactions is for each store.
	Stores map[string]StoreConfig `yaml:"stores"`
	// Kafka is where the mirror is written.
	Kafka KafkaConfig `yaml:"kafka"`
	// TopicPrefix stands before the topic's name in Kafka. Default "notify.".
	TopicPrefix string `yaml:"topic_prefix"`
	// Partitions of new mirror topics. Default 8.
	Partitions int32 `yaml:"partitions"`
	// ReplicationFactor of new topics. Default -1: the Kafka cluster's own default.
	ReplicationFactor int16 `yaml:"replication_factor"`
	// MaxBodyBytes is the largest body that notifyd takes; new topics take records of
	// this size and 64 KiB. Default 4 MiB.
	MaxBodyBytes Bytes `yaml:"max_body"`
	// TransactionTimeout is how long Kafka keeps a transaction open whose canald is
	// gone, and so how long readers may stand still. Default 10 s.
	TransactionTimeout time.Duration `yaml:"transaction_timeout"`
	// BatchRecords and BatchBytes bound a Kafka transaction. Defaults 5,000 and 4 MiB.
	BatchRecords int   `yaml:"batch_records"`
	BatchBytes   Bytes `yaml:"batch_bytes"`
	// Linger is how long a Kafka transaction waits for more messages. Default 10 ms.
	Linger time.Duration `yaml:"linger"`
	// Memory bounds the bytes of messages read but not yet in Kafka. Default 32 MiB.
	Memory Bytes `yaml:"memory"`
	// SpoolDir keeps transactions above 16 MiB while they are read, and the messages of a
	// backfill until they are in Kafka. Default: the system's directory for temporary files.
	SpoolDir string `yaml:"spool_dir"`
	// SpoolBytes bounds each of the two files. Default 16 GiB.
	SpoolBytes Bytes `yaml:"spool_bytes"`
	// ServerID is the replication id by which canald reads the binlog; each reader of a
	// server needs its own. With several stores it is the first's by name, and the next
	// ones count up from it. Default: a random one for each connection.
	ServerID uint32 `yaml:"server_id"`
}

// StoreConfig is one store.
type StoreConfig struct {
	// DSN in the form user:password@tcp(host:port)/schema, or of several servers that replicate
	// each other, tcp(host:port,host:port), of which the one that accepts writes is read. The schema may hold other tables:
	// their changes are skipped.
	DSN string `yaml:"dsn"`
	// Role is notifyd's, "main" or "outbox-only", so that both programs can share a stores
	// section; every store is copied alike. Default "main".
	Role string `yaml:"role"`
}

// KafkaConfig says how to reach Kafka.
type KafkaConfig struct {
	// Brokers as host:port; at least one.
	Brokers []string `yaml:"brokers"`
	// AllowEmbedded allows the embedded broker, which is for development only.
	AllowEmbedded bool `yaml:"allow_embedded"`
	// ClientID names this program in Kafka's logs. Default "notify-mirror".
	ClientID string `yaml:"client_id"`
	// Access is TLS and account. Default: plain text, no account.
	Access access.Config `yaml:",inline"`
}

// Deps is what a Copier is given to work with.
type Deps struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Version is the program's, for logs.
	Version string
}

// TopicOverhead is what a topic's largest record may have beside its body.
const TopicOverhead = 64 << 10

// maxTopicBytes is the largest max.message.bytes that is made use of.
const maxTopicBytes = 64 << 20

var (
	plainName   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	topicPrefix = regexp.MustCompile(`^[A-Za-z0-9.-][A-Za-z0-9._-]{0,99}$`)
)

// WithDefaults is the configuration with every zero value replaced.
func (c Config) WithDefaults() Config {
	if c.ID == "" {
		c.ID = randomID()
	}
	setDefault(&c.Cluster, "notify")
	setDefault(&c.TopicPrefix, record.DefaultPrefix)
	setDefault(&c.Partitions, 8)
	setDefault(&c.ReplicationFactor, -1)
	setDefault(&c.MaxBodyBytes, 4<<20)
	setDefault(&c.TransactionTimeout, 10*time.Second)
	setDefault(&c.BatchRecords, 5000)
	setDefault(&c.BatchBytes, 4<<20)
	setDefault(&c.Linger, 10*time.Millisecond)
	setDefault(&c.Memory, 32<<20)
	setDefault(&c.SpoolBytes, 16<<30)
	setDefault(&c.Kafka.ClientID, "notify-mirror")
	return c
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// randomID is the host's name with eight random hex digits, so that no two runs share one.
func randomID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "canald"
	}
	host = strings.Map(func(r rune) rune {
		if plainName.MatchString(string(r)) {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%.48s-%08x", host, rand.Uint32())
}

// Check reports every problem of the configuration, by key and value, joined into one
// error. It does not connect anywhere.
func (c Config) Check() error {
	c = c.WithDefaults()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
	c.checkStores(bad)
	if len(c.Kafka.Brokers) == 0 {
		bad("kafka.brokers: empty; name at least one broker as host:port")
	}
	for _, problem := range c.Kafka.Access.Check() {
		bad("%v", problem)
	}
	if !plainName.MatchString(c.ID) {
		bad("id: %q; 1 to 64 bytes of letters, digits, '.', '_' and '-'", c.ID)
	}
	if !plainName.MatchString(c.Cluster) {
		bad("cluster: %q; 1 to 64 bytes of letters, digits, '.', '_' and '-'", c.Cluster)
	}
	if !topicPrefix.MatchString(c.TopicPrefix) {
		bad("topic_prefix: %q; 1 to 100 bytes of letters, digits, '.', '_' and '-', not beginning with '_'", c.TopicPrefix)
	}
	if c.Partitions < 1 || c.Partitions > 1000 {
		bad("partitions: %d; 1 to 1000", c.Partitions)
	}
	if c.ReplicationFactor < -1 {
		bad("replication_factor: %d; 1 or more, or -1 for the cluster's default", c.ReplicationFactor)
	}
	if c.MaxBodyBytes < 1 || c.MaxBodyBytes > maxTopicBytes-TopicOverhead {
		bad("max_body: %d; 1 byte to %d", c.MaxBodyBytes, maxTopicBytes-TopicOverhead)
	}
	if c.TransactionTimeout < time.Second || c.TransactionTimeout > 15*time.Minute {
		bad("transaction_timeout: %s; 1s to 15m", c.TransactionTimeout)
	}
	if c.BatchRecords < 1 || c.BatchBytes < 1 {
		bad("batch_records: %d, batch_bytes: %d; at least 1", c.BatchRecords, c.BatchBytes)
	}
	if c.Linger < 0 || c.Linger > c.TransactionTimeout/3 {
		bad("linger: %s; at most a third of transaction_timeout", c.Linger)
	}
	if c.Memory < 1<<20 {
		bad("memory: %d; at least 1MiB", c.Memory)
	}
	return errors.Join(problems...)
}

// checkStores reports the problems of the stores.
func (c Config) checkStores(bad func(format string, args ...any)) {
	if len(c.Stores) == 0 {
		bad("stores: none is given; name at least one")
	}
	seen := map[[2]string]string{}
	for _, name := range c.StoreNames() {
		store := c.Stores[name]
		if store.Role != "" && store.Role != "main" && store.Role != "outbox-only" {
			bad("stores.%s.role: %q; main or outbox-only", name, store.Role)
		}
		dsn, err := parseDSN(store.DSN)
		if err != nil {
			bad("stores.%s.dsn: %v", name, err)
			continue
		}
		for addr := range strings.SplitSeq(dsn.Addr, ",") {
			place := [2]string{addr, dsn.DBName}
			if first, twice := seen[place]; twice {
				bad("stores.%s.dsn: leads to schema %s at %s, as stores.%s.dsn does; name a store once", name, dsn.DBName, addr, first)
			}
			seen[place] = name
		}
	}
}

// StoreNames returns the names of the stores, sorted.
func (c Config) StoreNames() []string { return slices.Sorted(maps.Keys(c.Stores)) }

// serverID is the replication id for one of the stores; 0: a random one.
func (c Config) serverID(store string) uint32 {
	if c.ServerID == 0 {
		return 0
	}
	return c.ServerID + uint32(slices.Index(c.StoreNames(), store))
}

// Bytes is a size; in YAML a number, or a number with KiB, MiB or GiB.
type Bytes int64

// UnmarshalText reads the forms named at Bytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, shift := string(text), 0
	for unit, n := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			s, shift = strings.TrimSpace(number), n
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<(62-shift) {
		return fmt.Errorf("size %q: not a number of bytes, or a number with KiB, MiB or GiB", text)
	}
	*b = Bytes(n << shift)
	return nil
}
