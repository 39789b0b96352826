package record

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

func TestMurmur2EqualsTheJavaClients(t *testing.T) {
	for text, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(text))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestPartitionIsTheOneAnIndependentClientChooses(t *testing.T) {
	theirs := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "key")
		n := rapid.Int32Range(1, 10000).Draw(t, "n")
		if got, want := Partition(key, n), theirs.Partition(&kgo.Record{Key: key}, int(n)); int(got) != want {
			t.Fatalf("partition %d, want %d", got, want)
		}
	})
}

func TestTopicNamesHaveThePrefixAndMayNotCollide(t *testing.T) {
	if got := TopicName("", "orders"); got != "notify.orders" {
		t.Errorf("default name %q", got)
	}
	if got := TopicName("m-", "orders"); got != "m-orders" {
		t.Errorf("prefixed name %q", got)
	}
	if !Collide("a.b", "a_b") || Collide("a.b", "a.b") || Collide("a.b", "a-b") {
		t.Error("collision told wrongly")
	}
}
