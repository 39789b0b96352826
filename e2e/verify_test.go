package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/stage"
	"notifymirror/mirror"
)

// An operator compares a mirror with its binlog while it copies, and is told what somebody has
// added to it.
func TestAnOperatorComparesTheMirrorWithTheBinlog(t *testing.T) {
	s := stage.New(t)
	_, canald, c := s.Running()
	s.Topic(c, "trades")
	load := s.Load(c, "trades", 2)
	load.AwaitMore(500, time.Minute)
	r := s.Mirror("trades")
	r.Await(100, time.Minute)

	verify := func(args ...string) (v mirror.Verdict, result stage.Result) {
		t.Helper()
		result = stage.Command(t, "notify", append([]string{"mirror", "verify", "--config", canald.Config(), "-o", "json"}, args...)...)
		if result.Code < 2 {
			if err := json.Unmarshal([]byte(result.Stdout), &v); err != nil {
				t.Fatalf("%s %s: %v", result.Stdout, result.Stderr, err)
			}
		}
		return v, result
	}
	v, result := verify()
	if result.Code != 0 || !v.Equal() || v.Messages < 100 || v.Messages != v.Records || len(v.Notes) > 0 {
		t.Errorf("under load: %+v", result)
	}
	acked := load.Stop()
	r.Await(len(acked), time.Minute)

	twice := r.Records[50]
	writer, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: twice.Topic, Partition: twice.Partition, Key: twice.Key, Value: twice.Value, Headers: twice.Headers, Timestamp: twice.Timestamp}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	v, result = verify("--since", "10m")
	if result.Code != 1 || len(v.Named) != 1 || v.Named[0].What != mirror.Repeated || v.Named[0].ID != stage.Header(twice, "notify-id") || len(v.Differing) != 1 {
		t.Errorf("repeated: %+v", result)
	}
	text := stage.Command(t, "notify", "mirror", "verify", "--config", canald.Config())
	if text.Code != 1 || !strings.Contains(text.Stdout, "repeated\t"+stage.Header(twice, "notify-id")) || !strings.Contains(text.Stderr, "differs from its binlog in 1 of") {
		t.Errorf("as text: %+v", text)
	}

	elsewhere := s.Canald("elsewhere", "cluster: elsewhere") // given twice
	for _, bad := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--since", "yesterday"}, 2, "--since"},
		{[]string{"--until", "2h"}, 2, "later than --since"},
		{[]string{"--store", "b"}, 2, "name one of a"},
		{[]string{"--config", elsewhere.Config()}, 2, "cluster"},
	} {
		if _, result := verify(bad.args...); result.Code != bad.code || !strings.Contains(result.Stderr, bad.says) {
			t.Errorf("%v: %+v", bad.args, result)
		}
	}
	s.Kafka = stage.Free(t)
	if _, result := verify("--config", s.Canald("cut").Config()); result.Code != 6 || !strings.Contains(result.Stderr, "not compared: kafka "+s.Kafka) {
		t.Errorf("without Kafka: %+v", result)
	}
}

// Where no canald runs the commands read and change a checkpoint themselves; where one copies
// they do not, and name it.
func TestACheckpointIsChangedWhereNoCanaldRuns(t *testing.T) {
	s := stage.New(t)
	_, canald, c := s.Running()
	s.Topic(c, "trades")
	load := s.Load(c, "trades", 2)
	s.Mirror("trades").Await(100, time.Minute)
	canald.Stop()
	load.AwaitMore(300, time.Minute)
	acked := load.Stop()

	nobody := stage.Free(t)
	command := func(code int, says string, args ...string) {
		t.Helper()
		args = append(append([]string{"mirror", "--ops", nobody}, args...), "--config", canald.Config())
		if r := stage.Command(t, "notify", args...); r.Code != code || !strings.Contains(r.Stdout+r.Stderr, says) {
			t.Errorf("%v: %+v, want %d and %q", args, r, code, says)
		}
	}
	command(0, "generation\t1\n", "checkpoint", "show")
	command(0, "done\tfalse\n", "grow", "trades", "--partitions", "12", "--dry-run")
	command(0, "12 instead of 8\n", "grow", "trades", "--partitions", "12", "--yes")
	command(0, "done\tfalse\n", "checkpoint", "reset", "--dry-run")
	command(1, "copying into Kafka up to the gap\nnotify: checkpoint not changed: the mirror has not halted, there is no gap\n", "resume", "--accept-gap")
	canald.Start()
	command(1, "mirror is active", "checkpoint", "reset", "--yes")

	r := s.Mirror("trades") // which knows the partitions of now
	r.Await(len(acked), time.Minute)
	r.Rest()
	high := int32(0)
	for _, rec := range r.Records {
		high = max(high, rec.Partition)
	}
	if len(r.Records) != len(acked) || high < 8 {
		t.Errorf("%d records of %d messages, in partitions up to %d", len(r.Records), len(acked), high)
	}
}
