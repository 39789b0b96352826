package mirror

import (
	"math/rand/v2"
	"testing"
	"time"
)

func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
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
