package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
)

// mirrored starts a Kafka that holds n mirrored messages of topic t in two partitions.
func mirrored(t *testing.T, n int) (addr string) {
	t.Helper()
	var all []record.Message
	for i := range n {
		all = append(all, record.Message{ID: uuid.UUID{15: byte(i)}, Key: fmt.Appendf(nil, "k%d", i), Headers: []record.Header{{Name: "h", Value: "v"}},
			Body: fmt.Appendf(nil, "body %d", i), BornAt: time.Unix(int64(i), 0), CommitTime: time.Unix(int64(i), 0)})
	}
	return kafkaWith(t, all, func(i int) int32 { return int32(i % 2) })
}

// kafkaWith starts a Kafka that holds mirrored messages of topic t, each in the partition given, of two.
func kafkaWith(t *testing.T, messages []record.Message, partition func(i int) int32) (addr string) {
	t.Helper()
	k, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, "notify.t"); err != nil {
		t.Fatal(err)
	}
	for i, m := range messages {
		m.Topic, m.Source, m.Seq = "t", record.Source{Store: "5f1c9e1e-0000-4000-8000-000000000001", Generation: 1}, uint64(i+1)
		r := record.Encode(m)
		out := &kgo.Record{Topic: "notify.t", Partition: partition(i), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		if err := cl.ProduceSync(t.Context(), out).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return k.Addrs()[0]
}

func TestMirrorTailPrintsPartitionsInOrderAndStops(t *testing.T) {
	kafka := mirrored(t, 4)
	r := notify(t, "", "mirror", "tail", "t", "--kafka", kafka, "--from", "oldest", "--to", "newest")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	slices.Sort(lines)
	want := []string{
		"0\t0\t1970-01-01T00:00:00.000Z\tk0\tbody 0",
		"0\t1\t1970-01-01T00:00:02.000Z\tk2\tbody 2",
		"1\t0\t1970-01-01T00:00:01.000Z\tk1\tbody 1",
		"1\t1\t1970-01-01T00:00:03.000Z\tk3\tbody 3",
	}
	if r.code != 0 || !slices.Equal(lines, want) {
		t.Errorf("exit %d, %q, stderr %q", r.code, lines, r.err)
	}
	r = notify(t, "", "mirror", "tail", "t", "--kafka", kafka, "--from", "oldest", "--to", "newest", "--speed", "100")
	if r.code != 0 || strings.Count(r.out, "\n") != 4 {
		t.Errorf("at a speed: exit %d, %q, stderr %q", r.code, r.out, r.err)
	}
	r = notify(t, "", "mirror", "tail", "t", "--kafka", kafka, "--from", "1970-01-01T00:00:03Z", "--to", "newest", "-o", "jsonl")
	r.want(t, 0, `{"id":"00000000-0000-0000-0000-000000000003","topic":"t","key":"k3","headers":{"h":"v"},"body":"body 3","born_at":"1970-01-01T00:00:03Z","partition":1,"offset":1}`+"\n")
}

// From a message's id on is from its record on, and in other partitions from its time on; the
// id as an end is before it.
func TestMirrorTailBeginsAndEndsAtAMessage(t *testing.T) {
	kafka := mirrored(t, 8)
	id := func(n byte) string { return uuid.UUID{15: n}.String() }
	r := notify(t, "", "mirror", "tail", "t", "--kafka", kafka, "--from", id(2), "--to", id(5))
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	slices.Sort(lines)
	want := []string{
		"0\t1\t1970-01-01T00:00:02.000Z\tk2\tbody 2",
		"0\t2\t1970-01-01T00:00:04.000Z\tk4\tbody 4",
		"1\t1\t1970-01-01T00:00:03.000Z\tk3\tbody 3",
	}
	if r.code != 0 || !slices.Equal(lines, want) {
		t.Errorf("exit %d, %q, stderr %q", r.code, lines, r.err)
	}
}

func TestMirrorTailPrintsNoMoreThanCount(t *testing.T) {
	kafka := mirrored(t, 200)
	if r := notify(t, "", "mirror", "tail", "t", "--kafka", kafka, "--from", "oldest", "--count", "3"); r.code != 0 || strings.Count(r.out, "\n") != 3 {
		t.Errorf("%+v", r)
	}
}

func TestMirrorTailTellsWhatIsWrong(t *testing.T) {
	kafka := mirrored(t, 0)
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{2, "--from", []string{"t", "--from", "yesterday"}},
		{2, "--to", []string{"t", "--to", "tomorrow"}},
		{2, "--speed", []string{"t", "--speed", "0"}},
		{4, "unknown", []string{"unknown", "--from", "oldest"}},
		{4, "was not found: searched notify.t from", []string{"t", "--from", "0197a1b2-5c3d-7e4f-8a9b-0c1d2e3f4a5b"}},
		{6, "notify dev", []string{"t", "--kafka", "127.0.0.1:1"}},
	} {
		args := append([]string{"mirror", "tail"}, c.args...)
		if !slices.Contains(args, "--kafka") {
			args = append(args, "--kafka", kafka)
		}
		if r := notify(t, "", args...); r.code != c.code || !strings.Contains(r.err, c.text) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}
