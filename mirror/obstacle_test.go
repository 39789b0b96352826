package mirror

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A certificate that is wrong is Kafka's to mend only where it is Kafka's.
func TestAStoresCertificateIsNoObstacleInKafka(t *testing.T) {
	c, err := New(Config{Stores: map[string]StoreConfig{"a": {DSN: "u:p@tcp(127.0.0.1:1)/s"}}, Kafka: KafkaConfig{Brokers: []string{"k:9092"}}}, "a", Deps{Logger: testLogger(t), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	unknown := x509.UnknownAuthorityError{}
	if o := c.obstacle(&awayError{fmt.Errorf("store: %w", unknown)}); o != nil {
		t.Errorf("of the store: %v", o)
	}
	if o := c.obstacle(fmt.Errorf("kafka: %w", sarama.Wrap(sarama.ErrOutOfBrokers, unknown))); o == nil || o.Reason != ReasonDenied || !strings.Contains(o.Repair, "kafka.tls.ca_file") {
		t.Errorf("of Kafka: %v", o)
	}
	if o := c.obstacle(sarama.ErrSASLAuthenticationFailed); o == nil || o.Reason != ReasonDenied {
		t.Errorf("an answer: %v", o)
	}
}

// A refuser is a Kafka that refuses one kind of request, for topics with that suffix, while
// it is on.
type refuser struct {
	key    int16
	code   int16
	suffix string
	most   int // times; 0: for ever

	mu    sync.Mutex
	on    bool
	times int
}

func (r *refuser) set(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = on
}

// refused is how many times it has refused.
func (r *refuser) refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times
}

// start starts the Kafka and returns its address.
func (r *refuser) start(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(r.key, func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // its signature
		cluster.KeepControl()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.on || r.most > 0 && r.times == r.most {
			return nil, nil, false
		}
		resp := r.refusal(req)
		if resp != nil {
			r.times++
		}
		return resp, nil, resp != nil
	})
	return cluster.ListenAddrs()[0]
}

// refusal is the answer to a request; nil lets it pass.
func (r *refuser) refusal(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		if !slices.ContainsFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return strings.HasSuffix(t.Topic, r.suffix) }) {
			return nil
		}
		for _, t := range req.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic = t.Topic
			for _, p := range t.Partitions {
				one := kmsg.NewProduceResponseTopicPartition()
				one.Partition, one.ErrorCode, one.BaseOffset = p.Partition, r.code, -1
				answer.Partitions = append(answer.Partitions, one)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp
	case *kmsg.AddPartitionsToTxnRequest:
		resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		for _, t := range req.Topics {
			answer := kmsg.NewAddPartitionsToTxnResponseTopic()
			answer.Topic = t.Topic
			for _, p := range t.Partitions {
				one := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				one.Partition, one.ErrorCode = p, r.code
				answer.Partitions = append(answer.Partitions, one)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp
	case *kmsg.CreateTopicsRequest:
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			answer := kmsg.NewCreateTopicsResponseTopic()
			answer.Topic, answer.ErrorCode = t.Topic, r.code
			resp.Topics = append(resp.Topics, answer)
		}
		return resp
	case *kmsg.InitProducerIDRequest:
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = r.code
		return resp
	case *kmsg.JoinGroupRequest:
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = r.code
		return resp
	}
	return nil
}

// Whatever Kafka refuses until somebody mends it: the mirror waits, says what to do, and
// goes on by itself, with every message once and in order.
func TestWhatKafkaRefusesIsWaitedForWithTheRepair(t *testing.T) {
	for name, c := range map[string]struct {
		key, code int16
		suffix    string
		fromStart bool
		reason    Reason
		says      string
	}{
		"too few replicas in sync":           {apiProduce, 19, "trades", false, ReasonReplicas, "min.insync.replicas"},
		"too few replicas after the append":  {apiProduce, 20, "trades", false, ReasonReplicas, "min.insync.replicas"},
		"too few replicas of the checkpoint": {apiProduce, 19, "", true, ReasonReplicas, "--topic _notify-checkpoint."},
		"a disk is full or read-only":        {apiProduce, 56, "trades", false, ReasonStorage, "make room"},
		"a limit that nobody was told of":    {apiProduce, 10, "trades", false, ReasonTooLarge, "--add-config max.message.bytes="},
		"times out of bounds":                {apiProduce, 32, "trades", false, ReasonTimestamp, "message.timestamp.before.max.ms"},
		"writing denied":                     {apiProduce, 29, "trades", false, ReasonDenied, "kafka-acls.sh"},
		"the transaction's topic denied":     {apiAddPartitions, 29, "", true, ReasonDenied, "kafka-acls.sh"},
		"the transactional id denied":        {apiInitProducerID, 53, "", true, ReasonDenied, "--transactional-id test-"},
		"the group denied":                   {apiJoinGroup, 30, "", true, ReasonDenied, "--group test-"},
		"making topics denied":               {apiCreateTopics, 31, "", true, ReasonDenied, "make the topics yourself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafka := &refuser{key: c.key, code: c.code, suffix: c.suffix, on: c.fromStart}
			b := newBench(t)
			b.brokers = []string{kafka.start(t)}
			b.config.Kafka.Brokers = b.brokers
			b.registry = prometheus.NewPedanticRegistry()
			r := newRand(t)
			b.script.random(r, 5, 10, "trades")
			copier := b.copier()
			b.run(copier)
			if !c.fromStart {
				b.await(copier)
				kafka.set(true)
			}
			b.script.add(scriptMessage{topic: "trades", key: "k"})
			b.awaitWaiting(copier, c.reason, c.says)
			seen := kafka.refused()
			eventually(t, func() error { // it tries again, and says the same meanwhile
				s := copier.Status()
				if s.State != Waiting || s.WaitingReason != c.reason || s.Repair == "" || copier.Ready() == nil {
					t.Fatalf("status while it is refused: %+v", s)
				}
				if kafka.refused() < seen+3 {
					return fmt.Errorf("refused %d times", kafka.refused())
				}
				return nil
			})
			if got := waitingMetric(t, b.registry); got != c.reason {
				t.Errorf("metric says %q", got)
			}
			kafka.set(false)
			b.script.random(r, 5, 10, "trades")
			b.await(copier)
			if s := copier.Status(); s.State != Copying || s.WaitingReason != "" || s.Repair != "" || copier.Ready() != nil {
				t.Errorf("status afterwards %+v", s)
			}
			if got := waitingMetric(t, b.registry); got != "" {
				t.Errorf("metric afterwards says %q", got)
			}
			b.check()
		})
	}
}

// awaitWaiting waits until a Copier waits for somebody to mend Kafka, and says how.
func (b *bench) awaitWaiting(c *Copier, reason Reason, says string) {
	b.t.Helper()
	eventually(b.t, func() error {
		s := c.Status()
		if s.State != Waiting || s.WaitingReason != reason || !strings.Contains(s.Repair, says) || !strings.Contains(s.LastError, s.Repair) && s.LastError == "" {
			return fmt.Errorf("status %+v, want it to wait for %s", s, reason)
		}
		return nil
	})
}

// waitingMetric is the reason for which notify_mirror_waiting is 1.
func waitingMetric(t *testing.T, reg *prometheus.Registry) (reason Reason) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "notify_mirror_waiting" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && m.GetGauge().GetValue() == 1 {
					reason = Reason(l.GetValue())
				}
			}
		}
	}
	return reason
}
