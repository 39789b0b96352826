package stage

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Names of the environment variables of random stories.
const (
	// EnvSeed replays the seed that a run printed.
	EnvSeed = "NOTIFY_SEED"
	// EnvSoak is by how much a story is longer than in everyday tests.
	EnvSoak = "NOTIFY_SOAK"
)

// Random is where a story's chances come from. It prints its seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(EnvSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", EnvSeed, err)
		}
	}
	t.Logf("%s=%d", EnvSeed, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Soak is EnvSoak, at least 1.
func Soak() int {
	n, err := strconv.Atoi(os.Getenv(EnvSoak))
	if err != nil {
		return 1
	}
	return max(1, n)
}
