package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/record"
	"notifymirror/stream"
	"notifymirror/stream/window"
)

// numbering is a processor that numbers the records of each partition: it emits
// "<number> <body>" for each, and its state is the last number.
func numbering(name, out string, brokers []string) stream.ProcessorConfig {
	return stream.ProcessorConfig{
		Config: stream.Config{
			Brokers: brokers, Topics: []string{name}, Group: name, SessionTimeout: 6 * time.Second,
			BatchRecords: 7, BatchWait: time.Millisecond,
		},
		State: name + "-state",
		Process: func(ctx context.Context, step *stream.Step, batch []stream.Record) error {
			n, _ := strconv.Atoi(string(step.Get("n"))) // 0 at first
			for _, r := range batch {
				n++
				step.Emit(out, fmt.Append(nil, r.Partition), fmt.Appendf(nil, "%d %s", n, r.Body))
			}
			step.Put("n", fmt.Append(nil, n))
			return ctx.Err()
		},
	}
}

// processed makes the output topic of a test, and ends the state topic with it.
func processed(t testing.TB, name string) (out string) {
	t.Helper()
	out = rawTopic(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := kadm.NewClient(client(t)).DeleteTopic(ctx, name+"-state")
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Error(err)
		}
	})
	return out
}

// outputs reads the committed records of the output topic, until there are n.
func outputs(t testing.TB, out string, n int) map[string][]string {
	t.Helper()
	c := client(t, kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	byPartition := map[string][]string{}
	for got := 0; got < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d outputs of %d: %v", got, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			byPartition[string(r.Key)] = append(byPartition[string(r.Key)], string(r.Value))
			got++
		})
	}
	return byPartition
}

func (r *running) process(t testing.TB, cfg stream.ProcessorConfig) {
	t.Helper()
	p, err := stream.NewProcessor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(deadline(t))
	r.done = make(chan error, 1)
	go func() { r.done <- p.Run(ctx) }()
	t.Cleanup(func() { r.cancel(); <-r.done })
}

func processor(t testing.TB, cfg stream.ProcessorConfig) *running {
	t.Helper()
	r := &running{}
	r.process(t, cfg)
	return r
}

func TestTheSizeOfAProcessorsStateIsTold(t *testing.T) {
	name := topic(t, 1)
	out := processed(t, name)
	m := newMirror(t, name)
	m.commit(0, "a", "b")
	cfg := numbering(name, out, brokers())
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	r := processor(t, cfg)
	outputs(t, out, 2)
	waitGauge(t, reg, "notify_stream_state_entries", func(sum float64, series int) bool { return sum == 1 && series == 1 })
	waitGauge(t, reg, "notify_stream_state_bytes", func(sum float64, series int) bool { return sum > 1 && series == 1 })
	r.stop(t)
	for _, name := range []string{"notify_stream_state_entries", "notify_stream_state_bytes"} {
		if _, series := gauge(t, reg, name); series != 0 {
			t.Errorf("%s is still told of a partition that was given up", name)
		}
	}
}

func TestAProcessorsStateAndOutputsGoOnWhereItStopped(t *testing.T) {
	name := topic(t, 1)
	out := processed(t, name)
	m := newMirror(t, name)
	m.commit(0, "a", "b")
	cfg := numbering(name, out, brokers())
	r := processor(t, cfg)
	outputs(t, out, 2)
	r.stop(t)
	m.abort(0, "no")
	m.commit(0, "c")
	r = processor(t, cfg)
	if got := strings.Join(outputs(t, out, 3)["0"], ", "); got != "1 a, 2 b, 3 c" {
		t.Errorf("outputs %q", got)
	}
	r.stop(t)
	if got := committed(t, name, name, 0); got < 6 {
		t.Errorf("committed %d, want at least 6", got)
	}
	configs, err := kadm.NewClient(client(t)).DescribeTopicConfigs(deadline(t), cfg.State)
	if err != nil || !slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "cleanup.policy" && *c.Value == "compact" }) {
		t.Errorf("the state topic is not compacted; error %v", err)
	}
}

