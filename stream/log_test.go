package stream

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newTestLog reads the topic t of a cluster until the test ends.
func newTestLog(t *testing.T, cluster *kfake.Cluster) *kafkaLog {
	t.Helper()
	cfg, err := Config{Brokers: cluster.ListenAddrs(), Topics: []string{"t"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	log, err := openLog(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

// A broker that has not heard yet that it leads a topic just made says so; it is asked again
// until it has.
func TestALeaderThatDoesNotKnowItYetIsAskedAgain(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	refusals := 3
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if refusals == 0 {
			return nil, nil, false
		}
		refusals--
		cluster.KeepControl()
		answer := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		answer.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{
			{ErrorCode: kerr.NotLeaderForPartition.Code, Timestamp: -1, Offset: -1, LeaderEpoch: -1}}}}
		return answer, nil, true
	})
	log := newTestLog(t, cluster)
	if offset, err := log.offset("t", 0, sarama.OffsetNewest, sarama.ReadCommitted); offset != 0 || err != nil {
		t.Errorf("offset %d, error %v", offset, err)
	}
	if refusals != 0 {
		t.Errorf("%d refusals are left", refusals)
	}
}

// A topic that grew is seen as it is, though the client has known it before: otherwise a
// group's commit of the new partition would not be asked for, and all of it handled again.
func TestAPartitionThatWasAddedIsKnownAtOnce(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	log := newTestLog(t, cluster)
	for want := 1; want <= 2; want++ {
		ps, err := log.partitions("t")
		if err != nil || len(ps) != want {
			t.Fatalf("partitions %v, error %v; want %d", ps, err, want)
		}
		admin, err := sarama.NewClusterAdminFromClient(log.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.CreatePartitions("t", int32(want+1), nil, false); err != nil {
			t.Fatal(err)
		}
	}
}
