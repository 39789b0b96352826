package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/canal"
	"notifymirror/mirror/record"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// everything is a range that leaves nothing out.
func everything() Range { return Range{Since: time.Unix(0, 0)} }

// verified compares a real store with the mirror.
func (b *storeBench) verified(over Range) Verdict {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	v, err := Verify(ctx, b.config, b.store, b.deps(), over)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) deps() Deps {
	return Deps{Logger: testLogger(b.t), Registerer: prometheus.NewPedanticRegistry()}
}

// scripted compares the script with the mirror.
func (b *bench) scripted(over Range) Verdict {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	v, err := b.tryScripted(ctx, over)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) tryScripted(ctx context.Context, over Range) (Verdict, error) {
	return b.copier(func(c *Copier) {
		c.startBefore = func(context.Context, time.Time) (canal.Position, error) {
			return canal.Position{Flavor: canal.MariaDB}, nil
		}
	}).verify(ctx, over)
}

// says compares what a verdict names with lines of what and id.
func says(t *testing.T, v Verdict, want ...string) {
	t.Helper()
	var got []string
	for _, d := range v.Named {
		got = append(got, string(d.What)+" "+d.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || v.Equal() != (len(want) == 0) || v.More {
		t.Errorf("named %.2000q, want %.2000q; %d messages, %d records, notes %q", got, want, v.Messages, v.Records, v.Notes)
	}
}

// What a real store has committed is in the mirror, be it copied, not copied yet, or none of
// the mirror's affair; and the comparison disturbs nobody.
func TestAnExactMirrorIsEqualToItsBinlog(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.grantFiles()
	b.config.ServerID = 77
	b.insert(0, 1500, "trades", short)
	c := b.realCopier()
	stop := b.run(c)
	for i := range 10 {
		b.insert(i%scriptShards, 1+i, "news", short)
	}
	b.awaitSeq(c)
	v := b.verified(everything())
	if says(t, v); v.Messages != uint64(len(b.ids)) || v.Records != v.Messages || v.Minutes == 0 || len(v.Notes) > 0 {
		t.Errorf("%.2000s", fmt.Sprintf("%+v", v))
	}
	b.insert(1, 5, "trades", short)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(b.ids))
	b.insert(2, 7, "trades", short)
	if v := b.verified(everything()); !v.Equal() || v.Messages != n || v.Records != n {
		t.Errorf("behind: %.2000s", fmt.Sprintf("%+v", v))
	}
	if s := c.Status(); s.LastError != "" {
		t.Errorf("the mirror was disturbed: %+v", s)
	}
}

// grantFiles lets the mirror's account list the binlog files.
func (b *storeBench) grantFiles() {
	b.t.Helper()
	b.sql("GRANT REPLICATION CLIENT ON *.* TO mirror_" + b.storeID[:8] + "@'127.0.0.1'")
}

// What is missing, repeated, foreign, or no record of ours is named, each with its place.
func TestEachDifferenceIsNamedWithItsPlace(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.grantFiles()
	b.insert(0, 300, "trades", short)
	b.copiedReal()
	b.insert(1, 3, "trades", short) // will be passed over
	b.passOver()
	var want []string
	for _, id := range b.ids[300:303] {
		want = append(want, "missing "+id.String())
	}
	says(t, b.verified(everything()), want...)

	again := b.oracle()[10]
	stranger := uuid.Must(uuid.NewV7())
	foreign := again.Message
	foreign.ID, foreign.Seq, foreign.Key = stranger, 1<<20, []byte("k")
	foreign.Source.Generation = 1
	b.produce(again.topic, again.partition, record.Encode(again.Message))
	b.produce(again.topic, again.partition, record.Encode(foreign))
	b.produce(again.topic, again.partition, record.Record{Value: []byte("somebody's"), Timestamp: again.CommitTime})
	v := b.verified(everything())
	says(t, v, append(want, "repeated "+again.ID.String(), "foreign "+stranger.String(), "unreadable ")...)
	for _, d := range v.Named {
		if d.Topic != b.prefix+"trades" || (d.Offset < 0) != (d.What == Missing) || d.What == Repeated && (d.Partition != again.partition || d.Seq != again.Seq) {
			t.Errorf("%+v", d)
		}
	}
	if len(v.Differing) == 0 || v.Differing[0].MessagesHash == v.Differing[0].RecordsHash {
		t.Errorf("minutes %+v", v.Differing)
	}
}

// passOver sets the checkpoint behind all that was committed, and has another 20 messages copied.
func (b *storeBench) passOver() {
	b.t.Helper()
	c := b.realCopier()
	info, err := c.readStore(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	p := &change{Change: Change{What: SetCheckpoint, Position: info.position.GTIDs}, done: make(chan struct{})}
	c.propose(p)
	stop := b.run(c)
	<-p.done
	b.insert(1, 20, "trades", short)
	eventually(b.t, func() error {
		if s := c.Status(); s.Generation != 2 || s.Seq != 20 {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
}

// produce writes records as anybody can.
func (b *bench) produce(topic string, partition int32, all ...record.Record) {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	var out []*kgo.Record
	for _, rec := range all {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}
		for _, h := range rec.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		out = append(out, r)
	}
	if err := cl.ProduceSync(b.t.Context(), out...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// Whole minutes are compared, and no others.
func TestTheRangeIsOfWholeMinutes(t *testing.T) {
	b := newBench(t)
	begin := b.script.start.Truncate(time.Minute)
	for i := range 10 {
		b.script.addAt(begin.Add(time.Duration(i)*30*time.Second), scriptMessage{topic: "trades", key: fmt.Sprint(i)}, scriptMessage{topic: "trades", unmirrored: true})
	}
	b.copied()
	for _, c := range []struct {
		since, until time.Duration
		want         uint64
	}{
		{0, 0, 10}, {time.Minute, 0, 8}, {time.Minute + time.Second, 0, 8}, {2 * time.Minute, 3 * time.Minute, 2},
		{2 * time.Minute, 2*time.Minute + time.Second, 2}, {4 * time.Minute, 0, 2},
	} {
		over := Range{Since: begin.Add(c.since)}
		if c.until > 0 {
			over.Until = begin.Add(c.until)
		}
		if v := b.scripted(over); !v.Equal() || v.Messages != c.want || v.Records != c.want {
			t.Errorf("from %s to %s: %+v, want %d", c.since, c.until, v, c.want)
		}
	}
}

// Where nothing was compared there is no verdict, and it is said why.
func TestWhatComparesNothingIsNotEqual(t *testing.T) {
	b := newBench(t)
	begin := b.script.start.Truncate(time.Minute)
	if _, err := b.tryScripted(t.Context(), everything()); err == nil {
		t.Error("a mirror that does not exist is equal")
	}
	for i := range 4 {
		b.script.addAt(begin.Add(time.Duration(i)*30*time.Second), scriptMessage{topic: "trades", key: fmt.Sprint(i)})
	}
	b.copied()
	for _, c := range []struct {
		since, until time.Duration
		says         string
	}{
		{2 * time.Minute, 0, "the last message of the mirror was committed at"},
		{200000 * time.Hour, 0, "the last message of the mirror was committed at"},
		{2 * time.Minute, 3 * time.Minute, "the last message of the mirror was committed at"},
		{time.Minute, time.Minute, "no minute is left before"},
		{time.Hour, time.Minute, "no minute is left before"},
	} {
		over := Range{Since: begin.Add(c.since)}
		if c.until > 0 {
			over.Until = begin.Add(c.until)
		}
		if v, err := b.tryScripted(t.Context(), over); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("from %s to %s: %+v, %v, want %q", c.since, c.until, v, err, c.says)
		}
	}
}

// A later generation may copy again what an earlier one has; that is no repeat.
func TestWhatALaterGenerationCopiesAgainIsNotRepeated(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 30, 20, "trades", "news")
	c := b.copier()
	b.runAgain(c)
	b.await(c)
	b.changed(c, Change{What: SetCheckpoint, Position: "0-1-10"})
	b.await(c)
	v := b.scripted(everything())
	if says(t, v); v.Records <= v.Messages {
		t.Errorf("%.2000s", fmt.Sprintf("%+v", v))
	}
}

// Of a transaction that is half copied that half is compared.
func TestAHalfCopiedTransactionIsComparedByHalf(t *testing.T) {
	b := newBench(t)
	b.config.BatchRecords, b.config.TransactionTimeout = 10, time.Second
	b.script.random(newRand(t), 5, 5, "trades")
	ms := slices.Repeat([]scriptMessage{{topic: "trades", key: "k"}}, 100)
	b.script.add(ms...)
	d := new(faultyDialer)
	dead := make(chan struct{})
	p := &trap{key: apiEndTxn, nth: 5, do: func() { d.cut(true); close(dead) }}
	p.set(d)
	stop := b.run(b.copier(func(c *Copier) { c.dialer = d }))
	<-dead
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k, err := dial(b.config, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	saved, _, err := readCheckpoint(t.Context(), k, checkpointTopic(b.storeID))
	if err != nil || saved.checkpoint.OpenGTID == "" {
		t.Fatalf("checkpoint %+v, %v", saved.checkpoint, err)
	}
	v := b.scripted(everything())
	if says(t, v); v.Messages < saved.checkpoint.OpenCopied || v.Messages > saved.checkpoint.Seq {
		t.Errorf("%.2000s", fmt.Sprintf("%+v", v))
	}
}

// What the server or Kafka no longer has is not compared, and that is said.
func TestWhatIsGoneIsNotCompared(t *testing.T) {
	b := newStoreBench(t, dbtest.Private(t, embedded.Config{}))
	b.grantFiles()
	b.insert(0, 10, "trades", short)
	b.copiedReal()
	b.purge()
	b.insert(0, 10, "trades", short)
	b.copiedReal()
	for until, says := range map[time.Time]string{{}: "begin earlier", time.Unix(3600, 0): "choose a later end"} {
		v, err := Verify(t.Context(), b.config, b.store, b.deps(), Range{Since: time.Unix(0, 0), Until: until})
		if err == nil || !strings.Contains(err.Error(), "binlog that the server still has begins") || !strings.Contains(err.Error(), says) {
			t.Errorf("until %s: %.2000s, %v", until, fmt.Sprintf("%+v", v), err)
		}
	}
}

func TestAStoreThatWasNeverMirroredIsNotCompared(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	if _, err := Verify(t.Context(), b.config, b.store, b.deps(), everything()); !errors.Is(err, ErrCheckpointLost) || !strings.Contains(err.Error(), "start canald first") {
		t.Error(err)
	}
}
