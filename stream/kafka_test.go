package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// kafkaEnv names a real Kafka, host:port, for the whole suite to run against;
// without it an embedded one is started.
const kafkaEnv = "NOTIFY_TEST_KAFKA"

func TestMain(m *testing.M) {
	if os.Getenv(childTopic) != "" {
		runChild()
		return
	}
	if os.Getenv(childProcessor) != "" {
		runProcessor()
		return
	}
	if os.Getenv(kafkaEnv) != "" {
		goleak.VerifyTestMain(m, ofSarama())
		return
	}
	dir, err := os.MkdirTemp("", "stream-kafka-")
	if err != nil {
		panic(err)
	}
	k, err := embedded.Start(embedded.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	if err := os.Setenv(kafkaEnv, k.Addrs()[0]); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := k.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(ofSarama()); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// ofSarama is the one goroutine that sarama's metrics keep for the process.
func ofSarama() goleak.Option {
	return goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")
}

func brokers() []string { return []string{os.Getenv(kafkaEnv)} }

// deadline is a context that ends the test when it hangs.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// topic makes a topic of its own for the test, and returns notify's name of it.
func topic(t testing.TB, partitions int32) string {
	t.Helper()
	name := fmt.Sprintf("t%08x", rand.Uint32())
	admin := kadm.NewClient(client(t))
	kafka := record.TopicName("", name)
	forever := "-1" // a mirror of tests writes old times, and Kafka deletes by them
	if _, err := admin.CreateTopic(deadline(t), partitions, 1, map[string]*string{"retention.ms": &forever}, kafka); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := admin.DeleteTopics(ctx, kafka); err != nil {
			t.Error(err)
		}
	})
	return name
}

// mirror writes messages as the mirror does, in transactions.
type mirror struct {
	t      testing.TB
	topic  string
	source record.Source
	seq    uint64
	client *kgo.Client
}

func newMirror(t testing.TB, topic string) *mirror {
	t.Helper()
	return &mirror{t: t, topic: topic, source: record.Source{Store: uuid.NewString(), Generation: 1}, client: client(t,
		kgo.TransactionalID("tx-"+topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)}
}

// at is the commit time of the message with a number.
func at(seq uint64) time.Time { return time.UnixMilli(1764400000000 + int64(seq)*1000) }

func (m *mirror) send(partition int32, bodies ...string) {
	m.t.Helper()
	for _, body := range bodies {
		m.seq++
		r := record.Encode(record.Message{
			ID: uuid.New(), Topic: m.topic, Key: []byte("k"), Body: []byte(body),
			BornAt: at(m.seq), CommitTime: at(m.seq), Source: m.source, Seq: m.seq,
		})
		k := &kgo.Record{Topic: record.TopicName("", m.topic), Partition: partition, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		m.client.Produce(deadline(m.t), k, func(_ *kgo.Record, err error) {
			if err != nil {
				m.t.Error(err)
			}
		})
	}
	if err := m.client.Flush(deadline(m.t)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mirror) begin() {
	m.t.Helper()
	if err := m.client.BeginTransaction(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mirror) end(how kgo.TransactionEndTry) {
	m.t.Helper()
	if err := m.client.EndTransaction(deadline(m.t), how); err != nil {
		m.t.Fatal(err)
	}
	m.settled()
}

// settled waits until readers of committed records see the end of the transaction: Kafka answers
// before that, and an End that is asked for meanwhile lies before it.
func (m *mirror) settled() {
	m.t.Helper()
	admin, kafka := kadm.NewClient(m.client), record.TopicName("", m.topic)
	ctx := deadline(m.t)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		committed, err := admin.ListCommittedOffsets(ctx, kafka)
		if err == nil {
			err = committed.Error()
		}
		if err != nil {
			m.t.Fatal(err)
		}
		all, err := admin.ListEndOffsets(ctx, kafka)
		if err == nil {
			err = all.Error()
		}
		if err != nil {
			m.t.Fatal(err)
		}
		open := false
		all.Each(func(o kadm.ListedOffset) {
			c, _ := committed.Lookup(o.Topic, o.Partition)
			open = open || c.Offset < o.Offset
		})
		if !open {
			tick.Stop()
			return
		}
		<-tick.C
	}
}

// commit sends in a transaction of its own.
func (m *mirror) commit(partition int32, bodies ...string) {
	m.t.Helper()
	m.begin()
	m.send(partition, bodies...)
	m.end(kgo.TryCommit)
}

// commitNumbers sends the numbers from 0 on to each of the first partitions.
func (m *mirror) commitNumbers(partitions, each int) {
	m.t.Helper()
	bodies := make([]string, each)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	for p := range partitions {
		m.commit(int32(p), bodies...)
	}
}

// abort sends in a transaction that is aborted; the mirror sends the same again later.
func (m *mirror) abort(partition int32, bodies ...string) {
	m.t.Helper()
	seq := m.seq
	m.begin()
	m.send(partition, bodies...)
	m.end(kgo.TryAbort)
	m.seq = seq
}

// foreign writes a record that the mirror did not write.
func foreign(t testing.TB, topic string, partition int32) {
	t.Helper()
	c := client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r := &kgo.Record{Topic: record.TopicName("", topic), Partition: partition, Value: []byte("by hand")}
	if err := c.ProduceSync(deadline(t), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func newConsumer(t testing.TB, cfg stream.Config) *stream.Consumer {
	t.Helper()
	if cfg.Brokers == nil {
		cfg.Brokers = brokers()
	}
	c, err := stream.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// read is the bodies of all records up to the end that the configuration names.
func read(t testing.TB, cfg stream.Config) (string, error) {
	t.Helper()
	var bodies []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for r, err := range newConsumer(t, cfg).Records(ctx) {
		if err != nil {
			return strings.Join(bodies, " "), err
		}
		bodies = append(bodies, string(r.Body))
	}
	return strings.Join(bodies, " "), ctx.Err()
}

// expect reads to the newest record and compares.
func expect(t testing.TB, cfg stream.Config, want string) {
	t.Helper()
	cfg.End = stream.Newest()
	got, err := read(t, cfg)
	if err != nil || got != want {
		t.Errorf("from %v: read %q, error %v, want %q", cfg.Start, got, err, want)
	}
}

// running is a consumer in a goroutine.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func run(t testing.TB, cfg stream.Config) *running {
	t.Helper()
	c := newConsumer(t, cfg)
	ctx, cancel := context.WithCancel(deadline(t))
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	t.Cleanup(func() { r.cancel(); <-r.done })
	return r
}

// stop ends it in order.
func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Errorf("planned stop: %v", err)
	}
}

// wait is for its own end.
func (r *running) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.done:
		close(r.done)
		return err
	case <-time.After(time.Minute):
		t.Fatal("the consumer did not end")
		return nil
	}
}

// seen collects what handlers got, and lets tests wait for it.
type seen struct {
	mu      sync.Mutex
	bodies  []string
	changed chan struct{}
}

func newSeen() *seen { return &seen{changed: make(chan struct{}, 1)} }

func (s *seen) handle(_ context.Context, r stream.Record) error {
	s.mu.Lock()
	s.bodies = append(s.bodies, string(r.Body))
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func (s *seen) now() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

// until waits for a condition on what was seen.
func (s *seen) until(t testing.TB, what string, ok func([]string) bool) []string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		if now := s.now(); ok(now) {
			return now
		}
		select {
		case <-s.changed:
		case <-late:
			t.Fatalf("no %s; seen %q", what, s.now())
		}
	}
}

