package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/stage"
)

// A store was used long before anybody mirrored it, and the beginning of its binlog is purged.
// Producers publish and a group acknowledges all the while. The mirror copies what the tables
// hold and goes on with the binlog; it is killed in the middle, and goes on, or another one does where
// no spool is, as on another machine. In the end a reader sees every message that was not delivered and
// deleted before, once, each key's in order, and seq has neither a hole nor a repeat.
func TestUsedStoreIsMirroredFromItsTablesOn(t *testing.T) {
	r := stage.Random(t)
	s := stage.NewBreakable(t).Stage
	broker := s.Notifyd("a").Start()
	s.AwaitShards(time.Minute, broker)
	c := s.Client(broker)
	s.Subscribe(c, "absent", "trades") // nothing of it is deleted
	s.Topic(c, "news")
	s.Listen(c, "live", "news")
	trades, news := s.Load(c, "trades", 2), s.Load(c, "news", 1)
	trades.AwaitMore(4000, time.Minute)
	purgeBinlog(t, s)

	one := s.Canald("one", quickTransactions, "batch_records: 25", fmt.Sprintf("spool_dir: %q", t.TempDir()))
	two := s.Canald("two", quickTransactions, "batch_records: 25", fmt.Sprintf("spool_dir: %q", t.TempDir()))
	copied := uint64(1 + r.IntN(1000))
	one.Launch()
	one.Says("backfill begins", time.Minute)
	stage.Eventually(t, time.Minute, "the backfill is under way", func() error {
		s, err := mirrorStatus(one)
		if err == nil && s.Seq < copied {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	one.Kill()
	if r.IntN(2) == 0 {
		one = two
	}
	one.Start()
	trades.AwaitMore(500, time.Minute)
	acked := trades.Stop()
	news.Stop()
	stage.Eventually(t, time.Minute, "the mirror has caught up", func() error {
		s, err := mirrorStatus(one)
		if err == nil && (s.Backfill != nil || s.LagBytes == nil || *s.LagBytes > 0 || s.Seq < uint64(len(acked))) {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	stage.AwaitSettled(t, s.Kafka)
	auditBackfill(t, s, map[string]*stage.Load{"trades": trades, "news": news}, acked)
}

// purgeBinlog drops all binlog but a new file. MariaDB keeps a file until its transactions are
// safe in the tables as well.
func purgeBinlog(t *testing.T, s *stage.Stage) {
	t.Helper()
	db := s.Open()
	if _, err := db.ExecContext(t.Context(), "FLUSH BINARY LOGS"); err != nil {
		t.Fatal(err)
	}
	kept := s.BinlogEnd().Name
	stage.Eventually(t, time.Minute, "binlog purged", func() error {
		if _, err := db.ExecContext(t.Context(), "PURGE BINARY LOGS TO '"+kept+"'"); err != nil {
			return err
		}
		if oldest := s.BinlogStart(); oldest != kept {
			return fmt.Errorf("the server still has %s", oldest)
		}
		return nil
	})
}

// auditBackfill reads all that is mirrored. Each of all must be there.
func auditBackfill(t *testing.T, s *stage.Stage, loads map[string]*stage.Load, all []string) {
	t.Helper()
	reader := s.Mirror("trades", "news")
	reader.Rest()
	faults := &complaints{t: t}
	times := map[string]int{}
	last := map[string]int{}
	var seqs []int
	for _, rec := range reader.Records {
		id := stage.Header(rec, "notify-id")
		times[id]++
		seq, err := strconv.Atoi(stage.Header(rec, "notify-seq"))
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
		place, known := loads[stage.Header(rec, "notify-topic")].Place(id)
		if before, any := last[placeKey(rec)]; !known || any && place.N <= before {
			faults.say("message %s of key %s, its %d., comes behind its %d.", id, place.Key, place.N, before)
		}
		last[placeKey(rec)] = place.N
	}
	slices.Sort(seqs)
	for i, seq := range seqs {
		if seq != i+1 {
			t.Fatalf("seq %d where %d is due", seq, i+1)
		}
	}
	for id, n := range times {
		if n > 1 {
			faults.say("message %s is %d times in the mirror", id, n)
		}
	}
	for _, id := range all {
		if times[id] == 0 {
			faults.say("message %s is missing", id)
		}
	}
	t.Logf("%d records, %d messages had to be there", len(reader.Records), len(all))
}

func placeKey(rec *kgo.Record) string {
	return stage.Header(rec, "notify-topic") + "/" + string(rec.Key)
}
