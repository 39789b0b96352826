// Package limits tells what the mirror's topics take, so that a message which Kafka would
// refuse is refused at its publish. The real limits are read from Kafka every minute: they
// are the topics' own, whoever made them, and may be changed at any time.
//
// Not obvious:
//
//   - A topic that Kafka does not have is not limited here: the mirror makes it with room for
//     the largest body.
//   - While Kafka is away the last known limits count. Nobody waits for a reading.
//   - A limit that is lowered is known a minute later. What was published meanwhile waits in
//     the binlog until the limit is raised again; the mirror says so.
package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"

	"notifymirror/mirror/access"
	"notifymirror/mirror/record"
)

// Every is how often the limits are read.
const Every = time.Minute

// Config says where the mirror is.
type Config struct {
	// Brokers as host:port. Default none: nothing is limited.
	Brokers []string `yaml:"brokers"`
	// TopicPrefix is that of canald. Default "notify.".
	TopicPrefix string `yaml:"topic_prefix"`
	// Access is TLS and account. Default: plain text, no account.
	Access access.Config `yaml:",inline"`
}

// Reader knows the limits. Its methods may be called from several goroutines.
type Reader struct {
	config Config
	log    *slog.Logger
	every  time.Duration
	byName atomic.Pointer[map[string]int] // max.message.bytes by topic, as in the store
}

// New makes a Reader that knows nothing before Run.
func New(c Config, log *slog.Logger) *Reader {
	if c.TopicPrefix == "" {
		c.TopicPrefix = record.DefaultPrefix
	}
	r := &Reader{config: c, log: log, every: Every}
	r.byName.Store(&map[string]int{})
	return r
}

// Run reads the limits until ctx ends. Without brokers it does nothing.
func (r *Reader) Run(ctx context.Context) {
	if len(r.config.Brokers) == 0 {
		return
	}
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	away := false
	for {
		limits, err := r.read()
		switch {
		case err == nil:
			r.byName.Store(&limits)
			away = false
		case !away:
			away = true
			r.log.WarnContext(ctx, "limits of the mirror's topics not read, the last known ones count", slog.Any("err", err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A Message is what takes room in a record.
type Message struct {
	Topic, Key string
	Headers    map[string]string
	Body       []byte
}

// room is more than a record takes beside key, headers and body: its own headers with the
// longest values, and lengths.
const room = 2 << 10

// Fits returns the bytes that a message's record takes at most and what its topic takes; ok
// is false when the topic would refuse it.
func (r *Reader) Fits(m Message) (size, limit int, ok bool) {
	limit, known := (*r.byName.Load())[m.Topic]
	if !known {
		return 0, 0, true
	}
	about := room + len(m.Topic) + len(m.Key) + len(m.Body)
	for name, value := range m.Headers {
		about += len(name) + len(value) + 2*8
	}
	if about <= limit {
		return about, limit, true
	}
	size = sizeOf(m)
	return size, limit, size <= limit
}

// sizeOf is the largest that a message's record can become, in a batch of its own.
func sizeOf(m Message) int {
	return record.BatchOverhead + record.Size(record.Encode(record.Message{
		ID: uuid.Max, Topic: m.Topic, Key: []byte(m.Key), Headers: record.FromMap(m.Headers), Body: m.Body,
		BornAt: time.UnixMicro(math.MaxInt64), CommitTime: time.UnixMicro(math.MaxInt64),
		Source: record.Source{Store: uuid.Max.String(), Generation: math.MaxUint64}, Seq: math.MaxUint64,
	}))
}

// read asks Kafka for the limits of all topics of the mirror.
func (r *Reader) read() (limits map[string]int, err error) {
	config := sarama.NewConfig()
	config.ClientID = "notifyd-limits"
	config.Version = sarama.V2_8_0_0
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	config.Metadata.Retry.Max = 0
	config.Metadata.AllowAutoTopicCreation = false
	letIn, err := r.config.Access.Load()
	if err != nil {
		return nil, err
	}
	letIn(config)
	client, err := sarama.NewClient(r.config.Brokers, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	names, err := client.Topics()
	if err != nil {
		return nil, err
	}
	var asked []*sarama.ConfigResource
	for _, name := range names {
		if strings.HasPrefix(name, r.config.TopicPrefix) {
			asked = append(asked, &sarama.ConfigResource{Type: sarama.TopicResource, Name: name, ConfigNames: []string{"max.message.bytes"}})
		}
	}
	limits = make(map[string]int, len(asked))
	if len(asked) == 0 {
		return limits, nil
	}
	results, err := admin.DescribeConfigs(asked, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	for _, res := range results {
		if res.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf("kafka topic %s: settings: %w", res.Name, res.ErrorCode)
		}
		for _, e := range res.Configs {
			if n, err := strconv.Atoi(e.Value); err == nil && e.Name == "max.message.bytes" {
				limits[strings.TrimPrefix(res.Name, r.config.TopicPrefix)] = n
			}
		}
	}
	return limits, nil
}
