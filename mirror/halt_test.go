package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/canal"
	"notifymirror/mirror/record"
	"notifymirror/notifyd/schema"
)

// mustHalt runs a Copier until it halts, and checks that the operator is told.
func (b *bench) mustHalt(c *Copier, sentinel error, reason Reason, says ...string) {
	b.t.Helper()
	err := b.halts(c)
	var h *Halt
	if !errors.As(err, &h) || !errors.Is(err, sentinel) || h.Reason != reason {
		b.t.Fatalf("ended with %v, want %v", err, sentinel)
	}
	text := h.Error()
	for _, part := range append(says, h.Repair) {
		if !strings.Contains(text, part) || part == "" || strings.Contains(text, "\n") {
			b.t.Fatalf("%q does not say %q in one line", text, part)
		}
	}
	if s := c.Status(); s.State != Halted || s.HaltedReason != reason || s.Repair == "" || c.Ready() == nil {
		b.t.Fatalf("status %+v", s)
	}
}

// copied runs a Copier until the whole script is in Kafka, and stops it.
func (b *bench) copied() {
	b.t.Helper()
	c := b.copier()
	stop := b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
	b.check()
}

// admin is an independent client for what operators do to Kafka.
func (b *bench) admin() *kadm.Client {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func (b *bench) deleteTopic(name string) {
	b.t.Helper()
	admin := b.admin()
	if _, err := admin.DeleteTopic(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
	eventually(b.t, func() error {
		topics, err := admin.ListTopics(b.t.Context(), name)
		if err == nil && topics.Has(name) && !errors.Is(topics[name].Err, context.Canceled) && topics[name].Err == nil {
			return fmt.Errorf("topic %s is still there", name)
		}
		return err
	})
}

func (b *bench) createTopic(name string, partitions int32, config map[string]string) {
	b.t.Helper()
	settings := map[string]*string{}
	for k, v := range config {
		settings[k] = kadm.StringPtr(v)
	}
	if _, err := b.admin().CreateTopic(b.t.Context(), partitions, 1, settings, name); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) alterTopic(name, setting, value string) {
	b.t.Helper()
	res, err := b.admin().AlterTopicConfigs(b.t.Context(), []kadm.AlterConfig{{Name: setting, Value: &value}}, name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range res {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
	}
}

func TestLostCheckpointTopicIsNoFirstStart(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	b.copied()
	b.deleteTopic(checkpointTopic(b.storeID))
	b.mustHalt(b.copier(), ErrCheckpointLost, ReasonCheckpoint, b.storeID)
}

// A lost checkpoint is left by a command, without a hole, in a generation of its own: all that the
// binlog has comes again, and nothing that is there changes.
func TestALostCheckpointIsLeftByAReset(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	b.script.allMirrored()
	b.copied()
	before := len(b.oracle())
	b.deleteTopic(checkpointTopic(b.storeID))
	c := b.copier()
	stop := b.runAgain(c)
	b.awaitHalted(c, ReasonCheckpoint)
	b.refused(c, Change{What: AcceptGap}, "is no gap")
	b.awaitHalted(c, ReasonCheckpoint)
	if look := b.changed(c, Change{What: ResetCheckpoint, DryRun: true}); look.Generation != 2 || !strings.Contains(look.Repeated, "up to 1") {
		t.Errorf("dry run %+v", look)
	}
	b.changed(c, Change{What: ResetCheckpoint})
	b.script.random(newRand(t), 5, 5, "trades")
	b.script.allMirrored()
	all := 0
	for _, txn := range b.script.txns {
		all += len(txn.rows)
	}
	eventually(t, func() error {
		if s := c.Status(); s.Generation != 2 || s.Seq != uint64(all) {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	stop()
	seqs := map[uint64]map[uint64]bool{1: {}, 2: {}}
	for _, m := range b.oracle() {
		if seqs[m.Source.Generation][m.Seq] {
			t.Fatalf("seq %d twice in generation %d", m.Seq, m.Source.Generation)
		}
		seqs[m.Source.Generation][m.Seq] = true
	}
	if len(seqs[1]) != before || len(seqs[2]) != all {
		t.Errorf("%d and %d records in the two generations, want %d and %d", len(seqs[1]), len(seqs[2]), before, all)
	}
}

// Stores share topics: a quiet one's records may lie behind a busy one's, far from either end.
func TestLostCheckpointOfAQuietStoreIsNoFirstStart(t *testing.T) {
	b := newBench(t)
	topic := b.prefix + "trades"
	if _, err := b.admin().CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	busy := record.Source{Store: uuid.NewString(), Generation: 1}
	body := make([]byte, 60<<10) // so that one answer of Kafka's does not hold them all
	rand.NewChaCha8([32]byte{}).Read(body)
	others := func() {
		var all []record.Record
		for seq := range uint64(2 * evidence) {
			all = append(all, record.Encode(record.Message{ID: uuid.New(), Topic: "trades", Body: body, BornAt: time.Now(), CommitTime: time.Now(), Source: busy, Seq: seq + 1}))
		}
		b.produce(topic, 0, all...)
	}
	others()
	b.script.add(scriptMessage{topic: "trades"})
	b.copied()
	others()
	b.deleteTopic(checkpointTopic(b.storeID))
	b.mustHalt(b.copier(), ErrCheckpointLost, ReasonCheckpoint, "holds records of store "+b.storeID)
}

func TestEmptiedCheckpointTopicIsNoFirstStart(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{topic: "trades", unmirrored: true})
	b.copied()
	topic := checkpointTopic(b.storeID)
	b.alterTopic(topic, "cleanup.policy", "delete") // Kafka deletes nothing from a compacted one
	ends, err := b.admin().ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	deleted, err := b.admin().DeleteRecords(t.Context(), ends.Offsets())
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	b.alterTopic(topic, "cleanup.policy", "compact")
	b.mustHalt(b.copier(), ErrCheckpointLost, ReasonCheckpoint, topic)
}

func TestCheckpointTopicMustBeCompacted(t *testing.T) {
	b := newBench(t)
	b.createTopic(checkpointTopic(b.storeID), 1, map[string]string{"cleanup.policy": "delete"})
	b.mustHalt(b.copier(), ErrCheckpointTopic, ReasonCheckpoint, "cleanup.policy=compact")
}

func TestCheckpointOfANewerProgramIsNotTouched(t *testing.T) {
	b := newBench(t)
	topic := checkpointTopic(b.storeID)
	b.createTopic(topic, 1, map[string]string{"cleanup.policy": "compact"})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	r := &kgo.Record{Topic: topic, Key: []byte(checkpointKey), Value: []byte(`{"v":2}`)}
	if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.mustHalt(b.copier(), ErrCheckpointFormat, ReasonCheckpoint, "version 2")
}

func TestTopicMadeAnewHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	b.copied()
	b.deleteTopic(b.prefix + "trades")
	b.mustHalt(b.copier(), ErrTopicChanged, ReasonTopic, b.prefix+"trades")
	b.createTopic(b.prefix+"trades", 3, nil)
	b.mustHalt(b.copier(), ErrTopicChanged, ReasonTopic, b.prefix+"trades")
}

// A topic may have any number of partitions when it enters, and keeps that number when
// Kafka's grows: a key stays where it is.
func TestPartitionCountIsTheRecordedOne(t *testing.T) {
	b := newBench(t)
	name := b.prefix + "trades"
	b.createTopic(name, 2, nil)
	b.script.random(newRand(t), 10, 20, "trades")
	b.copied()
	if _, err := b.admin().UpdatePartitions(t.Context(), 7, name); err != nil {
		t.Fatal(err)
	}
	b.script.random(newRand(t), 10, 20, "trades")
	b.copied()
	keys := map[string]int32{}
	for _, m := range b.oracle() {
		if p, ok := keys[string(m.Key)]; ok && p != m.partition || m.partition > 1 {
			t.Fatalf("key %s is in partitions %d and %d", m.Key, p, m.partition)
		}
		keys[string(m.Key)] = m.partition
	}
}

// An over-size record would abort every transaction that it is in; what is before it must
// arrive, and the rest as soon as the limit is raised as the status says, with no restart.
func TestTooLargeRecordWaitsWithTheCommandAndGoesOnAfterIt(t *testing.T) {
	b := newBench(t)
	name := b.prefix + "trades"
	b.createTopic(name, 1, map[string]string{"max.message.bytes": "2000"})
	b.script.random(newRand(t), 10, 20, "trades")
	b.script.add(scriptMessage{topic: "trades", key: "z"}) // a foreign transaction last may stay out of the position
	b.script.add(scriptMessage{topic: "trades", key: "a"}, scriptMessage{topic: "trades", key: "b", body: make([]byte, 3000)},
		scriptMessage{topic: "trades", key: "c"})
	c := b.copier()
	b.run(c)
	b.awaitWaiting(c, ReasonTooLarge, "kafka-configs.sh")
	s := c.Status()
	if got, want := s.Position, "0-1-11"; got != want {
		t.Fatalf("the mirror came to %s, not to %s before the transaction", got, want)
	}
	_, limit, _ := strings.Cut(s.Repair, "--entity-name "+name+" --add-config max.message.bytes=")
	b.alterTopic(name, "max.message.bytes", limit)
	b.await(c)
	b.check()
}

// A limit that is lowered while the mirror runs stops it at the first record above it, and
// not before; raised again, it goes on.
func TestLimitLoweredWhileItRunsIsWaitedFor(t *testing.T) {
	b := newBench(t)
	name := b.prefix + "trades"
	b.script.random(newRand(t), 10, 20, "trades")
	c := b.copier()
	b.run(c)
	b.await(c)
	b.alterTopic(name, "max.message.bytes", "2000")
	b.script.add(scriptMessage{topic: "trades", key: "a", body: make([]byte, 500)})
	b.script.add(scriptMessage{topic: "trades", key: "b", body: make([]byte, 3000)})
	b.script.add(scriptMessage{topic: "trades", key: "c"})
	b.awaitWaiting(c, ReasonTooLarge, "kafka-configs.sh")
	eventually(t, func() error { // what comes before the large one arrives
		if got := c.Status().OpenGTID + c.Status().Position; got != "0-1-11" {
			return fmt.Errorf("position %s", got)
		}
		return nil
	})
	b.alterTopic(name, "max.message.bytes", "4259840")
	b.await(c)
	b.check()
}

// Small records together must not make a batch that the topic refuses.
func TestBatchStaysWithinTheTopicsLimit(t *testing.T) {
	b := newBench(t)
	b.createTopic(b.prefix+"trades", 1, map[string]string{"max.message.bytes": "3000"})
	var ms []scriptMessage
	for range 200 {
		ms = append(ms, scriptMessage{topic: "trades", key: "a", body: make([]byte, 700)})
	}
	b.script.add(ms...)
	b.copied()
}

func TestMessageOutOfOrderHalts(t *testing.T) {
	for _, step := range []int64{-1, 1} {
		t.Run(fmt.Sprintf("step %d", step), func(t *testing.T) {
			b := newBench(t)
			b.script.random(newRand(t), 20, 20, "trades")
			b.script.add(scriptMessage{shard: 2, topic: "trades"})
			b.script.next[2] += step
			b.script.add(scriptMessage{shard: 2, topic: "trades"})
			b.mustHalt(b.copier(), ErrOrder, ReasonOrder, "shard 2")
		})
	}
}

func TestRowWithoutItsBodyHalts(t *testing.T) {
	for _, column := range []int{schema.MessageBody, schema.MessageTopic, schema.MessageID} {
		b := newBench(t)
		b.script.add(scriptMessage{topic: "trades"})
		b.script.txns[0].rows[0].Values[column] = canal.Value{Null: true}
		b.mustHalt(b.copier(), ErrRow, ReasonRow, schema.MessageColumns()[column])
	}
}

func TestHeadersThatNobodyMayWriteHalt(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{topic: "trades", headers: `{"notify-seq":"7"}`})
	b.mustHalt(b.copier(), ErrRow, ReasonRow, "notify-seq")
}

func TestOtherServerHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 20, "trades")
	b.copied()
	b.script.server = "0-2"
	b.mustHalt(b.copier(), ErrServerChanged, ReasonServer, "0-2")
}

// The server may also change while the stream is open.
func TestTransactionOfAnotherServerHalts(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{topic: "trades"})
	c := b.copier()
	c.readStore = func(context.Context) (storeInfo, error) {
		info := b.script.info(b.storeID)
		info.server = "0-9"
		return info, nil
	}
	b.mustHalt(c, ErrServerChanged, ReasonServer, "0-9")
}

