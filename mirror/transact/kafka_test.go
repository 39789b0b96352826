package transact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watched is a Kafka of a test's own, which notes what is asked of it.
type watched struct {
	addr string

	mu         sync.Mutex
	asked      []kmsg.Key
	leaderless bool // no partition has a leader
}

func watch(t *testing.T) *watched {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, "out", "in"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	w := &watched{addr: cluster.ListenAddrs()[0]}
	cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // its signature
		cluster.KeepControl()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, kmsg.Key(req.Key()))
		if meta, ok := req.(*kmsg.MetadataRequest); ok && w.leaderless {
			return leaderless(meta, w.addr), nil, true
		}
		return nil, nil, false
	})
	return w
}

// leaderless is the answer of a cluster in which no partition has a leader.
func leaderless(req *kmsg.MetadataRequest, addr string) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	b := kmsg.NewMetadataResponseBroker()
	var port int
	host, text, _ := strings.Cut(addr, ":")
	_, _ = fmt.Sscan(text, &port)
	b.NodeID, b.Host, b.Port = 0, host, int32(port)
	resp.Brokers = append(resp.Brokers, b)
	for _, asked := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = asked.Topic
		for n := range int32(200) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.ErrorCode = n, -1, 5
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// since forgets what was asked, and returns it.
func (w *watched) since() []kmsg.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.asked
	w.asked = nil
	return all
}

func newClient(t *testing.T, addr string) sarama.Client {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	conf.Metadata.AllowAutoTopicCreation = false
	conf.Metadata.Retry.Max = 0
	c, err := sarama.NewClient([]string{addr}, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newProducer(t *testing.T, addr, id string) *Producer {
	t.Helper()
	p, err := New(t.Context(), newClient(t, addr), id, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// anyKafka is the Kafka that the tests' environment names, or an embedded one, with topics
// "in" and "out" of the test's own.
func anyKafka(t *testing.T) (addr, in, out string) {
	t.Helper()
	addr = os.Getenv("NOTIFY_TEST_KAFKA")
	if addr == "" {
		return watch(t).addr, "in", "out"
	}
	admin := kadm.NewClient(reader(t, addr))
	in, out = fmt.Sprintf("in-%d", time.Now().UnixNano()), fmt.Sprintf("out-%d", time.Now().UnixNano())
	if _, err := admin.CreateTopics(t.Context(), 8, 1, nil, in, out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := admin.DeleteTopics(ctx, in, out); err != nil {
			t.Error(err)
		}
	})
	return addr, in, out
}

func reader(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// committed are the values in partition 0 of a topic, once the last of them is there.
func committed(t *testing.T, addr, topic, last string) (values []string) {
	t.Helper()
	c := reader(t, addr, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !slices.Contains(values, last) {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read %q: %v", values, err)
		}
		for _, r := range fetches.Records() {
			values = append(values, string(r.Value))
		}
	}
	return values
}

func (p *Producer) write0(topic, value string) {
	p.Send(Partition{Topic: topic}, time.UnixMilli(1764400000000), &sarama.Record{Value: []byte(value)})
}

// Whoever waits for the group's offsets waits for all that a transaction wrote.
func TestOffsetsGoBeforeRecords(t *testing.T) {
	w := watch(t)
	p := newProducer(t, w.addr, "id")
	w.since()
	p.write0("out", "a")
	p.Offset(Member{Group: "group", Generation: -1}, Partition{Topic: "in"}, 7, "note")
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var order []kmsg.Key
	for _, key := range w.since() {
		if slices.Contains([]kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.Produce, kmsg.EndTxn}, key) {
			order = append(order, key)
		}
	}
	if want := []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.Produce, kmsg.EndTxn}; !slices.Equal(order, want) {
		t.Errorf("asked %v, want %v", order, want)
	}
	offsets, err := kadm.NewClient(reader(t, w.addr)).FetchOffsets(t.Context(), "group")
	if err != nil {
		t.Fatal(err)
	}
	if o, found := offsets.Lookup("in", 0); !found || o.At != 7 || o.Metadata != "note" {
		t.Errorf("committed %+v", o)
	}
}

// Many partitions without a leader are asked for together, not one after another.
func TestLeadersAreLookedUpTogether(t *testing.T) {
	w := watch(t)
	p := newProducer(t, w.addr, "id")
	w.mu.Lock()
	w.leaderless = true
	w.mu.Unlock()
	w.since()
	var parts []Partition
	for n := range int32(200) {
		parts = append(parts, Partition{"elsewhere", n})
	}
	leaders, failed := p.leaders(parts)
	if len(leaders) != 0 || len(failed) != len(parts) || !errors.Is(failed[0], sarama.ErrLeaderNotAvailable) {
		t.Fatalf("%d leaders, %d without one: %v", len(leaders), len(failed), failed[0])
	}
	if n := len(w.since()); n == 0 || n > len(parts)/2 {
		t.Errorf("%d questions for %d partitions", n, len(parts))
	}
}

// Initialising the id ends what the predecessor left open, and nothing of that is ever
// committed, nor does the predecessor commit anything more.
func TestASuccessorShutsItsPredecessorOut(t *testing.T) {
	addr, in, out := anyKafka(t)
	id := "id-" + out
	offset := func(p *Producer, next int64) {
		p.Offset(Member{Group: "group-" + out, Generation: -1}, Partition{Topic: in}, next, "")
	}
	one := newProducer(t, addr, id)
	one.write0(out, "a")
	offset(one, 1)
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	one.write0(out, "b")
	offset(one, 2)
	if err := errors.Join(one.join(t.Context()), one.commitOffsets(t.Context()), one.produce(t.Context())); err != nil {
		t.Fatal(err)
	}
	two := newProducer(t, addr, id)
	if err := one.end(t.Context(), true); !Fenced(err) {
		t.Errorf("the predecessor's commit: %v", err)
	}
	two.write0(out, "b again")
	offset(two, 2)
	if err := two.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, addr, out, "b again"); !slices.Equal(got, []string{"a", "b again"}) {
		t.Errorf("committed %q", got)
	}
}

// A member that the group does not know any more commits nothing.
func TestNobodyCommitsOffsetsButAMember(t *testing.T) {
	addr, in, out := anyKafka(t)
	p := newProducer(t, addr, "id-"+out)
	p.write0(out, "a")
	p.Offset(Member{Group: "group-" + out, ID: "forgotten", Generation: 3}, Partition{Topic: in}, 1, "")
	err := p.Commit(t.Context())
	refused, ok := errors.AsType[*RecordError](err)
	if !ok || refused.Topic != in || !errors.Is(err, sarama.ErrUnknownMemberId) && !errors.Is(err, sarama.ErrIllegalGeneration) {
		t.Fatalf("error %v", err)
	}
	p = newProducer(t, addr, "id-"+out)
	p.write0(out, "b")
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, addr, out, "b"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("committed %q", got)
	}
}
