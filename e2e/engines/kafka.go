package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/child"
)

// The environment of a test run on real engines, which `make test-engines` sets.
const (
	// EnvKafka is the host:port of a broker that runs and is shared by all tests.
	EnvKafka = "NOTIFY_TEST_KAFKA"
	// EnvKafkaJars is the directory of the jars, for tests that start a broker of their own
	// to kill it.
	EnvKafkaJars = "NOTIFY_TEST_KAFKA_JARS"
)

const host = "127.0.0.1"

// KafkaConfig says which broker runs where.
type KafkaConfig struct {
	// Jars is the directory that deploy/install/kafka.sh prints.
	Jars string
	// Dir holds the broker's data, configuration and log, and is made when missing.
	Dir string
	// Port on 127.0.0.1. Default: a free one, kept over Restart.
	Port int
	// Settings are added to server.properties and override ours.
	Settings map[string]string
	// Secure is a second listener, with TLS and accounts. Default: none. Whoever comes by the
	// first one is ANONYMOUS.
	Secure *Secure
	// StartTimeout bounds StartKafka and Restart. Default 3 min.
	StartTimeout time.Duration
}

// Secure is a listener with TLS, and accounts of SCRAM-SHA-512, which have to prove who they are every
// two seconds.
type Secure struct {
	// Port on 127.0.0.1.
	Port int
	// Keys is a PEM file with the private key (PKCS 8) and the certificate.
	Keys string
}

// Addr is the listener's host:port.
func (s *Secure) Addr() string { return net.JoinHostPort(host, strconv.Itoa(s.Port)) }

// settings are those of the broker, which also has the listeners given.
func (s *Secure) settings(p map[string]string) {
	p["listeners"] += ",SECURE://" + s.Addr()
	p["advertised.listeners"] += ",SECURE://" + s.Addr()
	p["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
	for key, value := range map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": s.Keys,
		"sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"connections.max.reauth.ms":      "2000",
		"scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
	} {
		p["listener.name.secure."+key] = value
	}
}

// Kafka is a broker that was started. Its methods may be called from several goroutines.
type Kafka struct {
	config     KafkaConfig
	node       int // 1 is the controller, too
	controller int // its port

	mu   sync.Mutex
	proc *child.Process
}

// StartKafka formats the directory if it is new, starts the broker and returns when it
// answers. ctx bounds the start only.
func StartKafka(ctx context.Context, c KafkaConfig) (*Kafka, error) {
	controller, err := embedded.FreePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, c, 1, controller)
}

// Join starts the second broker of k's cluster, as StartKafka does the first. k is the
// controller and must live on.
func (k *Kafka) Join(ctx context.Context, c KafkaConfig) (*Kafka, error) {
	return start(ctx, c, 2, k.controller)
}

func start(ctx context.Context, c KafkaConfig, node, controller int) (*Kafka, error) {
	if c.Jars == "" || c.Dir == "" {
		return nil, errors.New("kafka: Jars and Dir are needed")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("kafka directory: %w", err)
	}
	c.Dir = dir
	if c.Port == 0 {
		if c.Port, err = embedded.FreePort(); err != nil {
			return nil, err
		}
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 3 * time.Minute
	}
	k := &Kafka{config: c, node: node, controller: controller}
	if err := k.Restart(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// Restart starts the broker again after Stop, Kill or its own death, on the same port.
func (k *Kafka) Restart(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proc != nil && !k.proc.Ended() {
		return errors.New("kafka is running")
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.StartTimeout)
	defer cancel()
	if err := os.MkdirAll(k.config.Dir, 0o700); err != nil {
		return fmt.Errorf("kafka directory: %w", err)
	}
	log, err := os.OpenFile(k.LogPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("kafka directory: %w", err)
	}
	defer log.Close()
	if err := k.format(ctx, log); err != nil {
		return err
	}
	proc, err := k.java(log, "kafka.Kafka", k.path("server.properties"))
	if err != nil {
		return err
	}
	if err := k.waitReady(ctx, proc); err != nil {
		proc.Kill()
		return fmt.Errorf("kafka start: %w (see %s)", err, k.LogPath())
	}
	k.proc = proc
	return nil
}

// format writes the configuration, and makes the log directory whole or not at all.
func (k *Kafka) format(ctx context.Context, log *os.File) error {
	if err := k.writeProperties("server.properties", k.path("data")); err != nil {
		return err
	}
	if _, err := os.Stat(k.path("data")); err == nil {
		return nil
	}
	if err := os.RemoveAll(k.path("data.new")); err != nil {
		return fmt.Errorf("kafka directory: %w", err)
	}
	if err := k.writeProperties("format.properties", k.path("data.new")); err != nil {
		return err
	}
	proc, err := k.java(log, "kafka.tools.StorageTool", "format", "--cluster-id", clusterID, "--config", k.path("format.properties"))
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
	}
	if err := proc.Err(); err != nil {
		return fmt.Errorf("kafka format: %w (see %s)", err, k.LogPath())
	}
	return os.Rename(k.path("data.new"), k.path("data"))
}

// clusterID is any base64 UUID.
const clusterID = "bm90aWZ5LW1pcnJvci10MQ"

// java runs a class of the broker's jars. The flags favour a quick start in little memory.
func (k *Kafka) java(log *os.File, class string, args ...string) (*child.Process, error) {
	args = append([]string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.apache.logging.log4j.level=WARN",
		"-cp", filepath.Join(k.config.Jars, "*"), class,
	}, args...)
	return child.Start(child.Config{Path: "java", Args: args, Output: log})
}

