package canal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bufferOf is a buffer for rows of the scripted table, above memory bytes in a file.
func bufferOf(dir string, memory, disk int64, held *int64) (*rowBuffer, *tableDef) {
	def, err := parseTableMap(tableMapEvent(7, "shop", "message_00").body)
	if err != nil {
		panic(err)
	}
	return &rowBuffer{limits: bufferLimits{
		dir: dir, memory: memory, disk: disk, spilling: func() {},
		take: func(n int64) (int64, error) { *held += n; return n, nil }, give: func(n int64) { *held -= n },
	}}, def
}

func rowOf(n int) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{0}, uint64(n))
	return append(binary.LittleEndian.AppendUint32(b, 1), 'x')
}

// A buffer is a list with append and truncate, wherever it lies.
func TestABufferKeepsRowsInOrderInMemoryAndInAFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var held int64
		b, def := bufferOf(os.TempDir(), rapid.SampledFrom([]int64{0, 60, 200, 1 << 20}).Draw(t, "memory"), 1<<20, &held)
		_, other := bufferOf("", 0, 0, &held)
		var want []int
		marks := map[int64]int{0: 0}
		for i := range rapid.IntRange(0, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "step") == 0 {
				mark := rapid.SampledFrom(sortedKeys(marks)).Draw(t, "mark")
				if err := b.truncate(mark); err != nil {
					t.Fatal(err)
				}
				want = want[:marks[mark]]
				for m := range marks {
					if m > mark {
						delete(marks, m)
					}
				}
				continue
			}
			d := def
			if i%3 == 0 {
				d = other
			}
			if err := b.add(d, rowOf(i)); err != nil {
				t.Fatal(err)
			}
			want = append(want, i)
			marks[b.size] = len(want)
			if b.file != nil && held != 0 {
				t.Fatalf("%d bytes of the budget are held for rows in a file", held)
			}
		}
		if err := b.seal(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var got []int
			for row, err := range b.all() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, int(row.Values[0].Int))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("rows %v, want %v", got, want)
			}
		}
		if b.release(); held != 0 {
			t.Fatalf("%d bytes of the budget are still held", held)
		}
	})
}

func sortedKeys(m map[int64]int) []int64 {
	var out []int64
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestATransactionAboveTheSpoolLimitIsRefused(t *testing.T) {
	var held int64
	b, def := bufferOf(t.TempDir(), 0, 100, &held)
	defer b.release()
	var err error
	for i := 0; err == nil; i++ {
		err = b.add(def, rowOf(i))
	}
	if !errors.Is(err, ErrSpool) || b.size > 100 {
		t.Errorf("error %v at %d bytes", err, b.size)
	}
}

func TestASpoolDirectoryThatIsNotThereIsNamed(t *testing.T) {
	var held int64
	dir := filepath.Join(t.TempDir(), "missing")
	b, def := bufferOf(dir, 0, 100, &held)
	err := b.add(def, rowOf(1))
	if !errors.Is(err, ErrSpool) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestAConfigurationIsRefusedWithAllThatIsWrong(t *testing.T) {
	_, err := NewTailer(Config{Flavor: "oracle", MemoryBytes: 10, SpoolAbove: 10, HeartbeatPeriod: 3, ReadTimeout: 4})
	want := `tailer configuration: address is missing
user is missing
schema is missing
flavor "oracle" is neither "mysql" nor "mariadb"
memory of 10 bytes is less than twice the spool threshold of 10
read timeout 4ns is less than twice the heartbeat period 3ns`
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v", err)
	}
}