func TestAStepThatFailsLeavesNothing(t *testing.T) {
	name := topic(t, 1)
	out := processed(t, name)
	newMirror(t, name).commit(0, "a", "b", "c")
	cfg := numbering(name, out, brokers())
	count := cfg.Process
	boom := errors.New("boom")
	tries := 0
	cfg.BatchRecords = 1
	cfg.Process = func(ctx context.Context, step *stream.Step, batch []stream.Record) error {
		if err := count(ctx, step, batch); err != nil {
			return err
		}
		switch tries++; {
		case tries < 3:
			return stream.RetryAfter(time.Millisecond)
		case string(batch[0].Body) == "b":
			return boom
		}
		return nil
	}
	err := processor(t, cfg).wait(t)
	he, ok := errors.AsType[*stream.HandlerError](err)
	if !ok || he.Offset != 1 || !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	cfg.Process = count // mended
	r := processor(t, cfg)
	if got := strings.Join(outputs(t, out, 3)["0"], ", "); got != "1 a, 2 b, 3 c" {
		t.Errorf("outputs %q", got)
	}
	r.stop(t)

	cfg.MaxState = 1 // "n" and a number have two
	cfg.Group += "-again"
	cfg.State += "-again"
	if err := processor(t, cfg).wait(t); !errors.Is(err, stream.ErrStateTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, err := kadm.NewClient(client(t)).DeleteTopic(deadline(t), cfg.State); err != nil {
		t.Error(err)
	}
}

func TestStateIsTakenOverByOtherMembers(t *testing.T) {
	const partitions, each = 4, 60
	name := topic(t, partitions)
	out := processed(t, name)
	m := newMirror(t, name)
	send := func(from int) {
		for p := range int32(partitions) {
			var bodies []string
			for i := range each {
				bodies = append(bodies, fmt.Sprint(from+i))
			}
			m.commit(p, bodies...)
		}
	}
	send(0)
	cfg := numbering(name, out, brokers())
	one := processor(t, cfg)
	outputs(t, out, partitions*each/4)
	two := processor(t, cfg)
	send(each)
	outputs(t, out, partitions*each*3/2)
	one.stop(t)
	expectNumbered(t, outputs(t, out, 2*partitions*each), partitions, 2*each)
	two.stop(t)
}

func TestATopicThatGrewIsProcessedWithStateForEachPartition(t *testing.T) {
	name := topic(t, 1)
	out := processed(t, name)
	newMirror(t, name).commit(0, "0", "1")
	cfg := numbering(name, out, brokers())
	r := processor(t, cfg)
	outputs(t, out, 2)
	r.stop(t)
	kafka := record.TopicName("", name)
	if _, err := kadm.NewClient(client(t)).CreatePartitions(deadline(t), 1, kafka); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "second partition", func() bool {
		td, err := kadm.NewClient(client(t)).ListTopics(deadline(t), kafka)
		return err == nil && len(td[kafka].Partitions) == 2
	})
	newMirror(t, name).commit(1, "0", "1")
	r = processor(t, cfg)
	expectNumbered(t, outputs(t, out, 4), 2, 2)
	r.stop(t)
}

// expectNumbered wants the outputs 1 to n of each partition, each once, in order, for the
// bodies 0 to n-1.
func expectNumbered(t *testing.T, got map[string][]string, partitions, n int) {
	t.Helper()
	for p := range partitions {
		outs := got[fmt.Sprint(p)]
		if len(outs) != n {
			t.Errorf("partition %d: %d outputs, want %d", p, len(outs), n)
		}
		for i, o := range outs {
			if want := fmt.Sprintf("%d %d", i+1, i); o != want {
				t.Errorf("partition %d: output %q, want %q", p, o, want)
				break
			}
		}
	}
}

