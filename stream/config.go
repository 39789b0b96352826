package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/mirror/access"
)

// Config is a consumer's configuration. Brokers and Topics must be given; the zero
// value of every other field is its default.
type Config struct {
	// Brokers are host:port of some of Kafka's brokers; the others are found.
	Brokers []string
	// Topics are notify's names.
	Topics []string
	// Prefix is the mirror's. Default record.DefaultPrefix.
	Prefix string
	// Group is the consumer group: its members share the partitions, and it remembers
	// how far each is handled. With an End it has no members and only remembers; see End.
	// Default: no group; the consumer reads the partitions assigned to it, and nothing is
	// remembered.
	Group string
	// Partitions to read without a group; then Topics must be one topic. Default: all
	// that there are at the start.
	Partitions []int32
	// Start is where a partition begins for which the group remembers nothing, or where
	// every partition begins without a group. Default Oldest. A partition that a topic
	// got later than the group begins at its oldest record, whatever Start is.
	Start Position
	// Gone is what is done when records that were to be read are not in the log any
	// more. Default StopWhenGone.
	Gone GonePolicy
	// End is where reading ends, as it is at the start. Run returns when each partition is
	// handled up to it. With a Group, a Run that was ended before, in whatever way, is gone on
	// with: at what was handled, and to the end that the first one found, whatever Start and
	// End are now. When the end is reached the group is deleted, and forgets it. It is one
	// process that reads all partitions then; nothing keeps a second one from reading the
	// same. Default: it never ends.
	End Position
	// Speed is at which factor of their original speed the records come, by their commit
	// times: 1 as they once came, 60 an hour in a minute. A batch comes when its first
	// record is due. Not with a group that has no End. Default: as fast as they can be read.
	Speed float64
	// ReadUncommitted reads records of open and aborted transactions too, without
	// waiting for the mirror's commit; repeats are dropped by source and seq, as far as
	// this consumer has read a partition without a break: after a restart or a rebalance the
	// repeat of a record that was handled before may come. Records of
	// a transaction that is never committed are seen as well. Default: committed ones only.
	ReadUncommitted bool
	// SkipForeign passes over records that the mirror did not write. Default: they go to
	// RejectTopic or, without one, stop the consumer with record.ErrNotMirrored.
	SkipForeign bool
	// Handler handles one record; see Run. The record's key and body are its own. JSON
	// and Proto make one of a function that takes the decoded body too.
	Handler func(context.Context, Record) error
	// BatchHandler handles some records of one partition, in order, instead of Handler;
	// see Run. The slice is the handler's until it returns.
	BatchHandler func(context.Context, []Record) error
	// BatchRecords is how many records a batch has at most, and BatchWait how long it is
	// collected at most after its first one. Together its bodies have no more than
	// FetchBytes, unless one alone has. Default 500 records, 20 ms.
	BatchRecords int
	BatchWait    time.Duration
	// RejectTopic is where rejected records go: the name in Kafka of a topic that exists,
	// with nothing added to it. Default: none, and a Reject stops the consumer.
	RejectTopic string
	// StopTimeout is what the record in hand gets before its context ends, when the
	// consumer stops or a partition goes to another member. Default 10 s.
	StopTimeout time.Duration
	// CommitInterval is how often handled offsets are committed; they are at each stop
	// as well. Default 1 s.
	CommitInterval time.Duration
	// SessionTimeout is how long a member of a group may be silent before its partitions
	// go to another; Kafka bounds it to 6 s to 5 min unless configured. Default 10 s.
	SessionTimeout time.Duration
	// FetchBytes bounds what one fetch reads ahead of the handler, per partition; one batch
	// larger than that is read all the same. Up to 16 records of earlier fetches may wait
	// beside it. Default 1 MiB.
	FetchBytes int32
	// LagInterval is how often lag is measured. Default 5 s.
	LagInterval time.Duration
	// Access is TLS and account. Default: plain text, no account.
	Access access.Config
	// Client changes the client's configuration before it is used: timeouts, client id.
	// What this package promises is set after it.
	Client func(*sarama.Config)
	// Logger takes changes of state. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: there are none.
	Registerer prometheus.Registerer

	letIn access.Setup // of Access
}

