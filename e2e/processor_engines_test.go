//go:build engines

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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

// A processor numbers the records of each partition, and Apache Kafka is killed under it, anywhere in a transaction. The
// processor lives on, and a reader of committed records finds each number once, in order.
//
// One fault is Kafka's own, and ends a play: a 4.4 that is killed between the decision on a transaction and its markers
// comes back without a leader for the partitions, takes them for deleted, and writes no marker ("Couldn't find leader
// endpoint", in its log). Their readers of committed records then stand still for ever. So must the processor, whose next
// commit would commit an aborted transaction of the same producer as well; nothing may be there twice. Then another Kafka
// is played with.
func TestAProcessorIsExactThoughKafkaIsKilled(t *testing.T) {
	const plays = 5
	random := stage.Random(t)
	for range plays {
		lost := newNumbering(t).play(random)
		if len(lost) == 0 {
			return
		}
		for _, one := range lost {
			t.Logf("Kafka lost the end of a transaction: %s", one)
		}
	}
	t.Fatalf("Kafka lost the end of a transaction in each of %d plays", plays)
}

const (
	numberPartitions = 2
	numbersEach      = 2000
	numbersTopic     = "numbers"
	numbersState     = "numbering-state"
)

// numbering is a play of a processor on a Kafka of its own.
type numbering struct {
	t     *testing.T
	k     *engines.Kafka
	admin *kadm.Client
	ids   []string // transactional, of the processor
}

