package notifyd

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSizesReadBackAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "round") {
			want = want >> 40 << 20
		}
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Bytes
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Fatalf("%d is written %q and read as %d, %v", int64(want), text, int64(got), err)
		}
	})
}

func TestSizesAndDurationsThatMeanNothingAreRefused(t *testing.T) {
	for _, text := range []string{"", "MiB", "-1", "4MB", "4 mib", "1.5GiB", "9223372036854775808", "9007199254740992GiB"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("size %q is read as %d", text, int64(b))
		}
	}
	for _, text := range []string{"", "5", "-5s", "5 s", "5sec"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("duration %q is read as %s", text, d)
		}
	}
}

func TestSizesAndDurationsReadUnits(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "2KiB": 2048, "4MiB": 4 << 20, "4 MiB": 4 << 20, "1GiB": 1 << 30} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("size %q is read as %d, %v, want %d", text, int64(b), err, int64(want))
		}
	}
	var d Duration
	if err := d.UnmarshalText([]byte("1m30s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("duration 1m30s is read as %s, %v", d, err)
	}
}
