package transact

import (
	"math"
	"testing"
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
