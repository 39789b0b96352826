package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/notifyd/embedded/dbtest"
)

// beside is a second store of the same installation: another script, the same Kafka, the
// same topics.
func (b *bench) beside(name string) *bench {
	b.t.Helper()
	other := *b
	other.script, other.storeID, other.store = newScript(), uuid.NewString(), name
	other.config.Stores = map[string]StoreConfig{name: {DSN: "mirror:secret@tcp(" + name + ":1)/notify", Role: "outbox-only"}}
	return &other
}

// recorded is what the store's checkpoint says of a topic.
func (b *bench) recorded(topic string) topicRecord {
	b.t.Helper()
	k, err := dial(b.config.WithDefaults(), "", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer k.close()
	saved, _, err := readCheckpoint(b.t.Context(), k, checkpointTopic(b.storeID))
	if err != nil {
		b.t.Fatal(err)
	}
	return saved.topics[b.prefix+topic]
}

// Whoever comes first makes a topic that two stores feed; the other one takes it as it is,
// also when it was about to make it with more partitions.
func TestStoresThatFeedOneTopicAgreeOnItsPartitions(t *testing.T) {
	a := newBench(t)
	b := a.beside("b")
	b.config.Partitions = 5
	reached, goOn := make(chan struct{}), make(chan struct{})
	var creations atomic.Int32
	late := b.copier(func(c *Copier) {
		c.dialer = &faultyDialer{before: func(key int16) bool {
			if key == apiCreateTopics && creations.Add(1) == 2 { // the first is of checkpoints
				close(reached)
				<-goOn
			}
			return false
		}}
	})
	r := newRand(t)
	a.script.random(r, 20, 10, "trades")
	b.script.random(r, 20, 10, "trades")
	stop := b.run(late)
	<-reached
	a.copied()
	close(goOn)
	b.await(late)
	if s := late.Status(); s.LastError != "" {
		t.Errorf("the second one failed first: %s", s.LastError)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
	first, second := a.recorded("trades"), b.recorded("trades")
	topics, err := a.admin().ListTopics(t.Context(), a.prefix+"trades")
	if err != nil {
		t.Fatal(err)
	}
	count := int32(len(topics[a.prefix+"trades"].Partitions))
	if first.Partitions != count || second.Partitions != count || first.ID != second.ID || first.ID == "" {
		t.Fatalf("the topic has %d partitions; the checkpoints know %+v and %+v", count, first, second)
	}
}

// A store that halts, and one that is away, hold no other up; each is seen by its name.
func TestStoresAreIndependent(t *testing.T) {
	good := newBench(t)
	bad, away := good.beside("bad"), good.beside("away")
	registry := prometheus.NewPedanticRegistry()
	good.registry, bad.registry, away.registry = registry, registry, registry
	for _, b := range []*bench{good, bad} {
		b.script.random(newRand(t), 20, 10, "trades")
	}
	bad.script.end(haltf(ReasonPurged, ErrPurged, "mend it", "by the test"))
	waits := away.copier()
	waits.readStore = func(context.Context) (storeInfo, error) { return storeInfo{}, errors.New("away") }
	away.run(waits)
	bad.mustHalt(bad.copier(), ErrPurged, ReasonPurged)
	eventually(t, func() error {
		if s := waits.Status(); s.State != Waiting || s.LastError == "" {
			return fmt.Errorf("the store that is away: %+v", s)
		}
		return nil
	})
	c := good.copier()
	stop := good.run(c)
	good.await(c)
	good.script.random(newRand(t), 20, 10, "trades")
	good.await(c)
	if err := errors.Join(c.Ready(), stop()); err != nil {
		t.Fatal(err)
	}
	good.check()
	want := `# HELP notify_mirror_halted 1 when the mirror stopped and wants an operator.
# TYPE notify_mirror_halted gauge
`
	for _, store := range []string{"a", "away", "bad"} {
		for _, reason := range reasons {
			want += fmt.Sprintf("notify_mirror_halted{reason=%q,store=%q} %d\n", reason, store, int(bool01(store == "bad" && reason == ReasonPurged)))
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "notify_mirror_halted"); err != nil {
		t.Fatal(err)
	}
}

// An application's own database as a store: its tables are of every kind, one looks like a
// shard's, and it changes them in the transactions of its messages.
func TestTablesOfAnApplicationBesideTheMessagesAreSkipped(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.sql(`CREATE TABLE customer (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(300) CHARACTER SET latin1, born DATE, at TIMESTAMP(6) NULL,
		place POINT, note JSON, worth DECIMAL(30,10), kind ENUM('x','y'), flags SET('a','b'), bits BIT(13), span TIME(3), y YEAR, f DOUBLE)`)
	b.sql(fmt.Sprintf("CREATE TABLE message_%02d (pos BIGINT PRIMARY KEY, text LONGTEXT)", scriptShards))
	c := b.realCopier()
	stop := b.run(c)
	for i := range 30 {
		tx, err := b.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{
			`INSERT INTO customer (name, born, at, place, note, worth, kind, flags, bits, span, y, f) VALUES
				(REPEAT('e', 300), '1970-01-02', NOW(6), POINT(1,2), '{"a":[1,2]}', 12345.678, 'y', 'a,b', b'101', '-11:12:13.5', 1999, -1.5e300)`,
			`UPDATE customer SET note = JSON_SET(note, '$.a[1]', 3), name = 'x'`,
			fmt.Sprintf("INSERT INTO message_%02d VALUES (%d, REPEAT('y', 100000))", scriptShards, i),
			`DELETE FROM customer LIMIT 1`,
		} {
			if _, err := tx.Exec(s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
		b.insertIn(tx, i%scriptShards, 3, "orders", short)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		b.sql("ALTER TABLE customer ADD COLUMN more_" + fmt.Sprint(i) + " INT")
	}
	b.sql("TRUNCATE customer")
	b.insert(0, 1, "orders", short)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}
