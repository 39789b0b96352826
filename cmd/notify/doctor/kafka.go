package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror/access"
	"notifymirror/notifyd/finding"
)

// Kafka is the mirror's Kafka and what is asked of it.
type Kafka struct {
	Brokers     []string
	TopicPrefix string
	// MaxBody is the largest body of a message in bytes.
	MaxBody            int64
	TransactionTimeout time.Duration
	// AllowEmbedded says that the embedded Kafka is meant.
	AllowEmbedded bool
	Access        access.Config
}

// answers are what a Kafka says of itself.
type answers struct {
	cluster string
	brokers []broker
	topics  []topic
	// Those whose settings may not be read.
	deniedBrokers, deniedTopics []string
}

// broker is one of the cluster's.
type broker struct {
	id       int32
	versions map[int16]int16 // the newest version of each kind of request
	settings map[string]string
}

// topic is one of the mirror's.
type topic struct {
	name       string
	partitions int
	// replicas is the smallest replication factor of its partitions, inSync the smallest number
	// of replicas in sync, leaderless how many partitions cannot be used.
	replicas, inSync, leaderless int
	settings                     map[string]string
}

// check asks Kafka and applies the rules.
func (k Kafka) check(ctx context.Context) []finding.Finding {
	at := strings.Join(k.Brokers, ",")
	a, err := k.ask(ctx)
	if err != nil {
		return []finding.Finding{k.notIn(at, err)}
	}
	return k.judge(a)
}

// judge applies the rules. It is pure.
func (k Kafka) judge(a answers) []finding.Finding {
	r := &ruler{kafka: k, at: strings.Join(k.Brokers, ","), answers: a}
	r.whole()
	for _, b := range a.brokers {
		r.broker(b)
	}
	for _, t := range a.topics {
		r.topic(t)
	}
	return r.found
}

// ruler applies rules to what a Kafka answered.
type ruler struct {
	kafka   Kafka
	at      string // its addresses
	answers answers
	found   []finding.Finding
}

func (r *ruler) say(severity finding.Severity, subject, why string, mend finding.Mend) {
	f := finding.Finding{Severity: severity, Subject: subject, Why: why, Mend: mend}
	if severity == finding.Error {
		f.Exit = daemon.ExitFailed
	}
	r.found = append(r.found, f)
}

// notIn is what a Kafka says that was not asked anything.
func (k Kafka) notIn(at string, err error) finding.Finding {
	f := finding.Finding{Severity: finding.Error, Exit: daemon.ExitUnreachable, Subject: "no Kafka at " + at,
		Why: strings.Join(strings.Fields(err.Error()), " "), Mend: byHand("start Kafka, or correct kafka.brokers")}
	mend, denied := access.Mend(err)
	if denied {
		f.Exit, f.Subject = daemon.ExitDenied, "Kafka at "+at+" lets nobody in with what kafka.tls and kafka.sasl say"
	}
	if mend != "" {
		f.Mend = byHand("%s", mend)
	}
	return f
}

// ask reads what the rules need.
func (k Kafka) ask(ctx context.Context) (a answers, err error) {
	letIn, err := k.Access.Load()
	if err != nil {
		return a, err
	}
	config := sarama.NewConfig()
	letIn(config)
	config.ClientID = "notify-doctor"
	config.Version = sarama.V2_8_0_0
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	config.Metadata.Retry.Max = 0
	config.Metadata.AllowAutoTopicCreation = false
	client, err := sarama.NewClient(k.Brokers, config)
	if err != nil {
		return a, err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return a, err
	}
	if err := k.askBrokers(client, admin, &a); err != nil {
		return a, err
	}
	if err := ctx.Err(); err != nil {
		return a, err
	}
	return a, k.askTopics(client, admin, &a)
}

// askBrokers asks each broker for what it speaks and its settings.
func (k Kafka) askBrokers(client sarama.Client, admin sarama.ClusterAdmin, a *answers) error {
	for _, b := range client.Brokers() {
		if err := b.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
			return err
		}
		spoken, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
		if err != nil {
			return fmt.Errorf("broker %d: %w", b.ID(), err)
		}
		one := broker{id: b.ID(), versions: map[int16]int16{}}
		for _, v := range spoken.ApiKeys {
			one.versions[v.ApiKey] = v.MaxVersion
		}
		name := fmt.Sprint(b.ID())
		if one.settings, err = settings(admin, sarama.BrokerResource, name); err != nil {
			a.deniedBrokers = append(a.deniedBrokers, name)
		}
		a.brokers = append(a.brokers, one)
	}
	return nil
}

// askTopics describes the mirror's topics.
func (k Kafka) askTopics(client sarama.Client, admin sarama.ClusterAdmin, a *answers) error {
	any := client.LeastLoadedBroker()
	if any == nil {
		return sarama.ErrOutOfBrokers
	}
	res, err := any.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, nil))
	if err != nil {
		return err
	}
	if res.ClusterID != nil {
		a.cluster = *res.ClusterID
	}
	for _, t := range res.Topics {
		if !strings.HasPrefix(t.Name, k.TopicPrefix) && !isCheckpoint(t.Name) {
			continue
		}
		one := topic{name: t.Name, partitions: len(t.Partitions), replicas: 1 << 15, inSync: 1 << 15}
		for _, p := range t.Partitions {
			one.replicas, one.inSync = min(one.replicas, len(p.Replicas)), min(one.inSync, len(p.Isr))
			if p.Leader < 0 {
				one.leaderless++
			}
		}
		if one.settings, err = settings(admin, sarama.TopicResource, t.Name); err != nil {
			a.deniedTopics = append(a.deniedTopics, t.Name)
		}
		a.topics = append(a.topics, one)
	}
	return nil
}

func settings(admin sarama.ClusterAdmin, kind sarama.ConfigResourceType, name string) (map[string]string, error) {
	results, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: kind, Name: name}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, r := range results {
		if r.ErrorCode != sarama.ErrNoError {
			return nil, r.ErrorCode
		}
		for _, e := range r.Configs {
			all[e.Name] = e.Value
		}
	}
	return all, nil
}

// isCheckpoint tells whether a topic has a store's checkpoint.
func isCheckpoint(topic string) bool { return strings.HasPrefix(topic, "_notify-checkpoint.") }