func TestTwoTopicsThatKafkaCannotTellApartHalt(t *testing.T) {
	b := newBench(t)
	b.script.add(scriptMessage{topic: "a.b"}, scriptMessage{topic: "a_b"})
	b.mustHalt(b.copier(), ErrTopicName, ReasonTopic, "a.b", "a_b")
}

func TestFaultsOfTheBinlogHaltWithTheirOwnText(t *testing.T) {
	for _, test := range []struct {
		err      error
		sentinel error
		reason   Reason
	}{
		{canal.ErrPurged, ErrPurged, ReasonPurged},
		{canal.ErrFileGone, ErrFileGone, ReasonFileGone},
		{canal.ErrPastEnd, ErrPastEnd, ReasonPastEnd},
		{canal.ErrAheadOfServer, ErrCheckpointAhead, ReasonAhead},
		{canal.ErrPartialRow, ErrRow, ReasonRow},
		{canal.ErrTooLarge, ErrTooLarge, ReasonTooLarge},
		{canal.ErrTextDML, ErrStream, ReasonUnknownEvent},
		{canal.ErrGrant, ErrConfig, ReasonConfig},
	} {
		b := newBench(t)
		b.script.random(newRand(t), 10, 20, "trades")
		b.script.end(&canal.StopError{Reason: test.err, What: "as scripted", Mend: "do this"})
		b.mustHalt(b.copier(), test.sentinel, test.reason, "as scripted")
		b.check() // what came before is in Kafka
	}
}

