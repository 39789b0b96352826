package stream_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka stops while a processor works, again and again, and comes back. The processor lives on, and the outputs have
// each record once.
func TestAProcessorCountsEachRecordOnceThoughKafkaStops(t *testing.T) {
	const partitions, each, stops = 2, 600, 3
	k := startOwnKafka(t)
	name := topic(t, partitions)
	out := processed(t, name)
	newMirror(t, name).commitNumbers(partitions, each)
	cfg := numbering(name, out, brokers())
	cfg.BatchRecords = 3
	cfg.Client = func(sc *sarama.Config) {
		sc.Metadata.Retry.Max, sc.Metadata.Retry.Backoff = 1, sc.Metadata.Retry.Backoff/10
	}
	r := processor(t, cfg)
	for i := range stops {
		outputs(t, out, (i+1)*partitions*each/(stops+2))
		k.stop()
		k.start()
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