func (s *seen) count(t testing.TB, n int) []string {
	t.Helper()
	return s.until(t, fmt.Sprintf("%d records", n), func(b []string) bool { return len(b) >= n })
}

// committed is the offset that a group committed for a partition, or -1.
func committed(t testing.TB, group, topic string, partition int32) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(client(t)).FetchOffsets(deadline(t), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup(record.TopicName("", topic), partition)
	if !ok {
		return -1
	}
	return o.At
}

func TestImportsNeitherDatabaseNorBroker(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "notifymirror/stream").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		own := strings.HasPrefix(pkg, "notifymirror/") && !slices.Contains([]string{"notifymirror/stream", "notifymirror/mirror/access", "notifymirror/mirror/record", "notifymirror/mirror/transact"}, pkg)
		if own || strings.Contains(pkg, "mysql") || pkg == "database/sql" || strings.Contains(pkg, "franz-go") {
			t.Errorf("stream imports %s", pkg)
		}
	}
}

// An ownKafka is the Kafka of one test, which stops and comes back at the same address with what it had.
type ownKafka struct {
	t         *testing.T
	dir, addr string
	k         *embedded.Kafka
}

// startOwnKafka has the rest of the test speak with a Kafka of its own.
func startOwnKafka(t *testing.T) *ownKafka {
	t.Helper()
	o := &ownKafka{t: t, dir: t.TempDir()}
	o.start()
	o.addr = o.k.Addrs()[0]
	t.Setenv(kafkaEnv, o.addr)
	t.Cleanup(func() { _ = o.k.Close() }) // when the test ends early
	return o
}

func (o *ownKafka) start() {
	o.t.Helper()
	var err error
	if o.k, err = embedded.Start(embedded.Config{Dir: o.dir, Addr: o.addr}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *ownKafka) stop() {
	o.t.Helper()
	if err := o.k.Close(); err != nil {
		o.t.Fatal(err)
	}
}
