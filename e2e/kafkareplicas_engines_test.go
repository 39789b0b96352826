//go:build engines

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/mirror"
	"notifymirror/notifyd/client"
)

// Two brokers hold every partition, and one of them is killed under load, a leader and a
// coordinator of some. While both must have a record the mirror waits, says so, and goes on by
// itself when the broker is back; while one is enough it goes over to that one. Every message is
// there once, in order.
func TestABrokerOfTwoIsKilled(t *testing.T) {
	both := map[string]string{
		"default.replication.factor": "2", "min.insync.replicas": "2", "unclean.leader.election.enable": "false",
		"offsets.topic.replication.factor":         "2",
		"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "2",
		"replica.lag.time.max.ms": "3000",
	}
	jars := os.Getenv(engines.EnvKafkaJars)
	first, err := engines.StartKafka(t.Context(), engines.KafkaConfig{Jars: jars, Dir: t.TempDir(), Settings: both})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Kill()
	second, err := first.Join(t.Context(), engines.KafkaConfig{Jars: jars, Dir: t.TempDir(), Settings: both})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Kill()
	s := stage.New(t)
	s.Kafka = first.Addr()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	awaitInSync(t, admin) // before there is a topic
	p := &play{Stage: s, t: t}
	var c *client.Client
	p.a, p.mirror, c = s.Running(quickTransactions)
	p.Topic(c, "trades")
	p.binlog = p.Binlog()
	p.load = p.Load(c, "trades", 1)
	p.load.AwaitMore(300, time.Minute)
	p.recovered()

	second.Kill()
	stage.Eventually(t, 2*time.Minute, "the mirror waits for a replica", func() error {
		got, err := mirrorStatus(p.mirror)
		if err == nil && (got.State != mirror.Waiting || got.WaitingReason != mirror.ReasonReplicas || !strings.Contains(got.Repair, "start the brokers that are away")) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	p.load.AwaitMore(300, time.Minute) // nobody who publishes waits
	if err := second.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.recovered()

	awaitInSync(t, admin)
	needOne(t, admin)
	second.Kill()
	p.load.AwaitMore(300, time.Minute)
	p.recovered()
	p.audit()
}

// awaitInSync waits until Kafka has two brokers, and all that it holds on both.
func awaitInSync(t *testing.T, admin *kadm.Client) {
	t.Helper()
	stage.Eventually(t, 2*time.Minute, "everything is on two brokers", func() error {
		m, err := admin.Metadata(t.Context())
		if err != nil {
			return err
		}
		if len(m.Brokers) != 2 {
			return fmt.Errorf("%d brokers", len(m.Brokers))
		}
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.ISR) != 2 {
				err = fmt.Errorf("%s partition %d is in sync on %v", p.Topic, p.Partition, p.ISR)
			}
		})
		return err
	})
}

// needOne has one broker suffice for every topic, Kafka's own too.
func needOne(t *testing.T, admin *kadm.Client) {
	t.Helper()
	m, err := admin.Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: kadm.StringPtr("1")}}
	answers, err := admin.AlterTopicConfigs(t.Context(), one, m.Topics.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}
