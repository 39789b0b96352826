package record

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// Records made in one arena are those that Encode makes, also when many more were made in it
// and the messages' memory was used for something else, and when the arena was used before.
func TestRecordsInAnArenaAreThoseOfEncode(t *testing.T) {
	var a Arena
	rapid.Check(t, func(t *rapid.T) {
		a.Reset()
		var got, want []Record
		for _, m := range rapid.SliceOfN(messages(), 1, 20).Draw(t, "messages") {
			m.Body = append(m.Body, make([]byte, rapid.IntRange(0, 3000).Draw(t, "more"))...)
			r := Encode(m)
			r.Key, r.Value = append([]byte{}, r.Key...), append([]byte{}, r.Value...)
			if size := SizeOf(m); size != Size(r) {
				t.Fatalf("size %d before the record is made, %d of the record", size, Size(r))
			}
			want, got = append(want, r), append(got, a.Encode(m))
			clear(m.Body)
			clear(m.Key)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\n got %+v\nwant %+v", got, want)
		}
	})
}

func TestAnArenaIsFilledWithoutAllocating(t *testing.T) {
	var a Arena
	m := sample()
	fill := func() {
		a.Reset()
		for range 100 {
			a.Encode(m)
		}
	}
	for range 10 {
		fill()
	}
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%.0f allocations for 100 records", n)
	}
}
