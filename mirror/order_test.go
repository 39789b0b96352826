package mirror

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// A shard's owners write epoch after epoch, each n from 1 without a gap. Whatever they
// write passes; any one message left out, repeated or moved before another does not.
func TestOrderTakesWhatOwnersWriteAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var written []int64
		epoch := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "owners") {
			epoch += rapid.Int64Range(1, 1024).Draw(t, "epoch step")
			for n := range rapid.Int64Range(1, 8).Draw(t, "messages") {
				written = append(written, epoch<<posBits+n+1)
			}
		}
		o := newOrder(make([]int64, 3))
		for _, pos := range written {
			if err := o.take(1, pos); err != nil {
				t.Fatal(err)
			}
		}
		if got := o.positions(nil); got[0] != 0 || got[1] != written[len(written)-1] || got[2] != 0 {
			t.Fatalf("positions %v", got)
		}
		damaged := damage(t, written)
		o = newOrder(make([]int64, 3))
		for _, pos := range damaged {
			if err := o.take(1, pos); err != nil {
				if !errors.Is(err, ErrOrder) {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatalf("%v passed, %v was written", damaged, written)
	})
}

// damage changes a sequence in a way that must be seen. Only what is behind can show that
// something is missing: the end of an epoch may be lost unseen when the next begins, which
// is why the server's GTIDs are checked as well.
func damage(t *rapid.T, written []int64) []int64 {
	out := append([]int64(nil), written...)
	i := rapid.IntRange(0, len(out)-1).Draw(t, "at")
	sameEpoch := i+1 < len(out) && out[i+1]>>posBits == out[i]>>posBits
	switch rapid.IntRange(0, 2).Draw(t, "damage") {
	case 0: // one left out
		if sameEpoch {
			return append(out[:i], out[i+1:]...)
		}
	case 1: // two change places
		if i+1 < len(out) {
			out[i], out[i+1] = out[i+1], out[i]
			return out
		}
	}
	return append(out, out[i]) // one comes again
}

func TestOrderKnowsOnlyTheStoresShards(t *testing.T) {
	o := newOrder(make([]int64, 2))
	for _, shard := range []int{-1, 2} {
		if err := o.take(shard, 1<<posBits+1); !errors.Is(err, ErrOrder) {
			t.Fatalf("shard %d: %v", shard, err)
		}
	}
}
