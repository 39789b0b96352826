//go:build engines

package engines_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
)

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// settled waits until the transaction's marker is in the log. A commit is answered before
// that, and a broker killed in between has been seen to come back with the marker missing for
// ever: readers of committed records then stand still before the transaction.
func settled(t *testing.T, ctx context.Context, admin *kadm.Client) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		offsets, err := admin.ListCommittedOffsets(ctx, "a")
		if err == nil {
			if end, found := offsets.Lookup("a", 0); found && end.Offset == 2 {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no marker: %v, %v", offsets, err)
		case <-tick.C:
		}
	}
}

func TestACommittedTransactionSurvivesAKillOfTheBroker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	k, err := engines.StartKafka(ctx, engines.KafkaConfig{Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill()
	addr := k.Addr()
	writer := client(t, kgo.SeedBrokers(addr), kgo.TransactionalID("t"))
	if _, err := kadm.NewClient(writer).CreateTopic(ctx, 1, 1, nil, "a"); err != nil {
		t.Fatal(err)
	}
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := writer.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := writer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}

	settled(t, ctx, kadm.NewClient(writer))

	k.Kill()
	if err := k.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if k.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, k.Addr())
	}
	reader := client(t, kgo.SeedBrokers(addr), kgo.ConsumeTopics("a"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := reader.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	if got := fetches.Records(); len(got) != 1 || string(got[0].Value) != "kept" {
		t.Errorf("read %v", got)
	}
	if err := k.Stop(ctx); err != nil {
		t.Error(err)
	}
}
