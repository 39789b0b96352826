package stream_test

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/embedded"
)

// Kafka stops while a processor works, again and again, and comes back. The processor lives on, and the outputs have
// each record once.
func TestAProcessorCountsEachRecordOnceThoughKafkaStops(t *testing.T) {
	const partitions, each, stops = 2, 600, 3
	dir := t.TempDir()
	k, err := embedded.Start(embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	addr := k.Addrs()[0]
	t.Setenv(kafkaEnv, addr)
	t.Cleanup(func() { _ = k.Close() }) // when the test ends early
	name := topic(t, partitions)
	out := processed(t, name)
	m := newMirror(t, name)
	for p := range int32(partitions) {
		var bodies []string
		for i := range each {
			bodies = append(bodies, fmt.Sprint(i))
		}
		m.commit(p, bodies...)
	}
	cfg := numbering(name, out, brokers())
	cfg.BatchRecords = 3
	cfg.Client = func(sc *sarama.Config) {
		sc.Metadata.Retry.Max, sc.Metadata.Retry.Backoff = 1, sc.Metadata.Retry.Backoff/10
	}
	r := processor(t, cfg)
	for i := range stops {
		outputs(t, out, (i+1)*partitions*each/(stops+2))
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		if k, err = embedded.Start(embedded.Config{Dir: dir, Addr: addr}); err != nil {
			t.Fatal(err)
		}
	}
	expectNumbered(t, outputs(t, out, partitions*each), partitions, each)
	r.stop(t)
	if n := len(all(t, out)); n != partitions*each {
		t.Errorf("%d outputs of %d records", n, partitions*each)
	}
}

// all is what a reader of committed records finds in a topic of one partition.
func all(t *testing.T, kafka string) (values []string) {
	t.Helper()
	const end = "end of the test"
	c := client(t, kgo.ConsumeTopics(kafka), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err := c.ProduceSync(deadline(t), &kgo.Record{Topic: kafka, Value: []byte(end)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for {
		fetches := c.PollFetches(deadline(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if string(r.Value) == end {
				return values
			}
			values = append(values, string(r.Value))
		}
	}
}
