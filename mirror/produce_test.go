package mirror

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Behind the largest sequence number comes 0, as Kafka counts.
func TestSequenceNumbersGoAround(t *testing.T) {
	for _, c := range []struct {
		at   int32
		n    int
		want int32
	}{
		{0, 0, 0}, {0, 7, 7}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2},
	} {
		if got := following(c.at, c.n); got != c.want {
			t.Errorf("%d records behind %d: %d, want %d", c.n, c.at, got, c.want)
		}
	}
}

// produceErrors is how often a run of the mirror ended by its writer.
func produceErrors(c *Copier) float64 {
	return testutil.ToFloat64(c.metrics.errors.WithLabelValues("produce"))
}

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
