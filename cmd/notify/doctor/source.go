package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"notifymirror/cmd/daemon"
	"notifymirror/cmd/notify/dev"
	"notifymirror/mirror"
	"notifymirror/mirror/limits"
	"notifymirror/mirror/record"
	"notifymirror/notifyd"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema/preflight"
)

// Where notifyd and canald listen for operators unless told otherwise.
const (
	brokerOps = "127.0.0.1:7701"
	mirrorOps = "127.0.0.1:7711"
)

// brokerFile and mirrorFile are the daemons' configurations.
type (
	brokerFile struct {
		Broker          notifyd.Config `yaml:",inline"`
		Kafka           limits.Config  `yaml:"kafka"`
		daemon.Settings `yaml:",inline"`
	}
	mirrorFile struct {
		Mirror          mirror.Config `yaml:",inline"`
		daemon.Settings `yaml:",inline"`
	}
)

// FromFiles is what the daemons' configurations name; one of the two paths may be empty.
// environ is the daemons' environment, as os.Environ gives it. The error says everything
// that does not parse.
func FromFiles(notifydPath, canaldPath string, environ []string) (t Target, err error) {
	if notifydPath != "" {
		var f brokerFile
		if err := daemon.Load(notifydPath, environ, &f); err != nil {
			return t, err
		}
		t.addBroker(f)
	}
	if canaldPath != "" {
		var f mirrorFile
		if err := daemon.Load(canaldPath, environ, &f); err != nil {
			return t, err
		}
		if err := f.Mirror.Check(); err != nil {
			return t, daemon.WithExitCode(daemon.ExitUsage, err)
		}
		t.addMirror(f)
	}
	return t, nil
}

func (t *Target) addBroker(f brokerFile) {
	for _, name := range slices.Sorted(maps.Keys(f.Broker.Stores)) {
		t.Stores = append(t.Stores, Store{DSN: f.Broker.Stores[name].DSN, Role: preflight.Broker, MaxBody: int64(f.Broker.MaxBodyBytes)})
	}
	t.Daemons = append(t.Daemons, Daemon{"notifyd", cmp.Or(f.OpsListen, brokerOps)})
}

func (t *Target) addMirror(f mirrorFile) {
	c := f.Mirror.WithDefaults()
	taken := int64(message.DefaultMaxBodyBytes)
	for _, s := range t.Stores {
		taken = max(taken, s.MaxBody)
	}
	if own := int64(c.MaxBodyBytes); len(t.Stores) > 0 && own < taken {
		t.Said = append(t.Said, finding.Finding{Severity: finding.Warning, Subject: fmt.Sprintf("max_body is %d for notifyd and %d for canald", taken, own),
			Why: "so topics are made without room for the largest messages", Mend: byHand("set max_body of canald to %d", taken)})
	}
	for _, name := range c.StoreNames() {
		t.Stores = append(t.Stores, Store{DSN: c.Stores[name].DSN, Role: preflight.Mirror, MaxBody: int64(c.MaxBodyBytes)})
	}
	t.Kafka = &Kafka{Brokers: c.Kafka.Brokers, TopicPrefix: c.TopicPrefix, MaxBody: max(taken, int64(c.MaxBodyBytes)),
		TransactionTimeout: c.TransactionTimeout, AllowEmbedded: c.Kafka.AllowEmbedded, Access: c.Kafka.Access}
	t.Daemons = append(t.Daemons, Daemon{"canald", cmp.Or(f.OpsListen, mirrorOps)})
	t.Disks = append(t.Disks, Disk{Path: cmp.Or(c.SpoolDir, os.TempDir()), Need: uint64(c.SpoolBytes) * uint64(len(c.Stores)), For: "spool_bytes of every store"})
}

// FromAddresses is stores and a Kafka named on the command line; it may have no brokers.
func FromAddresses(dsns []string, kafka mirror.KafkaConfig) (t Target) {
	for _, d := range dsns {
		t.Stores = append(t.Stores, Store{DSN: d, Role: preflight.Broker})
	}
	if len(kafka.Brokers) > 0 {
		t.Kafka = &Kafka{Brokers: kafka.Brokers, Access: kafka.Access, TopicPrefix: record.DefaultPrefix, MaxBody: message.DefaultMaxBodyBytes,
			TransactionTimeout: mirror.Config{}.WithDefaults().TransactionTimeout, AllowEmbedded: true}
	}
	return t
}

// FromDev is the stack of notify dev.
func FromDev(a dev.Addresses) Target {
	t := FromAddresses([]string{a.DSN}, mirror.KafkaConfig{Brokers: []string{a.Kafka}})
	t.Stores = append(t.Stores, Store{DSN: a.DSN, Role: preflight.Mirror})
	t.Daemons = []Daemon{{"notifyd", a.BrokerOps}, {"canald", a.MirrorOps}}
	t.Disks = []Disk{{Path: a.Dir, Need: roomForData, For: "everything that notify dev keeps"}}
	return t
}