func newNumbering(t *testing.T) *numbering {
	t.Helper()
	k, err := engines.StartKafka(t.Context(), engines.KafkaConfig{Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	p := &numbering{t: t, k: k, admin: kadm.NewClient(client)}
	input := record.TopicName("", "trades")
	for _, topic := range []string{input, numbersTopic} {
		if _, err := p.admin.CreateTopic(t.Context(), numberPartitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	source := record.Source{Store: uuid.NewString(), Generation: 1}
	var all []*kgo.Record
	for i := range numberPartitions * numbersEach {
		r := record.Encode(record.Message{ID: uuid.New(), Topic: "trades", Key: []byte("k"), Body: fmt.Append(nil, i/numberPartitions),
			BornAt: time.Now(), CommitTime: time.Now(), Source: source, Seq: uint64(i + 1)})
		x := &kgo.Record{Topic: input, Partition: int32(i % numberPartitions), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			x.Headers = append(x.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		all = append(all, x)
	}
	if err := client.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for partition := range numberPartitions {
		p.ids = append(p.ids, fmt.Sprintf("numbering/%s/%d", input, partition))
	}
	return p
}

// play runs the processor and kills Kafka under it. It returns what Kafka lost, which ends the play.
func (p *numbering) play(random *rand.Rand) (lost []string) {
	p.t.Helper()
	processor, err := stream.NewProcessor(stream.ProcessorConfig{
		// A session longer than Kafka takes to start: a transaction that times out meanwhile loses its end as well.
		Config: stream.Config{Brokers: []string{p.k.Addr()}, Topics: []string{"trades"}, Group: "numbering",
			SessionTimeout: 30 * time.Second, BatchRecords: 7, BatchWait: time.Millisecond},
		State:   numbersState,
		Process: numberRecords,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(p.t.Context())
	ran := make(chan error, 1)
	go func() { ran <- processor.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ran; err != nil {
			p.t.Error(err)
		}
		p.audit(len(lost) == 0)
	}()
	kills := 2 * stage.Soak()
	for i := range kills {
		if lost := p.await(1 + (2*i+random.IntN(2))*numberPartitions*numbersEach/(2*kills+1)); len(lost) > 0 {
			return lost
		}
		<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond)
		p.k.Kill()
		if err := p.k.Restart(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.await(numberPartitions * numbersEach)
}

// numberRecords emits "<number> <body>" for each record; its state is the last number.
func numberRecords(ctx context.Context, step *stream.Step, batch []stream.Record) error {
	n, _ := strconv.Atoi(string(step.Get("n"))) // 0 at first
	for _, r := range batch {
		n++
		step.Emit(numbersTopic, fmt.Append(nil, r.Partition), fmt.Appendf(nil, "%d %s", n, r.Body))
	}
	step.Put("n", fmt.Append(nil, n))
	return ctx.Err()
}

// await waits until n numbers are committed, or stand still for what Kafka has lost.
func (p *numbering) await(n int) (lost []string) {
	p.t.Helper()
	stage.Eventually(p.t, 3*time.Minute, fmt.Sprintf("%d numbers", n), func() error {
		all, err := p.committed()
		if err != nil {
			return err
		}
		count := 0
		for _, values := range all {
			count += len(values)
		}
		if count >= n {
			return nil
		}
		if lost, err = p.lost(); err != nil || len(lost) > 0 {
			return err
		}
		return fmt.Errorf("%d", count)
	})
	return lost
}

// audit wants the numbers of each partition, each once, in order; whole: all of them.
func (p *numbering) audit(whole bool) {
	p.t.Helper()
	var all map[string][]string
	stage.Eventually(p.t, time.Minute, "committed numbers", func() (err error) {
		all, err = p.committed()
		return err
	})
	say := complaints{t: p.t}
	for partition := range numberPartitions {
		values := all[fmt.Sprint(partition)]
		if whole && len(values) != numbersEach {
			p.t.Errorf("partition %d: %d numbers, want %d", partition, len(values), numbersEach)
		}
		for i, v := range values {
			if want := fmt.Sprintf("%d %d", i+1, i); v != want {
				say.say("partition %d: %q, want %q", partition, v, want)
			}
		}
	}
}

// committed are the committed numbers of each partition of the input.
func (p *numbering) committed() (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	ends, err := p.admin.ListCommittedOffsets(ctx, numbersTopic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			from[end.Partition] = kgo.NewOffset().AtStart()
		}
	})
	c, err := kgo.NewClient(kgo.SeedBrokers(p.k.Addr()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{numbersTopic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all := map[string][]string{}
	for left := len(from); left > 0; {
		fetches := c.PollFetches(ctx)
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all[string(r.Key)] = append(all[string(r.Key)], string(r.Value))
			}
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset == end.Offset-1 { // a marker
				left--
			}
		})
	}
	return all, nil
}

// lost are the partitions that have a transaction of the processor open of which Kafka says that it is over, or that it is
// another one.
func (p *numbering) lost() (lost []string, err error) {
	open, err := p.open()
	if err != nil || len(open) == 0 {
		return nil, err
	}
	transactions, err := p.admin.DescribeTransactions(p.t.Context(), p.ids...)
	if err != nil {
		return nil, err
	}
	still, err := p.open() // after that: what was just ending has ended
	if err != nil {
		return nil, err
	}
	for _, at := range open {
		for _, txn := range transactions {
			over := txn.Err == nil && txn.ProducerID == at.ProducerID && !slices.Contains([]string{"Ongoing", "PrepareCommit", "PrepareAbort"}, txn.State)
			if over && slices.Contains(still, at) {
				lost = append(lost, fmt.Sprintf("%s is in state %s, and open in %s/%d from offset %d on",
					txn.TxnID, txn.State, at.Topic, at.Partition, at.CurrentTxnStartOffset))
			}
		}
	}
	return lost, nil
}

// open are the producers that have a transaction open in a partition.
func (p *numbering) open() (open []kadm.DescribedProducer, err error) {
	topics, err := p.admin.DescribeProducers(p.t.Context(), kadm.TopicsSet{numbersTopic: nil, numbersState: nil, "__consumer_offsets": nil})
	if err != nil {
		return nil, err
	}
	topics.EachProducer(func(at kadm.DescribedProducer) {
		if at.CurrentTxnStartOffset >= 0 {
			open = append(open, at)
		}
	})
	return open, nil
}
