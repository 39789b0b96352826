package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// awaitHalt waits until a running Copier has halted.
func (b *bench) awaitHalt(c *Copier, reason Reason, says string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if s := c.Status(); s.State != Halted || s.HaltedReason != reason || !strings.Contains(s.LastError, says) {
			return fmt.Errorf("status %+v, want it halted with %q", s, says)
		}
		return nil
	})
}

// often has the topics looked at all the time.
func often(c *Copier) { c.lookEvery = 10 * time.Millisecond }

func TestTopicDeletedWhileNothingPassesHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 10, "trades")
	c := b.copier(often)
	b.run(c)
	b.await(c)
	b.deleteTopic(b.prefix + "trades")
	b.awaitHalt(c, ReasonTopic, "is gone")
}

func TestTopicDeletedUnderMessagesHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 10, "trades")
	c := b.copier()
	b.run(c)
	b.await(c)
	b.deleteTopic(b.prefix + "trades")
	b.script.random(newRand(t), 5, 10, "trades")
	b.awaitHalt(c, ReasonTopic, "is gone")
}

func TestTopicMadeAnewWhileItRunsHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 10, "trades")
	c := b.copier(often)
	b.run(c)
	b.await(c)
	b.deleteTopic(b.prefix + "trades")
	b.createTopic(b.prefix+"trades", 3, nil)
	b.awaitHalt(c, ReasonTopic, b.prefix+"trades")
}

func TestCheckpointTopicDeletedWhileItRunsHalts(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 5, 10, "trades")
	c := b.copier()
	b.run(c)
	b.await(c)
	b.deleteTopic(checkpointTopic(b.storeID))
	b.script.random(newRand(t), 5, 10, "trades")
	b.awaitHalt(c, ReasonCheckpoint, "checkpoint is lost")
}

// Partitions that somebody adds are noticed and not written to, so that keys stay where they are.
func TestPartitionsAddedOutsideAreSaidAndNotWrittenTo(t *testing.T) {
	b := newBench(t)
	r := newRand(t)
	b.script.random(r, 10, 20, "trades")
	c := b.copier(often)
	b.run(c)
	b.await(c)
	if notes := c.Status().Notes; len(notes) > 0 {
		t.Errorf("notes before: %q", notes)
	}
	name := b.prefix + "trades"
	if res, err := b.admin().UpdatePartitions(t.Context(), 9, name); err != nil || res.Error() != nil {
		t.Fatal(err, res)
	}
	eventually(t, func() error {
		if notes := c.Status().Notes; len(notes) != 1 || !strings.Contains(notes[0], name+" has 9 partitions in Kafka and the mirror writes to 3") {
			return fmt.Errorf("notes %q", notes)
		}
		return nil
	})
	b.script.random(r, 20, 20, "trades")
	b.await(c)
	b.check()
	for _, m := range b.oracle() {
		if m.partition > 2 {
			t.Fatalf("message %s is in partition %d", m.ID, m.partition)
		}
	}
	if s := c.Status(); s.State != Copying || c.Ready() != nil {
		t.Errorf("status %+v", s)
	}
}

// Kafka forgets a transactional id that is idle; the mirror takes another over and goes on.
func TestForgottenTransactionalIDIsTakenAnew(t *testing.T) {
	b := newBench(t)
	b.brokers = []string{startEmbedded(t)} // whose settings can be changed while it runs
	b.config.Kafka.Brokers = b.brokers
	r := newRand(t)
	b.script.random(r, 10, 20, "trades")
	c := b.copier()
	b.run(c)
	b.await(c)
	short := "1"
	admin := b.admin()
	if res, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "transactional.id.expiration.ms", Value: &short}}); err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	id := b.config.Cluster + "/" + b.storeID
	eventually(t, func() error {
		all, err := admin.ListTransactions(t.Context(), nil, nil)
		if err != nil {
			return err
		}
		if _, known := all[id]; known {
			return errors.New("the transactional id is still known")
		}
		return nil
	})
	week := "604800000"
	if _, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "transactional.id.expiration.ms", Value: &week}}); err != nil {
		t.Fatal(err)
	}
	b.script.random(r, 10, 20, "trades")
	b.await(c)
	b.check()
}

// An idle mirror writes a checkpoint long before Kafka forgets its transactional id, and
// looks at its topics more often than that.
func TestIdleMirrorStaysKnownToKafka(t *testing.T) {
	now := time.Now()
	w := writer{written: now, verified: now, lookEvery: 1000 * time.Hour}
	if wait := w.wait(now); wait <= 0 || wait > 24*time.Hour {
		t.Errorf("an idle mirror waits %s, Kafka forgets it after 7 days", wait)
	}
	w.lookEvery = verifyEvery
	if wait := w.wait(now); wait != verifyEvery {
		t.Errorf("the topics are looked at after %s, not %s", wait, verifyEvery)
	}
}
