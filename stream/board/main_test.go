package board_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
	"notifymirror/stream/board"
)

// kafkaEnv names a real Kafka, host:port, for the whole suite to run against; without it
// an embedded one is started.
const kafkaEnv = "NOTIFY_TEST_KAFKA"

// patience is the longest that a test waits for a condition on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(withKafka(m.Run)) }

func withKafka(run func() int) int {
	if os.Getenv(kafkaEnv) == "" {
		dir, err := os.MkdirTemp("", "board-kafka-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		k, err := embedded.Start(embedded.Config{Dir: dir})
		if err != nil {
			panic(err)
		}
		defer k.Close()
		if err := os.Setenv(kafkaEnv, k.Addrs()[0]); err != nil {
			panic(err)
		}
		code := run()
		if err := k.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return leaks(code)
	}
	return leaks(run())
}

func leaks(code int) int {
	http.DefaultClient.CloseIdleConnections()
	// The one goroutine that sarama's metrics keep for the process.
	err := goleak.Find(goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func brokers() []string { return []string{os.Getenv(kafkaEnv)} }

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// waitFor waits for a condition, which says what is missing.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no %s after %s", what, patience)
		}
	}
}

// log is a mirror topic of its own for a test, and writes to it as the mirror does.
type log struct {
	t      testing.TB
	topic  string
	source record.Source
	seq    uint64
	client *kgo.Client
	parts  int32
}

func newName() string { return fmt.Sprintf("t%08x", rand.Uint32()) }

// newWriter knows nothing of any topic yet.
func newWriter(t testing.TB) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newLog makes a topic, unless it is to have no partitions.
func newLog(t testing.TB, topic string, partitions int32) *log {
	t.Helper()
	c := newWriter(t)
	l := &log{t: t, topic: topic, source: record.Source{Store: uuid.NewString(), Generation: 1}, client: c, parts: partitions}
	if _, err := kadm.NewClient(c).CreateTopic(deadline(t), partitions, 1, nil, l.kafka()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := kadm.NewClient(c).DeleteTopics(ctx, l.kafka()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *log) kafka() string { return record.TopicName("", l.topic) }

// msg is a message to write.
type msg struct {
	key     string
	headers map[string]string
	body    any // as JSON, or a string as it is
	at      time.Time
}

// write writes messages, one partition after the other, and returns when Kafka has them.
func (l *log) write(ms ...msg) {
	l.t.Helper()
	for _, m := range ms {
		l.seq++
		if m.at.IsZero() {
			m.at = time.Now()
		}
		body, isText := m.body.(string)
		if !isText {
			b, err := json.Marshal(m.body)
			if err != nil {
				l.t.Fatal(err)
			}
			body = string(b)
		}
		r := record.Encode(record.Message{
			ID: uuid.New(), Topic: l.topic, Key: []byte(m.key), Body: []byte(body), Headers: record.FromMap(m.headers),
			BornAt: m.at, CommitTime: m.at, Source: l.source, Seq: l.seq,
		})
		k := &kgo.Record{Topic: l.kafka(), Partition: int32(l.seq) % l.parts, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		l.client.Produce(l.t.Context(), k, func(_ *kgo.Record, err error) {
			if err != nil && l.t.Context().Err() == nil {
				l.t.Error(err)
			}
		})
	}
	if err := l.client.Flush(deadline(l.t)); err != nil {
		l.t.Fatal(err)
	}
}

// running is a server of boards in this process.
type running struct {
	url    string
	stop   func() // stops it and waits
	server *board.Server
}

// serve runs a server until the test ends, or until stop. Without an address it takes a
// free one.
func serve(t testing.TB, address string, cfg board.Config) *running {
	t.Helper()
	if cfg.Kafka.Brokers == nil {
		cfg.Kafka.Brokers = brokers()
	}
	s, err := board.New(cfg, board.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	var listener net.Listener
	waitFor(t, "listener", func() bool {
		listener, err = net.Listen("tcp", address)
		return err == nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener, s.Handler()) }()
	stopped := false
	r := &running{url: "http://" + listener.Addr().String(), server: s}
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// field is one that is right.
func field(t testing.TB, text string) board.Field {
	t.Helper()
	f, err := board.ParseField(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fields(t testing.TB, texts ...string) (list []board.Field) {
	t.Helper()
	for _, text := range texts {
		list = append(list, field(t, text))
	}
	return list
}