func TestWhatAProcessorCannotDoIsSaidAtTheStart(t *testing.T) {
	_, err := stream.NewProcessor(stream.ProcessorConfig{Config: stream.Config{
		Topics: []string{"a", "b"}, ReadUncommitted: true, RejectTopic: "r", Handler: newSeen().handle,
	}})
	for _, field := range []string{"Brokers:", "Topics:", "Group:", "State:", "Process:", "ReadUncommitted:", "RejectTopic:", "Handler:"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	name := topic(t, 1)
	cfg := numbering(name, "nowhere", brokers())
	cfg.State = rawTopic(t)
	if err := processor(t, cfg).wait(t); err == nil || !strings.Contains(err.Error(), "cleanup.policy") {
		t.Errorf("a state topic that is not compacted: error %v", err)
	}
}

// totalling adds up the numbers of each partition in windows of a hundred of them, and emits
// "<first> <sum>" of each that is closed. The windows are its state.
func totalling(name, out string, brokers []string) stream.ProcessorConfig {
	cfg := numbering(name, out, brokers)
	cfg.Process = func(_ context.Context, step *stream.Step, batch []stream.Record) error {
		w, err := window.Restore(window.Config{Size: 100 * time.Second}, step.Get("windows"))
		if err != nil {
			return err
		}
		for _, r := range batch {
			n, _ := strconv.ParseInt(string(r.Body), 10, 64) // commitNumbers made it
			if late, err := w.Add(window.Event{Time: time.Unix(n, 0), Amount: n}); err != nil || len(late) > 0 {
				return fmt.Errorf("number %d is late for %v: %w", n, late, err)
			}
		}
		for _, closed := range w.Due() {
			total, err := closed.Total()
			if err != nil {
				return err
			}
			step.Emit(out, fmt.Append(nil, batch[0].Partition), fmt.Appendf(nil, "%d %d", closed.Start.Unix(), total.Sum))
		}
		snapshot, err := w.Snapshot()
		step.Put("windows", snapshot)
		return err
	}
	return cfg
}

const (
	childProcessor = "NOTIFY_STREAM_CHILD_PROCESSOR"
	childOut       = "NOTIFY_STREAM_CHILD_OUT"
	childTotals    = "NOTIFY_STREAM_CHILD_TOTALS"
)

// runProcessor is a member that the test kills.
func runProcessor() {
	make := numbering
	if os.Getenv(childTotals) != "" {
		make = totalling
	}
	cfg := make(os.Getenv(childProcessor), os.Getenv(childOut), []string{os.Getenv(kafkaEnv)})
	cfg.Client = takingOver
	p, err := stream.NewProcessor(cfg)
	if err == nil {
		err = p.Run(context.Background())
	}
	fmt.Println("error", err)
}

// takingOver lets a member take a killed one's place at once.
func takingOver(sc *sarama.Config) { sc.Consumer.Group.InstanceId = "child" }

// killed runs processors of a topic that are killed one after another, anywhere, while they write
// the first of so many outputs.
func killed(t *testing.T, name, out string, total int, env ...string) {
	t.Helper()
	const kills = 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	at := 0
	for range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(append(os.Environ(), childProcessor+"="+name, childOut+"="+out), env...)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() }) // it was killed
		at += 1 + random.IntN(total/kills)
		outputs(t, out, at)
		pause := time.NewTimer(time.Duration(random.IntN(20_000)) * time.Microsecond) // anywhere in a transaction
		<-pause.C
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// An aggregate topic never double-counts, whenever the processor dies.
func TestKilledProcessorsCountEachRecordOnce(t *testing.T) {
	const partitions, each = 2, 1500
	name := topic(t, partitions)
	out := processed(t, name)
	newMirror(t, name).commitNumbers(partitions, each)
	killed(t, name, out, partitions*each)
	cfg := numbering(name, out, brokers())
	cfg.Client = takingOver
	r := processor(t, cfg)
	expectNumbered(t, outputs(t, out, partitions*each), partitions, each)
	r.stop(t)
	// Nothing is left behind what was expected.
	ends, err := kadm.NewClient(client(t)).ListCommittedOffsets(deadline(t), record.TopicName("", name))
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(partitions) {
		if end, _ := ends.Lookup(record.TopicName("", name), p); committed(t, name, name, p) < end.Offset-1 {
			t.Errorf("partition %d: committed %d of %d", p, committed(t, name, name, p), end.Offset)
		}
	}
}

// The state of windows is that of the committed offsets, whenever the processor dies: each
// window is handed out once, and its sum is exact.
func TestKilledProcessorsHandOutEachWindowOnce(t *testing.T) {
	const partitions, each, closed = 2, 1500, 14 // the last of a partition stays open
	name := topic(t, partitions)
	out := processed(t, name)
	newMirror(t, name).commitNumbers(partitions, each)
	killed(t, name, out, partitions*closed, childTotals+"=1")
	cfg := totalling(name, out, brokers())
	cfg.Client = takingOver
	r := processor(t, cfg)
	got := outputs(t, out, partitions*closed)
	r.stop(t)
	for p := range partitions {
		var want []string
		for first := 0; first < closed*100; first += 100 {
			want = append(want, fmt.Sprintf("%d %d", first, 100*first+99*100/2))
		}
		if windows := got[fmt.Sprint(p)]; !slices.Equal(windows, want) {
			t.Errorf("partition %d: windows %q, want %q", p, windows, want)
		}
	}
}

// A group's offset may be forgotten, or old: the state knows better.
func TestAProcessorGoesOnWhereItsStateIs(t *testing.T) {
	for what, forget := range map[string]func(admin *kadm.Client, name string) error{
		"old": func(admin *kadm.Client, name string) error {
			old := kadm.Offsets{}
			old.AddOffset(record.TopicName("", name), 0, 0, -1)
			return admin.CommitAllOffsets(deadline(t), name, old)
		},
		"forgotten": func(admin *kadm.Client, name string) error {
			_, err := admin.DeleteGroup(deadline(t), name)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := topic(t, 1)
			out := processed(t, name)
			m := newMirror(t, name)
			m.commit(0, "a", "b")
			cfg := numbering(name, out, brokers())
			r := processor(t, cfg)
			outputs(t, out, 2)
			r.stop(t)
			if err := forget(kadm.NewClient(client(t)), name); err != nil {
				t.Fatal(err)
			}
			m.commit(0, "c")
			r = processor(t, cfg)
			if got := strings.Join(outputs(t, out, 3)["0"], ", "); got != "1 a, 2 b, 3 c" {
				t.Errorf("outputs %q", got)
			}
			r.stop(t)
		})
	}
}
