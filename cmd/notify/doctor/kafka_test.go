package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/embedded"
	"notifymirror/notifyd/finding"
)

// A real Kafka's answers are read: mistakes made in it are found, and what the findings say,
// typed as it stands, mends them.
func TestMistakesInARunningKafkaAreFoundAndMended(t *testing.T) {
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	alter := func(topic string, set map[string]string) {
		t.Helper()
		var changes []kadm.AlterConfig
		for name, value := range set {
			changes = append(changes, kadm.AlterConfig{Name: name, Value: &value})
		}
		res, err := admin.AlterTopicConfigs(t.Context(), changes, topic)
		if err != nil || res[0].Err != nil {
			t.Fatalf("%v %v", err, res)
		}
	}
	limit, policy := "4259840", "compact"
	const checkpoint = "_notify-checkpoint.s"
	if _, err := admin.CreateTopic(t.Context(), 2, 1, map[string]*string{"max.message.bytes": &limit}, "notify.t"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &policy}, checkpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "other"); err != nil {
		t.Fatal(err)
	}
	k := Kafka{Brokers: server.Addrs(), TopicPrefix: "notify.", MaxBody: 4 << 20, TransactionTimeout: 10 * time.Second, AllowEmbedded: true}
	if found := k.check(t.Context()); len(found) != 1 || found[0].Severity != finding.Note {
		t.Fatalf("of a fit Kafka: %v", found)
	}
	alter("notify.t", map[string]string{"max.message.bytes": "1000000", "cleanup.policy": "compact", "retention.ms": "1000"})
	alter(checkpoint, map[string]string{"cleanup.policy": "delete"})
	short := "5000"
	if res, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "transaction.max.timeout.ms", Value: &short}}); err != nil || res[0].Err != nil {
		t.Fatalf("%v %v", err, res)
	}
	found := k.check(t.Context())
	if len(found) != 6 {
		t.Errorf("found %v", found)
	}
	for name, value := range typed(found) {
		topic, key, _ := strings.Cut(name, " ")
		alter(topic, map[string]string{key: value})
	}
	if found = k.check(t.Context()); len(found) != 2 || !strings.Contains(found[0].String()+found[1].String(), "transaction.max.timeout.ms=5000") {
		t.Errorf("afterwards: %v", found)
	}
}

func TestKafkaThatIsAwayIsFound(t *testing.T) {
	k := Kafka{Brokers: []string{"127.0.0.1:1"}}
	found := k.check(t.Context())
	if len(found) != 1 || Exit(found) != 6 || strings.Contains(found[0].String(), "\n") {
		t.Errorf("found %q", found)
	}
}