// withDefaults checks the configuration, reports all that is wrong with it at once, and
// fills in the defaults.
func (cfg Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New("stream: "+text))
		}
	}
	wrong(len(cfg.Brokers) == 0, "Brokers: none is given")
	wrong(len(cfg.Topics) == 0, "Topics: none is given")
	wrong(len(cfg.Partitions) > 0 && cfg.Group != "", "Partitions: a group assigns them; give one of the two")
	wrong(len(cfg.Partitions) > 0 && len(cfg.Topics) != 1, "Partitions: they need exactly one topic")
	wrong(cfg.End.Before(cfg.Start), "End: before Start")
	wrong(!(cfg.Speed >= 0), "Speed: must be above 0")
	wrong(cfg.Speed > 0 && cfg.Group != "" && cfg.End.kind == unset, "Speed: not with a group, unless there is an End")
	wrong(cfg.Handler != nil && cfg.BatchHandler != nil, "BatchHandler: Handler is given too; give one of the two")
	wrong(cfg.StopTimeout < 0 || cfg.CommitInterval < 0 || cfg.SessionTimeout < 0 || cfg.LagInterval < 0 || cfg.FetchBytes < 0 ||
		cfg.BatchRecords < 0 || cfg.BatchWait < 0, "a negative duration or size")
	letIn, err := cfg.Access.Load()
	wrong(err != nil, fmt.Sprintf("Access: %v", err))
	if err := errors.Join(errs...); err != nil {
		return cfg, err
	}
	cfg.letIn = letIn
	cfg.StopTimeout = orDefault(cfg.StopTimeout, 10*time.Second)
	cfg.CommitInterval = orDefault(cfg.CommitInterval, time.Second)
	cfg.SessionTimeout = orDefault(cfg.SessionTimeout, 10*time.Second)
	cfg.LagInterval = orDefault(cfg.LagInterval, 5*time.Second)
	cfg.FetchBytes = orDefault(cfg.FetchBytes, 1<<20)
	cfg.BatchRecords = orDefault(cfg.BatchRecords, 500)
	cfg.BatchWait = orDefault(cfg.BatchWait, 20*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Start.kind == unset {
		cfg.Start = Oldest()
	}
	return cfg, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// readAhead is how many records may wait beside the answer of a fetch, per partition.
const readAhead = 16

// sarama is the client's configuration.
func (cfg *Config) sarama() *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = "notify-stream"
	sc.Net.DialTimeout = 10 * time.Second
	sc.Metadata.RefreshFrequency = 30 * time.Second // partitions that were added are seen then
	sc.Consumer.Retry.Backoff = 500 * time.Millisecond
	sc.Consumer.MaxWaitTime = 250 * time.Millisecond // a stop waits for it
	cfg.letIn(sc)
	if cfg.Client != nil {
		cfg.Client(sc)
	}
	sc.Version = sarama.DefaultVersion
	sc.Metadata.AllowAutoTopicCreation = false // reading must not make a topic
	sc.ChannelBufferSize = readAhead
	sc.Consumer.Return.Errors = true
	sc.Consumer.Fetch.Default = cfg.FetchBytes
	sc.Consumer.Fetch.Max = 0 // a larger record is waited for, never passed over
	sc.Consumer.IsolationLevel = sarama.ReadCommitted
	if cfg.ReadUncommitted {
		sc.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	sc.Consumer.Offsets.AutoCommit.Interval = cfg.CommitInterval
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.ResetInvalidOffsets = false // an offset that is gone is an error
	sc.Consumer.Group.Session.Timeout = cfg.SessionTimeout
	sc.Consumer.Group.Heartbeat.Interval = cfg.SessionTimeout / 3
	sc.Consumer.Group.Rebalance.Timeout = cfg.StopTimeout + 15*time.Second
	// A join is answered when the other members have given up what they hold.
	sc.Net.ReadTimeout = max(sc.Net.ReadTimeout, cfg.StopTimeout+20*time.Second)
	sc.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	return sc
}

// producer is the configuration of a client that writes: acknowledged by every replica in
// sync, and none twice by the client's own repeats.
func (cfg *Config) producer() *sarama.Config {
	sc := cfg.sarama()
	sc.Producer.Idempotent = true
	sc.Producer.RequiredAcks = sarama.WaitForAll
	sc.Producer.Retry.Max = 10
	sc.Producer.Return.Successes, sc.Producer.Return.Errors = true, true
	sc.Producer.MaxMessageBytes = 100 << 20 // the topic's own limit decides
	sc.Net.MaxOpenRequests = 1
	return sc
}
