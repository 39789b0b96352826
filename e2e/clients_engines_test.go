//go:build engines

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/notifyd/client"
	"notifymirror/stream"
	"notifymirror/stream/kafkago"
)

// place is a record's in Kafka, and content what each client has to find there.
type (
	place struct {
		partition int32
		offset    int64
	}
	content struct{ key, body, id string }
	log     map[place]content
)

// The same topic, read by five clients: franz-go, librdkafka (kcat), Apache Kafka's console
// consumer, kafka-go with its adapter, and stream.Consumer. On the way the mirror is killed,
// and a transaction with copies of its records is aborted.
func TestOtherClientsReadTheSameMirror(t *testing.T) {
	const half = 150
	s := stage.New(t)
	_, canald, c := s.Running()
	s.Topic(c, "orders")
	reader := s.Mirror("orders")
	publishMany(t, c, 0, half)
	reader.Await(half, time.Minute)
	canald.Kill()
	abortCopies(t, s.Kafka, reader.Records[:20])
	canald.Launch()
	publishMany(t, c, half, half)
	reader.Await(2*half, time.Minute)
	reader.Rest()

	want := log{}
	for _, r := range reader.Records {
		want[place{r.Partition, r.Offset}] = content{string(r.Key), string(r.Value), stage.Header(r, "notify-id")}
	}
	if len(want) != 2*half {
		t.Fatalf("franz-go reads %d records of %d messages", len(want), 2*half)
	}
	topic := s.Prefix + "orders"
	same(t, "stream.Consumer", want, readConsumer(t, s))
	same(t, "kcat", want, kcat(t, s.Kafka, topic))
	same(t, "the console consumer", want, console(t, s.Kafka, topic, len(want)))

	// kafka-go is known for what it does not filter: it may find a message's first copy.
	adapter := byID(readKafkaGo(t, s.Kafka, topic, len(want)))
	if !maps.Equal(adapter, byID(want)) {
		t.Errorf("kafka-go with its adapter reads %d messages, or others", len(adapter))
	}
}

func same(t *testing.T, who string, want, got log) {
	t.Helper()
	complain := complaints{t: t}
	for at, w := range want {
		if g, ok := got[at]; !ok || g != w {
			complain.say("%s: at %v %q, want %q", who, at, g, w)
		}
	}
	for at, g := range got {
		if _, ok := want[at]; !ok {
			complain.say("%s: at %v %q, where nothing is", who, at, g)
		}
	}
}

func byID(l log) map[string]content {
	byID := map[string]content{}
	for _, c := range l {
		byID[c.id] = c
	}
	return byID
}

func publishMany(t *testing.T, c *client.Client, from, n int) {
	t.Helper()
	ms := make([]client.Message, n)
	for i := range ms {
		ms[i] = client.Message{Topic: "orders", Key: fmt.Sprintf("clé %d", i%17), Body: fmt.Appendf(nil, "order %d: Grüße", from+i)}
	}
	if _, err := c.PublishBatch(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
}

// abortCopies writes records once more, in a transaction that is aborted.
func abortCopies(t *testing.T, addr string, records []*kgo.Record) {
	t.Helper()
	w, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("e2e-abort-"+records[0].Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		again := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
		if err := w.ProduceSync(t.Context(), again).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

func readConsumer(t *testing.T, s *stage.Stage) log {
	t.Helper()
	got := log{}
	consumer, err := stream.New(stream.Config{Brokers: []string{s.Kafka}, Prefix: s.Prefix, Topics: []string{"orders"}, End: stream.Newest()})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range consumer.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got[place{r.Partition, r.Offset}] = content{string(r.Key), string(r.Body), r.ID.String()}
	}
	return got
}

// kcat reads by librdkafka.
func kcat(t *testing.T, addr, topic string) log {
	t.Helper()
	r := stage.System(t, "kcat", "-C", "-b", addr, "-t", topic, "-o", "beginning", "-e", "-q", "-J", "-X", "isolation.level=read_committed")
	if r.Code != 0 {
		t.Fatalf("kcat: exit %d: %s", r.Code, r.Stderr)
	}
	got := log{}
	for line := range strings.Lines(r.Stdout) {
		var m struct {
			Partition    int32
			Offset       int64
			Key, Payload string
			Headers      []string // name, value, name, value
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("kcat: %q: %v", line, err)
		}
		got[place{m.Partition, m.Offset}] = content{m.Key, m.Payload, m.Headers[slices.Index(m.Headers, "notify-id")+1]}
	}
	return got
}

// console reads by what Apache Kafka brings along. It knows no end but a number.
func console(t *testing.T, addr, topic string, n int) log {
	t.Helper()
	args := []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.apache.logging.log4j.level=ERROR", "-Dfile.encoding=UTF-8",
		"-cp", filepath.Join(os.Getenv(engines.EnvKafkaJars), "*"), "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", addr, "--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--max-messages", strconv.Itoa(n)}
	for _, what := range []string{"partition", "offset", "headers", "key"} {
		args = append(args, "--formatter-property", "print."+what+"=true")
	}
	r := stage.System(t, "java", args...)
	if r.Code != 0 {
		t.Fatalf("console consumer: exit %d: %s", r.Code, r.Stderr)
	}
	got := log{}
	for line := range strings.Lines(r.Stdout) {
		// Partition:0 Offset:7 name:value,name:value key body, with tabs
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 5)
		if len(f) != 5 {
			continue // not a record
		}
		partition, err1 := strconv.ParseInt(strings.TrimPrefix(f[0], "Partition:"), 10, 32)
		offset, err2 := strconv.ParseInt(strings.TrimPrefix(f[1], "Offset:"), 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("console consumer: %q", line)
		}
		var id string
		for header := range strings.SplitSeq(f[2], ",") {
			if value, ok := strings.CutPrefix(header, "notify-id:"); ok {
				id = value
			}
		}
		got[place{int32(partition), offset}] = content{f[3], f[4], id}
	}
	return got
}

func readKafkaGo(t *testing.T, addr, topic string, n int) log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	group := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{addr}, Topic: topic, GroupID: topic, StartOffset: kafka.FirstOffset, IsolationLevel: kafka.ReadCommitted,
		MaxWait: 100 * time.Millisecond,
	})
	defer group.Close()
	r, got := kafkago.New(group, kafkago.Config{}), log{}
	for len(got) < n {
		m, err := r.Fetch(ctx)
		if err != nil {
			t.Fatalf("kafka-go, after %d messages: %v", len(got), err)
		}
		got[place{int32(m.Record.Partition), m.Record.Offset}] = content{string(m.Key), string(m.Body), m.ID.String()}
	}
	return got
}