func TestEmbeddedKafkaIsRefusedUnlessAllowed(t *testing.T) {
	b := newBench(t)
	b.config.Kafka.AllowEmbedded = false
	b.brokers = []string{startEmbedded(t)}
	b.config.Kafka.Brokers = b.brokers
	b.mustHalt(b.copier(), ErrConfig, ReasonConfig, "kafka.allow_embedded")
}

// A server that was restored from a backup and then went on gives the GTIDs of what it lost
// to other transactions: no position shows that.
func TestAnotherTransactionUnderTheLastGTIDHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 10, 20, "trades")
	b.script.add(scriptMessage{shard: 1, topic: "trades"})
	b.script.add() // the last transaction may be one without messages
	b.copied()
	last := len(b.script.txns) - 2
	was := b.script.txns[last]
	b.script.next[1]--
	row, _ := b.script.row(scriptMessage{shard: 1, topic: "trades"})
	row.Values[schema.MessageID].Bytes = []byte("another message!")
	for name, now := range map[string]scriptTxn{
		"another message":  {kind: canal.Rows, rows: []canal.Row{row}},
		"one message more": {kind: canal.Rows, rows: append(slices.Clone(was.rows), was.rows...)},
		"no message":       {kind: canal.Foreign},
	} {
		b.script.txns[last] = now
		t.Run(name, func(t *testing.T) {
			b.mustHalt(b.copier(), ErrServerChanged, ReasonServer, fmt.Sprintf("0-1-%d", last+1), "at risk", "restored from a backup")
		})
	}
	b.script.txns[last] = was
	b.copied()
}

