package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// What is put into a spool comes out once each: a shard's in the order of pos, the shards
// merged by birth, and without what the checkpoint has already; also from another process.
func TestSpoolGivesWhatWasPutIntoItMergedByBirth(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := spoolPath(dir, "s", newSpoolName())
		w, err := createSpool(path, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		last := make([]int64, rapid.IntRange(1, 4).Draw(t, "shards"))
		want := make([][]message, len(last))
		for shard := range last {
			bornAt := int64(1000)
			last[shard] = above(rapid.Int64Range(0, 6).Draw(t, "copied"))
			for pos := range rapid.Int64Range(0, 6).Draw(t, "messages") {
				bornAt += rapid.Int64Range(0, 3).Draw(t, "age")
				m := message{
					shard: shard, pos: pos + 1, id: uuid.New(), bornAt: bornAt, topic: []byte("trades"), mirrored: true,
					key: bytesOf(t, "key"), headers: bytesOf(t, "headers"), body: bytesOf(t, "body"),
				}
				if err := w.add(m); err != nil {
					t.Fatal(err)
				}
				if m.pos > floor(last[shard]) {
					want[shard] = append(want[shard], m)
				}
			}
			w.endShard()
		}
		written, err := w.finish()
		if err != nil {
			t.Fatal(err)
		}
		defer written.close()
		found, err := openSpool(path, len(last))
		if err != nil {
			t.Fatal(err)
		}
		defer found.close()
		got := make([][]message, len(last))
		before := int64(0)
		for m, err := range found.messages(last) {
			if err != nil {
				t.Fatal(err)
			}
			if m.bornAt < before {
				t.Fatalf("born at %d behind %d", m.bornAt, before)
			}
			before = m.bornAt
			m.topic, m.key, m.headers, m.body = clone(m.topic), clone(m.key), clone(m.headers), clone(m.body)
			got[m.shard] = append(got[m.shard], m)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func bytesOf(t *rapid.T, label string) []byte {
	return clone(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, label))
}

// clone is never nil.
func clone(b []byte) []byte { return append([]byte{}, b...) }

// A spool that is cut off, or of another store's shape, is refused, not read as far as it goes.
func TestSpoolThatIsNotWholeIsRefused(t *testing.T) {
	path := spoolPath(t.TempDir(), "s", newSpoolName())
	w, err := createSpool(path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		if err := w.add(message{shard: shard, pos: 1, topic: []byte("trades"), mirrored: true, body: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		w.endShard()
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("it has its name before it is whole")
	}
	s, err := w.finish()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for cut := range int64(300) {
		if err := os.Truncate(path, 300-cut); err != nil {
			t.Fatal(err)
		}
		if cut == 0 {
			continue
		}
		if again, err := openSpool(path, 2); err == nil {
			again.close()
			t.Fatalf("%d bytes are taken for a whole spool", 300-cut)
		}
	}
}

// A disk that gives back another bit than was written is noticed: nothing of a spool is taken
// for a message that is not, byte by byte, what was put into it.
func TestAnyBitThatChangesInASpoolIsNoticed(t *testing.T) {
	path := spoolPath(t.TempDir(), "s", newSpoolName())
	w, err := createSpool(path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		for pos := range int64(2) {
			if err := w.add(message{shard: shard, pos: pos + 1, bornAt: pos, topic: []byte("trades"), key: []byte("k"), mirrored: true, body: []byte("body")}); err != nil {
				t.Fatal(err)
			}
		}
		w.endShard()
	}
	sp, err := w.finish()
	if err != nil {
		t.Fatal(err)
	}
	sp.close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for bit := range 8 {
			bad := slices.Clone(good)
			bad[i] ^= 1 << bit
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if n, err := countSpooled(path); err == nil {
				t.Fatalf("bit %d of byte %d is another one, and %d messages are read", bit, i, n)
			}
		}
	}
}

func countSpooled(path string) (n int, err error) {
	sp, err := openSpool(path, 2)
	if err != nil {
		return 0, err
	}
	defer sp.close()
	for _, err := range sp.messages(make([]int64, 2)) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestSpoolIsBoundedAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	w, err := createSpool(spoolPath(dir, "s", newSpoolName()), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = w.add(message{topic: []byte("trades"), mirrored: true, body: make([]byte, 300)})
	}
	var h *Halt
	if !errors.As(err, &h) || h.Reason != ReasonConfig || w.count > 3 {
		t.Fatalf("after %d messages: %v", w.count, err)
	}
	w.discard()
	for _, name := range []string{"old", "kept", "half.part"} {
		if err := os.WriteFile(spoolPath(dir, "s", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removeSpools(dir, "s", "kept")
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || left[0] != spoolPath(dir, "s", "kept") {
		t.Fatalf("left %v, %v", left, err)
	}
}

// A store is mirrored into two Kafka clusters by canalds that share a directory, or into one under
// two names: neither touches the other's spool.
func TestSpoolsOfAnotherMirrorAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	owners := []string{spoolOwner("s", "notify", "kafka-1"), spoolOwner("s", "notify", "kafka-2"), spoolOwner("s", "other", "kafka-1")}
	for _, owner := range owners {
		if err := os.WriteFile(spoolPath(dir, owner, "old"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, owner := range owners {
		removeSpools(dir, owner, "")
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(left) != len(owners)-1-i {
			t.Errorf("%s leaves %v, %v", owner, left, err)
		}
	}
}
