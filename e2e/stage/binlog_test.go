package stage

import (
	"fmt"
	"testing"
)

func TestTwoWritersOfAShardAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		commits [][3]int64 // shard, epoch, n
		good    bool
	}{
		"one after the other":    {[][3]int64{{0, 1, 1}, {1, 1, 1}, {0, 1, 2}, {0, 4, 1}, {1, 1, 2}}, true},
		"a zombie goes on":       {[][3]int64{{0, 1, 1}, {0, 2, 1}, {0, 1, 2}}, false},
		"the same place twice":   {[][3]int64{{0, 1, 1}, {0, 1, 1}}, false},
		"a gap":                  {[][3]int64{{0, 1, 1}, {0, 1, 3}}, false},
		"an epoch begins behind": {[][3]int64{{0, 1, 1}, {0, 2, 2}}, false},
	} {
		var inserts []Insert
		for i, commit := range c.commits {
			inserts = append(inserts, Insert{Shard: int(commit[0]), Epoch: commit[1], N: commit[2], ID: fmt.Sprint(i)})
		}
		if err := OneWriter(inserts); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if OneWriter([]Insert{{Epoch: 1, N: 1, ID: "a"}, {Epoch: 1, N: 2, ID: "a"}}) == nil {
		t.Error("a message that is inserted twice is not found")
	}
}
