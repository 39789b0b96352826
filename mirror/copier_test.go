package mirror

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// soak is by how much NOTIFY_SOAK lengthens random tests.
func soak() int {
	if n, err := strconv.Atoi(os.Getenv("NOTIFY_SOAK")); err == nil && n > 0 {
		return n
	}
	return 1
}

// newRand is random; NOTIFY_SEED replays the seed of a failed run.
func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("NOTIFY_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("NOTIFY_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestEveryMessageIsCopiedOnceInOrder(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 200, 30, "trades", "news")
	c := b.copier()
	stop := b.run(c)
	b.await(c)
	b.script.random(newRand(t), 20, 5, "trades", "late")
	b.await(c)
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

func TestRunLeavesNothingRunning(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	before := goleak.IgnoreCurrent()
	c := b.copier()
	stop := b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// go-metrics, of sarama, has one ticker for the whole process.
	ticker := goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")
	eventually(t, func() error { return goleak.Find(before, ticker) })
}