func (k *Kafka) writeProperties(name, dataDir string) error {
	var b strings.Builder
	for key, value := range k.properties(dataDir) {
		fmt.Fprintf(&b, "%s=%s\n", key, value)
	}
	if err := os.WriteFile(k.path(name), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("kafka directory: %w", err)
	}
	return nil
}

func (k *Kafka) properties(dataDir string) map[string]string {
	controller := net.JoinHostPort(host, strconv.Itoa(k.controller))
	p := map[string]string{
		"process.roles":                                    "broker",
		"node.id":                                          strconv.Itoa(k.node),
		"controller.quorum.voters":                         "1@" + controller,
		"listeners":                                        "BROKER://" + k.Addr(),
		"advertised.listeners":                             "BROKER://" + k.Addr(),
		"listener.security.protocol.map":                   "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":                       "BROKER",
		"controller.listener.names":                        "CONTROLLER",
		"log.dirs":                                         dataDir,
		"auto.create.topics.enable":                        "false",
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "1000",
		"broker.session.timeout.ms":                        "2000",
		"broker.heartbeat.interval.ms":                     "500",
		"log.cleaner.dedupe.buffer.size":                   strconv.Itoa(16 << 20),
		// So that a transaction whose producer is gone ends when its timeout does.
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
	}
	if k.node == 1 {
		p["process.roles"] = "broker,controller"
		p["listeners"] += ",CONTROLLER://" + controller
	}
	if k.config.Secure != nil {
		k.config.Secure.settings(p)
	}
	for key, value := range k.config.Settings {
		p[key] = value
	}
	return p
}

// waitReady returns nil when every partition has a leader, else when the broker or ctx has
// ended. After a kill that takes until the controller lets the broker in again.
func (k *Kafka) waitReady(ctx context.Context, proc *child.Process) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := led(ctx, kadm.NewClient(client))
		if err == nil {
			return nil
		}
		select {
		case <-proc.Done():
			return fmt.Errorf("it ended: %w", proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// led returns nil when there is a broker, and a leader for every partition.
func led(ctx context.Context, admin *kadm.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	metadata, err := admin.Metadata(ctx)
	if err != nil {
		return err
	}
	if len(metadata.Brokers) == 0 {
		return errors.New("no broker is registered")
	}
	for topic, detail := range metadata.Topics {
		for number, partition := range detail.Partitions {
			if partition.Leader < 0 || partition.Err != nil {
				return fmt.Errorf("partition %s/%d has no leader: %w", topic, number, partition.Err)
			}
		}
	}
	return nil
}

// Stop lets the broker end in order; when ctx ends first it is killed.
func (k *Kafka) Stop(ctx context.Context) error {
	proc := k.current()
	proc.Signal(syscall.SIGTERM)
	select {
	case <-proc.Done():
		return nil
	case <-ctx.Done():
		proc.Kill()
		return fmt.Errorf("kafka stop: killed: %w", ctx.Err())
	}
}

// Kill ends the broker with SIGKILL and returns when it is gone.
func (k *Kafka) Kill() { k.current().Kill() }

// Done is closed when the broker that now runs has ended.
func (k *Kafka) Done() <-chan struct{} { return k.current().Done() }

// PID is the broker's process id, for signals in tests.
func (k *Kafka) PID() int { return k.current().PID() }

// Addr is the broker's host:port.
func (k *Kafka) Addr() string { return net.JoinHostPort(host, strconv.Itoa(k.config.Port)) }

// LogPath is the file that holds what the broker says.
func (k *Kafka) LogPath() string { return k.path("kafka.log") }

func (k *Kafka) path(name string) string { return filepath.Join(k.config.Dir, name) }

func (k *Kafka) current() *child.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc
}
