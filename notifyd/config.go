package notifyd

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/egress"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/webhook"
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
	// Stores by name; exactly one of them has the role main.
	Stores map[string]StoreConfig `yaml:"stores"`
	// AutoCreateTopics declares an unknown topic at its first publish.
	AutoCreateTopics bool `yaml:"auto_create_topics"`
	// MaxBodyBytes is the largest body. Default 4 MiB.
	MaxBodyBytes Bytes `yaml:"max_body"`
	// PublishMemory bounds the bytes of messages between arrival and COMMIT. Default 256 MiB.
	PublishMemory Bytes `yaml:"publish_memory"`
	// DeliveryMemory bounds the bytes of messages kept for delivery, over all shards; above it they are
	// paged from the store later. Each shard may always take a 64th of it, at least 1 MiB, however
	// full the others have made it. Default 256 MiB.
	DeliveryMemory Bytes `yaml:"delivery_memory"`
	// UnstoredMemory and UnstoredMessages bound what this broker holds of memory topics; above one of them they
	// are refused as overloaded, but one message of any size is always taken. Default 64 MiB and 100,000.
	UnstoredMemory   Bytes `yaml:"unstored_memory"`
	UnstoredMessages int   `yaml:"unstored_messages"`
	// AckWait is how long a delivery may stay unacknowledged. Default 5 s.
	AckWait Duration `yaml:"ack_wait"`
	// RetryMin and RetryMax bound the exponential backoff of redelivery. Default 1 s and 10 min.
	RetryMin Duration `yaml:"retry_min"`
	RetryMax Duration `yaml:"retry_max"`
	// MaxAttempts is how many attempts a delivery gets before it is a dead letter. Only those
	// that were sent to a consumer count. Default 500: with the default backoff four days of
	// failing, a long weekend.
	MaxAttempts int `yaml:"max_attempts"`
	// MaxAge is how old a message may be, since the store took it, when its delivery is
	// tried again; then the delivery is a dead letter. Default 0: any age.
	MaxAge Duration `yaml:"max_age"`
	// RedriveRate is how many dead letters a second are delivered again after a redrive, over
	// all shards of a store. Default 500.
	RedriveRate int `yaml:"redrive_rate"`
	// DedupWindow is how long an idempotency key is remembered. Default 24 h.
	DedupWindow Duration `yaml:"dedup_window"`
	// CheckAfter is when a half that nobody decided is asked about first; each further check
	// waits twice as long, up to CheckMax. Default 30 s and 10 min.
	CheckAfter Duration `yaml:"check_after"`
	CheckMax   Duration `yaml:"check_max"`
	// CheckBudget is how many times a half is asked about before it is parked. Default 15.
	CheckBudget int `yaml:"check_budget"`
	// EgressNetworks are networks (CIDR) beyond the public internet that callback URLs and
	// webhooks may lead to. Default none: loopback, private and other special addresses are refused.
	EgressNetworks []string `yaml:"egress_networks"`
	// SecretKeys seal the secrets of webhooks in the store: ID:KEY, KEY being base64 of 32
	// bytes. The first seals, all open. Default none: no webhook can be made.
	SecretKeys []string `yaml:"secret_keys"`
	// LeaseTime is how long a shard stays with an owner that does not renew. Default 6 s.
	LeaseTime Duration `yaml:"lease_time"`
}

// StoreConfig is one store.
type StoreConfig struct {
	// DSN in the form user:password@tcp(host:port)/schema, or of several servers that replicate
	// each other, tcp(host:port,host:port), of which the one that accepts writes is the store.
	DSN string `yaml:"dsn"`
	// Role is RoleMain or RoleOutboxOnly. Default RoleMain.
	Role string `yaml:"role"`
}

// Roles of stores.
const (
	// RoleMain is the store that takes what is published and prepared.
	RoleMain = "main"
	// RoleOutboxOnly is a store on an application's own database server: nothing comes into
	// it but what the application inserts into its outbox.
	RoleOutboxOnly = "outbox-only"
)

// Deps is what the broker is given to work with.
type Deps struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Version is the program's, for ListBrokers.
	Version string
	// Fits returns how many bytes a message takes in the mirror at most and how many its topic
	// there takes, and false when that is too few. It must not wait. Nil: everything fits.
	Fits func(*message.Message) (size, limit int, ok bool)
}

// Bytes is a size; in YAML a number, or a number with KiB, MiB or GiB.
type Bytes int64

// Duration is a time.Duration; in YAML in Go's form, such as 5s.
type Duration time.Duration

// Defaults of Config.
const (
	DefaultListen         = "127.0.0.1:7700"
	DefaultPublishMemory  = 256 << 20
	DefaultDeliveryMemory = 256 << 20
	DefaultUnstoredMemory = 64 << 20
	DefaultUnstoredCount  = 100_000
	DefaultAckWait        = 5 * time.Second
	DefaultRetryMin       = time.Second
	DefaultRetryMax       = 10 * time.Minute
	DefaultMaxAttempts    = 500
	DefaultRedriveRate    = 500
	DefaultDedupWindow    = 24 * time.Hour
	DefaultLeaseTime      = 6 * time.Second
	DefaultCheckAfter     = 30 * time.Second
	DefaultCheckMax       = 10 * time.Minute
	DefaultCheckBudget    = 15
)

