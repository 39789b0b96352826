package mirror

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// produceErrors is how often a run of the mirror ended by its writer.
func produceErrors(c *Copier) float64 {
	return testutil.ToFloat64(c.metrics.errors.WithLabelValues("produce"))
}

// produceAttempts is how often, at most, a batch is sent.
const produceAttempts = 4

// A batch is sent again when its leader has moved or its answer is lost, and the run goes on.
func TestBatchIsSentAgainAndTakenOnce(t *testing.T) {
	t.Run("the leader moved", func(t *testing.T) {
		b := newBench(t)
		kafka := &refuser{key: apiProduce, code: 6, suffix: "trades", most: produceAttempts - 1}
		b.brokers = []string{kafka.start(t)}
		b.config.Kafka.Brokers = b.brokers
		b.script.random(newRand(t), 5, 10, "trades")
		c := b.copier()
		b.run(c)
		b.await(c)
		kafka.set(true)
		b.script.random(newRand(t), 5, 10, "trades")
		b.await(c)
		if n := kafka.refused(); n != produceAttempts-1 {
			t.Errorf("refused %d times", n)
		}
		if n := produceErrors(c); n > 0 {
			t.Errorf("%.0f runs ended", n)
		}
		b.check()
	})
	t.Run("the answer is lost", func(t *testing.T) {
		b := newBench(t)
		b.script.random(newRand(t), 5, 10, "trades")
		d := new(faultyDialer)
		p := &trap{key: apiProduce, nth: 3, after: true, do: func() { d.cut(false) }}
		p.set(d)
		c := b.copier(func(c *Copier) { c.dialer = d })
		b.run(c)
		b.await(c)
		for range 3 {
			b.script.random(newRand(t), 5, 10, "trades")
			b.await(c)
		}
		if p.seen < 4 {
			t.Errorf("only %d batches were sent", p.seen)
		}
		if n := produceErrors(c); n > 0 {
			t.Errorf("%.0f runs ended", n)
		}
		b.check()
	})
}
