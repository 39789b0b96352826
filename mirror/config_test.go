package mirror

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestConfigReadsSizesAndTimes(t *testing.T) {
	var c Config
	err := yaml.UnmarshalWithOptions([]byte(`
stores:
  a: {dsn: "m:secret@tcp(db:3306)/notify"}
kafka: {brokers: ["k:9092"]}
max_body: 1MiB
batch_bytes: 65536
linger: 5ms
`), &c, yaml.Strict())
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxBodyBytes != 1<<20 || c.BatchBytes != 65536 || c.Linger != 5*time.Millisecond {
		t.Fatalf("%+v", c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigReportsEveryProblemAndNoPassword(t *testing.T) {
	c := Config{
		Cluster: "a/b", TopicPrefix: "_x", Partitions: -1, TransactionTimeout: time.Millisecond, Memory: 1,
		Stores: map[string]StoreConfig{"a": {DSN: "m:secret@tcp(db:3306"}},
	}
	_, err := New(c, "a", Deps{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	for _, key := range []string{"cluster", "topic_prefix", "partitions", "transaction_timeout", "memory", "stores.a.dsn", "kafka.brokers"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named in %v", key, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is shown: %v", err)
	}
}

func TestMetricsHaveGoodNamesAndCountWhatIsCopied(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	reg := prometheus.NewPedanticRegistry()
	b.registry = reg
	c := b.copier()
	stop := b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v %v", problems, err)
	}
	want := float64(len(b.oracle()))
	if got := testutil.ToFloat64(c.metrics.topic("trades").records); got != want {
		t.Errorf("%f records counted, %f copied", got, want)
	}
	if got := testutil.ToFloat64(c.metrics.buffered); got != 0 {
		t.Errorf("%f bytes are still counted as buffered", got)
	}
}
