//go:build engines

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// A processor numbers the records of each partition, and Apache Kafka is killed under it, again and again, anywhere in
// a transaction. The processor lives on, and a reader of committed records finds each number once, in order.
func TestAProcessorIsExactThoughKafkaIsKilled(t *testing.T) {
	const partitions, each, kills = 2, 3000, 3
	k, err := engines.StartKafka(t.Context(), engines.KafkaConfig{Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, 1, nil, record.TopicName("", "trades")); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, 1, nil, "numbers"); err != nil {
		t.Fatal(err)
	}
	source := record.Source{Store: uuid.NewString(), Generation: 1}
	var out []*kgo.Record
	for i := range partitions * each {
		r := record.Encode(record.Message{ID: uuid.New(), Topic: "trades", Key: []byte("k"), Body: fmt.Append(nil, i/partitions), BornAt: time.Now(), CommitTime: time.Now(), Source: source, Seq: uint64(i + 1)})
		x := &kgo.Record{Topic: record.TopicName("", "trades"), Partition: int32(i % partitions), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			x.Headers = append(x.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		out = append(out, x)
	}
	if err := client.ProduceSync(t.Context(), out...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p, err := stream.NewProcessor(stream.ProcessorConfig{
		Config: stream.Config{Brokers: []string{k.Addr()}, Topics: []string{"trades"}, Group: "numbering", SessionTimeout: 6 * time.Second, BatchRecords: 7, BatchWait: time.Millisecond},
		State:  "numbering-state",
		Process: func(ctx context.Context, step *stream.Step, batch []stream.Record) error {
			n, _ := strconv.Atoi(string(step.Get("n"))) // 0 at first
			for _, r := range batch {
				n++
				step.Emit("numbers", fmt.Append(nil, r.Partition), fmt.Appendf(nil, "%d %s", n, r.Body))
			}
			step.Put("n", fmt.Append(nil, n))
			return ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	random := stage.Random(t)
	for i := range kills {
		awaitNumbers(t, k.Addr(), 1+(i+random.IntN(2))*partitions*each/(kills+1))
		k.Kill()
		if err := k.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := awaitNumbers(t, k.Addr(), partitions*each)
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	say := complaints{t: t}
	for partition := range partitions {
		values := got[fmt.Sprint(partition)]
		if len(values) != each {
			t.Errorf("partition %d: %d numbers, want %d", partition, len(values), each)
		}
		for i, v := range values {
			if want := fmt.Sprintf("%d %d", i+1, i); v != want {
				say.say("partition %d: %q, want %q", partition, v, want)
			}
		}
	}
}

// awaitNumbers reads what is committed from the beginning, until there are n numbers, and what is there beside them.
func awaitNumbers(t *testing.T, kafka string, n int) map[string][]string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.ConsumeTopics("numbers"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, count := map[string][]string{}, 0
	stage.Eventually(t, 2*time.Minute, fmt.Sprintf("%d numbers", n), func() error {
		poll, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.PollFetches(poll).EachRecord(func(r *kgo.Record) {
			got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			count++
		})
		if count < n {
			return fmt.Errorf("%d of %d", count, n)
		}
		return nil
	})
	return got
}
