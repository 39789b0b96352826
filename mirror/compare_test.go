package mirror

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// numbered makes an id.
func numbered(n int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func sum(ids ...int) (t tally) {
	for _, n := range ids {
		t.add(numbered(n))
	}
	return t
}

func TestASumOfIDsDoesNotDependOnOrderAndTellsRepeats(t *testing.T) {
	if sum(1, 2, 3) != sum(3, 1, 2) || sum(1, 2) == sum(1, 1, 1) || sum(1, 1) == sum() || sum(1, 2) == sum(1, 3) {
		t.Error("sums")
	}
	most := uuid.UUID(slices.Repeat([]byte{0xff}, 16))
	var carried tally
	carried.add(most)
	carried.add(numbered(2))
	if carried.hash() != "00000000000000000000000000000001" || carried.n != 2 {
		t.Errorf("%+v %s", carried, carried.hash())
	}
}

func TestAMinuteIsEqualWhenGenerationsHaveItTogetherOrEach(t *testing.T) {
	for name, c := range map[string]struct {
		committed tally
		mirrored  map[uint64]tally
		want      bool
	}{
		"one":             {sum(1, 2), map[uint64]tally{1: sum(1, 2)}, true},
		"shared":          {sum(1, 2), map[uint64]tally{1: sum(1), 2: sum(2)}, true},
		"each":            {sum(1, 2), map[uint64]tally{1: sum(1, 2), 2: sum(1, 2)}, true},
		"nothing at all":  {sum(), nil, true},
		"missing":         {sum(1, 2), map[uint64]tally{1: sum(1)}, false},
		"all missing":     {sum(1, 2), nil, false},
		"foreign":         {sum(), map[uint64]tally{1: sum(1)}, false},
		"one of each not": {sum(1, 2), map[uint64]tally{1: sum(1, 2), 2: sum(2)}, false},
	} {
		if got := (&minuteTally{c.committed, c.mirrored}).equal(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Whatever is taken out, repeated and added is named, and nothing else.
func TestEveryDifferenceIsFound(t *testing.T) {
	r := newRand(t)
	for range 200 {
		var committed, mirrored []sighting
		want := map[int]string{}
		for n := range r.IntN(50) {
			s := sighting{minute: int64(r.IntN(3)), id: numbered(n)}
			m := s
			m.generation, m.offset = 1, int64(n)
			switch r.IntN(6) {
			case 0:
				committed = append(committed, s)
				want[n] = "missing"
			case 1:
				m2 := m
				m2.offset += 1000
				committed, mirrored = append(committed, s), append(mirrored, m, m2)
				want[n] = "repeated"
			case 2:
				mirrored = append(mirrored, m)
				want[n] = "foreign"
			case 3: // again in another generation
				m2 := m
				m2.generation = 2
				committed, mirrored = append(committed, s), append(mirrored, m2, m)
			case 4: // at another time
				m.minute += 10
				committed, mirrored = append(committed, s), append(mirrored, m)
				want[n] = "moved"
			default:
				committed, mirrored = append(committed, s), append(mirrored, m)
			}
		}
		r.Shuffle(len(committed), func(i, j int) { committed[i], committed[j] = committed[j], committed[i] })
		r.Shuffle(len(mirrored), func(i, j int) { mirrored[i], mirrored[j] = mirrored[j], mirrored[i] })
		f := look(committed, mirrored)
		moved := f.unmoved()
		got := map[int]string{}
		for what, list := range map[string][]sighting{"missing": f.missing, "repeated": f.repeated, "foreign": f.foreign} {
			for _, s := range list {
				got[int(binary.BigEndian.Uint64(s.id[8:]))] = what
			}
		}
		for n, what := range want {
			if what == "moved" {
				moved--
				delete(want, n)
			}
		}
		if moved != 0 || !equalMaps(got, want) {
			t.Fatalf("found %v, want %v; %d moved too many", got, want, moved)
		}
	}
}

func equalMaps(a, b map[int]string) bool {
	for n := range a {
		if a[n] != b[n] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestSightingsAreReadBackByTheMinute(t *testing.T) {
	f, err := newSightingFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	r := rand.New(rand.NewPCG(1, 2))
	var want []sighting
	for n := range 10_000 {
		s := sighting{minute: int64(n % 7), id: uuid.Must(uuid.NewV7()), place: r.Int32(), generation: r.Uint64(), seq: r.Uint64(), offset: r.Int64()}
		if s.minute == 3 || s.minute == 5 {
			want = append(want, s)
		}
		if err := f.add(s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got, err := f.of(map[int64]bool{3: true, 5: true})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d sightings of %d, %v", len(got), len(want), err)
		}
	}
}
