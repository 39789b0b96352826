//go:build engines

package e2e

import (
	"os"
	"testing"
	"time"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/mirror"
)

// Kafka dies, and is away for so long that the canald must believe that another one may have
// taken over. It comes back with what it knew of its groups, and the canald goes on.
func TestKafkaThatWasAwayForLongIsCopiedToAgain(t *testing.T) {
	k, err := engines.StartKafka(t.Context(), engines.KafkaConfig{Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill()
	s := stage.New(t)
	s.Kafka = k.Addr()
	_, canald, c := s.Running(quickTransactions)
	s.Topic(c, "trades")
	load := s.Load(c, "trades", 1)
	load.AwaitMore(500, time.Minute)
	canald.Freeze() // see stage.Breakable.RestartKafka
	stage.AwaitSettled(t, k.Addr())
	k.Kill()
	canald.Thaw()
	canald.Says("mirror no longer active here", time.Minute)
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, canald, time.Minute, mirror.Copying)
	load.AwaitMore(500, time.Minute)
	acked := load.Stop()
	r := s.Mirror("trades")
	r.Await(len(acked), time.Minute)
	r.Rest()
	if len(r.Records) != len(acked) {
		t.Errorf("%d records of %d messages", len(r.Records), len(acked))
	}
}