// What cannot be looked at in time is not compared, and holds nothing up.
func TestALastTransactionThatIsNotFoundIsNotCompared(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 10, 20, "trades")
	b.copied()
	for _, at := range []struct {
		limit time.Duration
		err   error
	}{{time.Millisecond, nil}, {patience, &canal.StopError{Reason: canal.ErrPurged}}} {
		b.script.random(newRand(t), 3, 20, "trades")
		c := b.copier(func(c *Copier) {
			c.probeLimit = at.limit
			c.openProbe = func(canal.Position) source { return silent{at.err} }
		})
		stop := b.run(c)
		b.await(c)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	b.check()
}

// A silent source has nothing to send until its context ends, or only an error.
type silent struct{ err error }

func (s silent) txns(ctx context.Context) iter.Seq2[txn, error] {
	return func(yield func(txn, error) bool) {
		if s.err == nil {
			<-ctx.Done()
			s.err = ctx.Err()
		}
		yield(txn{}, s.err)
	}
}

func TestAHaltNamesWhatIsLostAndWhatIsCopied(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 10, 20, "trades")
	b.copied()
	b.script.end(&canal.StopError{Reason: canal.ErrPurged, What: "as scripted", Mend: "do this"})
	seq := 0
	for _, t := range b.script.txns {
		seq += len(t.rows)
	}
	b.mustHalt(b.copier(), ErrPurged, ReasonPurged, "lost to the mirror", fmt.Sprintf("seq %d of generation 1, committed at ", seq))
}
