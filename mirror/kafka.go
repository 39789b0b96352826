package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// kafka is a connection to a Kafka cluster, for one run of a store's mirror. Its calls are
// bounded by the timeouts in saramaConfig; sarama takes no context.
type kafka struct {
	client  sarama.Client
	admin   sarama.ClusterAdmin
	closing *atomic.Bool
}

// saramaConfig is sarama's configuration. A wait that sarama makes inside is at most
// (attempts x timeout) long, so that a dead broker is noticed before the transaction
// times out a second time; once closing it pauses no more between attempts. d is nil but
// in tests.
func saramaConfig(c Config, transactionalID string, d dialer, closing *atomic.Bool) *sarama.Config {
	pause := func(backoff func(retries, most int) time.Duration) func(int, int) time.Duration {
		return func(retries, most int) time.Duration {
			if closing.Load() {
				return 0
			}
			return backoff(retries, most)
		}
	}
	s := sarama.NewConfig()
	s.ClientID = c.Kafka.ClientID
	s.Version = sarama.V2_8_0_0
	s.ChannelBufferSize = 1024
	s.Net.MaxOpenRequests = 1
	s.Net.DialTimeout = 3 * time.Second
	s.Net.ReadTimeout = c.TransactionTimeout
	s.Net.WriteTimeout = c.TransactionTimeout
	if d != nil {
		s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, d
	}
	s.Metadata.AllowAutoTopicCreation = false
	s.Metadata.Retry.Max = 2
	s.Metadata.Retry.BackoffFunc = pause(retryBackoff)
	s.Producer.Idempotent = true
	s.Producer.RequiredAcks = sarama.WaitForAll
	s.Producer.Partitioner = sarama.NewManualPartitioner
	s.Producer.Return.Successes = true
	s.Producer.Return.Errors = true
	s.Producer.Retry.Max = 3
	s.Producer.Retry.BackoffFunc = pause(retryBackoff)
	s.Producer.MaxMessageBytes = maxTopicBytes + TopicOverhead
	s.Producer.Transaction.ID = transactionalID
	s.Producer.Transaction.Timeout = c.TransactionTimeout
	s.Producer.Transaction.Retry.Max = 20
	s.Producer.Transaction.Retry.BackoffFunc = pause(transactionBackoff)
	s.Admin.Timeout = c.TransactionTimeout
	return s
}

// transactionBackoff is short at first: a broker answers CONCURRENT_TRANSACTIONS while it
// writes the markers of the transaction before, which takes a millisecond or two.
func transactionBackoff(retries, _ int) time.Duration {
	return min(2*time.Millisecond<<min(retries, 10), 250*time.Millisecond)
}

func retryBackoff(int, int) time.Duration { return 250 * time.Millisecond }

// dial connects; the caller closes.
func dial(c Config, transactionalID string, d dialer) (*kafka, error) {
	closing := new(atomic.Bool)
	client, err := sarama.NewClient(c.Kafka.Brokers, saramaConfig(c, transactionalID, d, closing))
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(c.Kafka.Brokers, ","), err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kafka %s: %w", strings.Join(c.Kafka.Brokers, ","), err), client.Close())
	}
	return &kafka{client: client, admin: admin, closing: closing}, nil
}

func (k *kafka) close() error {
	k.closing.Store(true)
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

// describe returns the topics of these names that exist; of all, when names is empty.
func (k *kafka) describe(names ...string) (map[string]topicInfo, error) {
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		return nil, sarama.ErrOutOfBrokers
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, names))
	if err != nil {
		_ = broker.Close() // a broken connection would be handed out again
		return nil, fmt.Errorf("kafka metadata: %w", err)
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
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		return "", sarama.ErrOutOfBrokers
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.V2_8_0_0, []string{}))
	if err != nil {
		_ = broker.Close()
		return "", fmt.Errorf("kafka metadata: %w", err)
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
			return fmt.Errorf("kafka topic %s: not every partition has a leader: %w", name, errors.Join(ctx.Err(), err))
		}
	}
}

// config returns the settings of a topic that are in force, by name.
func (k *kafka) config(name string) (map[string]string, error) {
	results, err := k.admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: name, ConfigNames: []string{"max.message.bytes", "cleanup.policy"},
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
	settings, err := k.config(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(settings["max.message.bytes"])
	if err != nil {
		return 0, fmt.Errorf("kafka topic %s: max.message.bytes: %w", name, err)
	}
	return min(n, maxTopicBytes), nil
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
