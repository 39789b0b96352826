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

	k.Kill()
	if err := k.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if k.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, k.Addr())
	}
	reader := client(t, kgo.SeedBrokers(addr), kgo.ConsumeTopics("a"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for {
		ls, err := kadm.NewClient(reader).ListEndOffsets(ctx, "a")
		lc, e2 := kadm.NewClient(reader).ListCommittedOffsets(ctx, "a")
		t.Log(time.Now(), ls, err, lc, e2)
		l, _ := lc.Lookup("a", 0)
		if ctx.Err() != nil || l.Offset >= 1 {
			break
		}
		time.Sleep(time.Second)
	}
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
