package stream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/record"
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

// A state that another transaction still changes is not read: what Kafka says to be over may lack its end there, and the
// next commit of the same id would be the end of both.
func TestAProcessorDoesNotGoOnBehindAnOpenTransactionInItsState(t *testing.T) {
	name := topic(t, 1)
	out := processed(t, name)
	m := newMirror(t, name)
	m.commit(0, "a", "b")
	cfg := numbering(name, out, brokers())
	r := processor(t, cfg)
	outputs(t, out, 2)
	r.stop(t)

	other := client(t, kgo.TransactionalID("other-"+name), kgo.DefaultProduceTopic(cfg.State))
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(deadline(t), &kgo.Record{Key: []byte("n"), Value: []byte("100")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	m.commit(0, "c")
	epoch := producerEpoch(t, name)
	r = processor(t, cfg)
	waitFor(t, "takeover", func() bool { return producerEpoch(t, name) != epoch })
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	reader := client(t, kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(time.Now().UnixMilli())))
	if fetches := reader.PollFetches(soon); fetches.NumRecords() > 0 {
		t.Errorf("output %q", fetches.Records()[0].Value)
	}
	if err := other.EndTransaction(deadline(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(outputs(t, out, 3)["0"], ", "); got != "1 a, 2 b, 101 c" {
		t.Errorf("outputs %q", got)
	}
	r.stop(t)
}

// producerEpoch is that of the transactional id of a processor's partition 0, which a takeover raises.
func producerEpoch(t *testing.T, name string) int16 {
	t.Helper()
	all, err := kadm.NewClient(client(t)).DescribeTransactions(deadline(t), name+"/"+record.TopicName("", name)+"/0")
	if err != nil {
		t.Fatal(err)
	}
	for _, txn := range all {
		return txn.ProducerEpoch
	}
	return -1
}
