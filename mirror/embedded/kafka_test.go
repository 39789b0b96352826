package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const childEnv = "NOTIFY_EMBEDDED_CHILD_DIR"

// TestMain makes the test binary a broker of its own, to be killed, when asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		k, err := Start(Config{Dir: dir})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(k.Addrs()[0])
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // until killed, or the test is gone
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is a broker in another process.
type child struct {
	addr string
	cmd  *exec.Cmd
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("broker process: %q, %v", line, err)
	}
	c.addr = strings.TrimSpace(line)
	return c
}

// kill -9, and wait until the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be dead already
	_ = c.cmd.Wait()         // the status is that of the kill
}

func start(t *testing.T, cfg Config) *Kafka {
	t.Helper()
	k, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func createTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	if _, err := kadm.NewClient(client(t, addr)).CreateTopic(deadline(t), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// produce sends values in one transaction and commits it.
func produce(t *testing.T, addr, txid, topic string, values ...string) {
	t.Helper()
	c := beginWith(t, addr, txid, topic, values...)
	if err := c.EndTransaction(deadline(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// beginWith leaves a transaction open with values in it.
func beginWith(t *testing.T, addr, txid, topic string, values ...string) *kgo.Client {
	t.Helper()
	c := client(t, addr, kgo.TransactionalID(txid), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := c.ProduceSync(deadline(t), kgo.StringRecord(v)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// committed reads a topic from its start until the given value comes.
func committed(t *testing.T, addr, topic, until string, opts ...kgo.Opt) []string {
	t.Helper()
	c := client(t, addr, append(opts, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	var got []string
	ctx := deadline(t)
	for {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		for _, r := range fetches.Records() {
			got = append(got, string(r.Value))
			if string(r.Value) == until {
				c.Close()
				return got
			}
		}
	}
}

func TestDataSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	k := start(t, Config{Dir: dir})
	createTopic(t, k.Addrs()[0], "t", 1)
	produce(t, k.Addrs()[0], "tx", "t", "a", "b")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = start(t, Config{Dir: dir})
	produce(t, k.Addrs()[0], "tx", "t", "end")
	if got := strings.Join(committed(t, k.Addrs()[0], "t", "end"), " "); got != "a b end" {
		t.Errorf("records %q", got)
	}
}

func TestAcknowledgedDataSurvivesKillsAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for round := range 4 {
		k := startChild(t, dir)
		if round == 0 {
			createTopic(t, k.addr, "t", 1)
		}
		for i := range 5 {
			v := fmt.Sprintf("r%d-%d", round, i)
			produce(t, k.addr, "tx", "t", v)
			want = append(want, v)
		}
		stop := produceUntilKilled(t, k.addr, fmt.Sprintf("other-%d", round))
		k.kill()
		stop()
	}
	k := start(t, Config{Dir: dir})
	produce(t, k.Addrs()[0], "tx", "t", "end")
	got := committed(t, k.Addrs()[0], "t", "end")
	if strings.Join(got, " ") != strings.Join(append(want, "end"), " ") {
		t.Errorf("records\n got %q\nwant %q", got, want)
	}
}

// produceUntilKilled writes to another topic, so that the kill comes in the middle of
// a write; it returns after some records, and stop ends the client.
func produceUntilKilled(t *testing.T, addr, topic string) (stop func()) {
	t.Helper()
	createTopic(t, addr, topic, 4)
	c := client(t, addr, kgo.DefaultProduceTopic(topic))
	ctx, cancel := context.WithCancel(t.Context())
	some, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			c.Produce(ctx, kgo.StringRecord(strings.Repeat("x", 1000)), nil)
			if i == 2000 {
				close(some)
			}
		}
	}()
	<-some
	return func() { cancel(); <-done; c.Close() }
}

func TestATransactionCutOffByAKillStaysAbortedForGood(t *testing.T) {
	dir := t.TempDir()
	k := startChild(t, dir)
	createTopic(t, k.addr, "t", 1)
	produce(t, k.addr, "tx", "t", "a")
	beginWith(t, k.addr, "tx", "t", "lost-1", "lost-2")
	k.kill()

	k = startChild(t, dir)
	produce(t, k.addr, "tx", "t", "b")
	if got := strings.Join(committed(t, k.addr, "t", "b"), " "); got != "a b" {
		t.Errorf("after one kill: records %q", got)
	}
	k.kill()

	k = startChild(t, dir)
	produce(t, k.addr, "tx", "t", "c")
	if got := strings.Join(committed(t, k.addr, "t", "c"), " "); got != "a b c" {
		t.Errorf("after two kills: records %q", got)
	}
}

func TestASmallFetchStillHidesAbortedRecords(t *testing.T) {
	k := start(t, Config{Dir: t.TempDir()})
	addr := k.Addrs()[0]
	createTopic(t, addr, "t", 1)
	big := strings.Repeat("x", 2000)
	c := beginWith(t, addr, "tx", "t", big, big, big) // a batch each
	if err := c.EndTransaction(deadline(t), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	produce(t, addr, "tx", "t", "end")
	got := committed(t, addr, "t", "end", kgo.FetchMaxBytes(3000), kgo.FetchMaxPartitionBytes(3000))
	if len(got) != 1 {
		t.Errorf("%d records are seen, want 1", len(got))
	}
}

func TestADirectoryInUseNamesItsHolder(t *testing.T) {
	dir := t.TempDir()
	k := startChild(t, dir)
	_, err := Start(Config{Dir: dir})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", k.cmd.Process.Pid)) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
	k.kill()
	own := start(t, Config{Dir: dir})
	if _, err := Start(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("second start in one process: error %v", err)
	}
	if err := errors.Join(own.Close(), own.Close()); err != nil {
		t.Error(err)
	}
	start(t, Config{Dir: dir})
}

func TestAFailedStartDoesNotBlockTheNext(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := taken.Addr().String()
	if _, err := Start(Config{Dir: dir, Addr: addr}); err == nil || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "\n") {
		t.Errorf("taken address: error %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if k := start(t, Config{Dir: dir, Addr: addr}); k.Addrs()[0] != addr {
		t.Errorf("address %s, want %s", k.Addrs()[0], addr)
	}
}

func TestWhatCannotBeServedIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as directory: error %v", err)
	}
	if _, err := Start(Config{}); err == nil {
		t.Error("no directory: no error")
	}
	for _, addr := range []string{":0", "0.0.0.0:0", "10.0.0.1:9092", "example.org:9092"} {
		if _, err := Start(Config{Dir: t.TempDir(), Addr: addr}); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: error %v", addr, err)
		}
	}
}

func TestTopicsAreCreatedByAskingOnlyWhenConfigured(t *testing.T) {
	for _, auto := range []bool{false, true} {
		k := start(t, Config{Dir: t.TempDir(), AutoCreateTopics: auto, Partitions: 3})
		c := client(t, k.Addrs()[0], kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(1))
		err := c.ProduceSync(deadline(t), &kgo.Record{Topic: "new", Value: []byte("x")}).FirstErr()
		if auto != (err == nil) {
			t.Errorf("auto %v: error %v", auto, err)
		}
		topics, err := kadm.NewClient(c).ListTopics(deadline(t))
		if err != nil || topics.Has("new") != auto || auto && len(topics["new"].Partitions) != 3 {
			t.Errorf("auto %v: topics %v, error %v", auto, topics.Names(), err)
		}
	}
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	k, err := Start(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	createTopic(t, k.Addrs()[0], "t", 1)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", k.Addrs()[0]); err == nil {
		t.Errorf("still listening: %v", conn.Close())
	}
}

func TestSaramaTransactsAndReadsInAGroup(t *testing.T) {
	dir := t.TempDir()
	k := start(t, Config{Dir: dir})
	createTopic(t, k.Addrs()[0], "t", 1)

	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Transaction.ID = "tx"
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	p, err := sarama.NewSyncProducer(k.Addrs(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	send := func(value string, end func() error) {
		t.Helper()
		if err := p.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "t", Value: sarama.StringEncoder(value)}); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	send("a", p.CommitTxn)
	send("lost", p.AbortTxn)
	send("b", p.CommitTxn)

	if got := readGroup(t, k.Addrs(), cfg, 2); got != "a b" {
		t.Errorf("first reader: %q", got)
	}
	send("c", p.CommitTxn)
	if got := readGroup(t, k.Addrs(), cfg, 1); got != "c" {
		t.Errorf("second reader of the group: %q", got)
	}
}

// readGroup reads n records as the only member of a group, and commits them.
func readGroup(t *testing.T, addrs []string, cfg *sarama.Config, n int) string {
	t.Helper()
	g, err := sarama.NewConsumerGroup(addrs, "g", cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{want: n}
	if err := g.Consume(deadline(t), []string{"t"}, h); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(h.got, " ")
}

type handler struct {
	want int
	got  []string
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.got = append(h.got, string(m.Value))
			s.MarkMessage(m, "")
			if len(h.got) == h.want {
				return nil
			}
		}
	}
}