// complete fills the defaults in and reports every problem at once.
func (c Config) complete() (Config, error) {
	fill := func(d *Duration, def time.Duration) {
		if *d == 0 {
			*d = Duration(def)
		}
	}
	size := func(b *Bytes, def int64) {
		if *b == 0 {
			*b = Bytes(def)
		}
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.ID == "" {
		c.ID = newBrokerID()
	}
	size(&c.MaxBodyBytes, message.DefaultMaxBodyBytes)
	size(&c.PublishMemory, DefaultPublishMemory)
	size(&c.DeliveryMemory, DefaultDeliveryMemory)
	size(&c.UnstoredMemory, DefaultUnstoredMemory)
	fill(&c.AckWait, DefaultAckWait)
	fill(&c.RetryMin, DefaultRetryMin)
	fill(&c.RetryMax, DefaultRetryMax)
	fill(&c.DedupWindow, DefaultDedupWindow)
	fill(&c.LeaseTime, DefaultLeaseTime)
	fill(&c.CheckAfter, DefaultCheckAfter)
	fill(&c.CheckMax, DefaultCheckMax)
	count := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	count(&c.CheckBudget, DefaultCheckBudget)
	count(&c.MaxAttempts, DefaultMaxAttempts)
	count(&c.RedriveRate, DefaultRedriveRate)
	count(&c.UnstoredMessages, DefaultUnstoredCount)
	return c, errors.Join(c.check()...)
}

func (c Config) check() (problems []error) {
	bad := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if !brokerID.MatchString(c.ID) {
		bad("id", "%q is not 1 to 64 bytes of [A-Za-z0-9._-]", c.ID)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen", "%q is not host:port", c.Listen)
	} else if !c.Insecure && !isLoopback(host) {
		bad("listen", "%s is not a loopback address and there is no authentication: listen on 127.0.0.1, or set insecure: true", c.Listen)
	}
	if c.Advertise != "" {
		if _, _, err := net.SplitHostPort(c.Advertise); err != nil {
			bad("advertise", "%q is not host:port", c.Advertise)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Stores)) {
		if r := c.Stores[name].Role; r != "" && r != RoleMain && r != RoleOutboxOnly {
			bad("stores."+name+".role", "%q is not %s or %s", r, RoleMain, RoleOutboxOnly)
		}
	}
	if n := len(c.Stores) - len(c.outboxStores()); n != 1 {
		bad("stores", "%d have the role main; this version works with exactly one, and any number with the role outbox-only", n)
	}
	if c.MaxBodyBytes > 64<<20 {
		bad("max_body", "%s is above 64MiB", c.MaxBodyBytes)
	}
	if c.PublishMemory < 2*c.MaxBodyBytes+64<<10 {
		bad("publish_memory", "%s is below twice max_body and 64KiB", c.PublishMemory)
	}
	if c.RetryMin > c.RetryMax {
		bad("retry_min", "%s is above retry_max, %s", time.Duration(c.RetryMin), time.Duration(c.RetryMax))
	}
	for key, d := range map[string]Duration{"ack_wait": c.AckWait, "retry_min": c.RetryMin} {
		if time.Duration(d) < 100*time.Millisecond {
			bad(key, "%s is below 100ms", time.Duration(d))
		}
	}
	for key, n := range map[string]int{"check_budget": c.CheckBudget, "max_attempts": c.MaxAttempts, "redrive_rate": c.RedriveRate, "unstored_messages": c.UnstoredMessages} {
		if n < 0 {
			bad(key, "%d is negative", n)
		}
	}
	if c.CheckAfter > c.CheckMax {
		bad("check_after", "%s is above check_max, %s", time.Duration(c.CheckAfter), time.Duration(c.CheckMax))
	}
	if _, err := egress.ParseNetworks(c.EgressNetworks); err != nil {
		bad("egress_networks", "%s", err)
	}
	if _, err := webhook.ParseRing(c.SecretKeys); err != nil {
		bad("secret_keys", "%s", err)
	}
	if time.Duration(c.LeaseTime) < time.Second {
		bad("lease_time", "%s is below 1s", time.Duration(c.LeaseTime))
	}
	return problems
}

var brokerID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// mainStore is the one store of that role.
func (c Config) mainStore() (name, dsn string) {
	for name, s := range c.Stores {
		if s.Role != RoleOutboxOnly {
			return name, s.DSN
		}
	}
	return "", ""
}

// outboxStores are the names of the stores with the role outbox-only, sorted.
func (c Config) outboxStores() (names []string) {
	for name, s := range c.Stores {
		if s.Role == RoleOutboxOnly {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// newBrokerID is the host's name with eight random hex digits, so that no two runs share one.
func newBrokerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "notifyd"
	}
	host = strings.Map(func(r rune) rune {
		if brokerID.MatchString(string(r)) {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%.48s-%08x", host, rand.Uint32())
}
