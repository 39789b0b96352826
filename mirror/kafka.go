package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
	"notifymirror/mirror/transact"
)

// kafka is a connection to a Kafka cluster, for one run of a store's mirror. Its calls are
// bounded by the timeouts in saramaConfig; sarama takes no context.
type kafka struct {
	client          sarama.Client
	admin           sarama.ClusterAdmin
	conns           *transact.Cutter
	transactionalID string
}

// saramaConfig is sarama's configuration. A wait that sarama makes inside is at most
// (attempts x timeout) long, so that a dead broker is noticed before the transaction
// times out a second time; once its connections have ended it pauses no more between attempts.
// The error is one of the files of c.Kafka.Access.
func saramaConfig(c Config, conns *transact.Cutter) (*sarama.Config, error) {
	letIn, err := c.Kafka.Access.Load()
	if err != nil {
		return nil, err
	}
	s := sarama.NewConfig()
	letIn(s)
	s.ClientID = c.Kafka.ClientID
	s.Version = sarama.V2_8_0_0
	s.Net.ReadTimeout = c.TransactionTimeout
	s.Net.WriteTimeout = c.TransactionTimeout
	s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, conns
	s.Metadata.AllowAutoTopicCreation = false
	s.Metadata.Retry.Max = 2
	s.Metadata.Retry.BackoffFunc = func(int, int) time.Duration {
		if conns.Ended() {
			return 0
		}
		return retryPause
	}
	s.Admin.Timeout = c.TransactionTimeout
	return s, nil
}

// retryPause is how long a question to Kafka waits for another try.
const retryPause = 250 * time.Millisecond

// dial connects; the caller closes. d is nil but in tests.
func dial(c Config, transactionalID string, d transact.Dialer) (*kafka, error) {
	conns := transact.NewCutter(d, 3*time.Second)
	config, err := saramaConfig(c, conns)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(c.Kafka.Brokers, config)
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(c.Kafka.Brokers, ","), err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kafka %s: %w", strings.Join(c.Kafka.Brokers, ","), err), client.Close())
	}
	return &kafka{client: client, admin: admin, conns: conns, transactionalID: transactionalID}, nil
}

// close ends every connection, and with it what waits for an answer.
func (k *kafka) close() error {
	k.conns.End()
	if err := k.client.Close(); err != nil {
		return fmt.Errorf("kafka: close: %w", err)
	}
	return nil
}

// topicInfo is a topic as Kafka knows it.
type topicInfo struct {
	id         string
	partitions int32
}

// metadata asks a broker for the cluster, and topics of these names; for all, when names is nil.
func (k *kafka) metadata(names []string) (*sarama.MetadataResponse, error) {
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		return nil, sarama.ErrOutOfBrokers
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, names))
	if err != nil {
		_ = broker.Close() // a broken connection would be handed out again
		return nil, fmt.Errorf("kafka metadata: %w", err)
	}
	return res, nil
}

// describe returns the topics of these names that exist; of all, when names is empty.
func (k *kafka) describe(names ...string) (map[string]topicInfo, error) {
	res, err := k.metadata(names)
	if err != nil {
		return nil, err
	}
	infos := make(map[string]topicInfo, len(res.Topics))
	for _, t := range res.Topics {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition):
		case t.Err != sarama.ErrNoError:
			return nil, fmt.Errorf("kafka topic %s: %w", t.Name, t.Err)
		default:
			infos[t.Name] = topicInfo{id: t.Uuid.String(), partitions: int32(len(t.Partitions))}
		}
	}
	return infos, nil
}

// clusterID is the id that the cluster gives itself.
func (k *kafka) clusterID() (string, error) {
	res, err := k.metadata([]string{})
	if err != nil {
		return "", err
	}
	if res.ClusterID == nil {
		return "", nil
	}
	return *res.ClusterID, nil
}

// create makes a topic and waits until it can be written; one that exists, also since a
// moment ago, is left as it is, with the partitions that it has.
func (k *kafka) create(ctx context.Context, name string, partitions int32, replication int16, config map[string]string) error {
	entries := make(map[string]*string, len(config))
	for key, value := range config {
		entries[key] = &value
	}
	err := k.admin.CreateTopic(name, &sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: replication, ConfigEntries: entries,
	}, false)
	switch {
	case errors.Is(err, sarama.ErrTopicAlreadyExists):
		partitions = 1 // at least
	case err != nil:
		return fmt.Errorf("kafka topic %s: create: %w", name, err)
	}
	return k.awaitLeaders(ctx, name, partitions)
}

// errNoLeader is a topic that cannot be written whole.
var errNoLeader = errors.New("not every partition has a leader")

// awaitLeaders waits until a topic has as many partitions at least, and each has a leader.
func (k *kafka) awaitLeaders(ctx context.Context, name string, least int32) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := k.client.RefreshMetadata(name)
		if err == nil {
			var all, led []int32
			if all, err = k.client.Partitions(name); err == nil {
				led, err = k.client.WritablePartitions(name)
			}
			if err == nil && len(all) >= int(least) && len(led) == len(all) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("kafka topic %s: %w: %w", name, errNoLeader, errors.Join(ctx.Err(), err))
		}
	}
}

// config returns the settings of a topic that are in force, by name.
func (k *kafka) config(name string) (map[string]string, error) {
	results, err := k.admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: name, ConfigNames: []string{"max.message.bytes", "cleanup.policy", "min.insync.replicas"},
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafka topic %s: settings: %w", name, err)
	}
	settings := map[string]string{}
	for _, r := range results {
		if r.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf("kafka topic %s: settings: %w", name, r.ErrorCode)
		}
		for _, e := range r.Configs {
			settings[e.Name] = e.Value
		}
	}
	return settings, nil
}

// messageLimit is a topic's max.message.bytes.
func (k *kafka) messageLimit(name string) (int, error) {
	n, err := k.number(name, "max.message.bytes")
	return min(n, maxTopicBytes), err
}

// number is a setting of a topic.
func (k *kafka) number(topic, setting string) (int, error) {
	settings, err := k.config(topic)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(settings[setting])
	if err != nil {
		return 0, fmt.Errorf("kafka topic %s: %s: %w", topic, setting, err)
	}
	return n, nil
}

// compacted tells whether a cleanup.policy is compact and nothing else.
func compacted(policy string) bool {
	return slices.Equal(strings.Split(policy, ","), []string{"compact"})
}

// headersOf is the headers of a record as plain bytes.
func headersOf(r *sarama.Record) []record.KafkaHeader {
	hs := make([]record.KafkaHeader, len(r.Headers))
	for i, h := range r.Headers {
		hs[i] = record.KafkaHeader{Key: h.Key, Value: h.Value}
	}
	return hs
}
