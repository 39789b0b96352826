package mirror

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var goldenCheckpoint = checkpoint{
	V: 1, Store: "0192d4e8-0000-7000-8000-000000000001", Generation: 2, Seq: 1234,
	Flavor: "mysql", GTIDs: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77",
	OpenGTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:78", OpenCopied: 5000,
	Shards: []int64{1<<posBits + 9, 0}, Server: "3e11fa47-71ca-11e1-9e33-c80aa9429562",
	Last:   lastTxn{GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:78", CommittedAt: 1790000000000000, Messages: 5000, Hash: 14695981039346656037},
	Writer: "w", WrittenAt: 1790000000000001,
}

const goldenCheckpointBytes = `{"v":1,"store":"0192d4e8-0000-7000-8000-000000000001","generation":2,"seq":1234,` +
	`"flavor":"mysql","gtids":"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77",` +
	`"open_gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:78","open_copied":5000,` +
	`"shards":[1099511627785,0],"server":"3e11fa47-71ca-11e1-9e33-c80aa9429562",` +
	`"last":{"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:78","committed_at":1790000000000000,"messages":5000,"hash":14695981039346656037},` +
	`"writer":"w","written_at":1790000000000001}`

const goldenTopicBytes = `{"v":1,"topic":"notify.trades","id":"abc","partitions":8,"generation":1,"seq":17}`

func TestCheckpointBytesStayAsTheyAre(t *testing.T) {
	if got := string(encodeCheckpoint(goldenCheckpoint)); got != goldenCheckpointBytes {
		t.Errorf("checkpoint\n got %s\nwant %s", got, goldenCheckpointBytes)
	}
	golden := topicRecord{V: 1, Topic: "notify.trades", ID: "abc", Partitions: 8, Generation: 1, Seq: 17}
	key, value := encodeTopic(golden)
	if string(key) != "topic/notify.trades" || string(value) != goldenTopicBytes {
		t.Errorf("topic record %s %s", key, value)
	}
	var s savedState
	for key, value := range map[string]string{"checkpoint": goldenCheckpointBytes, "topic/notify.trades": goldenTopicBytes} {
		if err := s.apply([]byte(key), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(*s.checkpoint, goldenCheckpoint) || s.topics["notify.trades"] != golden {
		t.Errorf("read back %+v", s)
	}
}

func TestCheckpointReadsBackAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9:,-]{1,40}`)
		c := checkpoint{
			V: 1, Store: text.Draw(t, "store"), Generation: rapid.Uint64Min(1).Draw(t, "generation"),
			Seq: rapid.Uint64().Draw(t, "seq"), Flavor: text.Draw(t, "flavor"), GTIDs: text.Draw(t, "gtids"),
			Shards: rapid.SliceOfN(rapid.Int64Min(0), 1, 100).Draw(t, "shards"), Server: text.Draw(t, "server"),
			Last:   lastTxn{Hash: rapid.Uint64().Draw(t, "hash"), Messages: rapid.Uint64().Draw(t, "messages")},
			Writer: text.Draw(t, "writer"), WrittenAt: rapid.Int64().Draw(t, "written"),
		}
		if rapid.Bool().Draw(t, "open") {
			c.OpenGTID, c.OpenCopied = text.Draw(t, "open gtid"), rapid.Uint64Min(1).Draw(t, "copied")
		}
		var s savedState
		if err := s.apply([]byte(checkpointKey), encodeCheckpoint(c)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*s.checkpoint, c) {
			t.Fatalf("wrote %+v, read %+v", c, *s.checkpoint)
		}
	})
}

func TestUnreadableCheckpointsAreRefused(t *testing.T) {
	for name, record := range map[string][2]string{
		"newer version":    {"checkpoint", strings.Replace(goldenCheckpointBytes, `"v":1`, `"v":2`, 1)},
		"unknown field":    {"checkpoint", strings.Replace(goldenCheckpointBytes, `"v":1`, `"v":1,"x":1`, 1)},
		"no store":         {"checkpoint", strings.Replace(goldenCheckpointBytes, `"0192d4e8-0000-7000-8000-000000000001"`, `""`, 1)},
		"half open":        {"checkpoint", strings.Replace(goldenCheckpointBytes, `"open_copied":5000,`, ``, 1)},
		"tombstone":        {"checkpoint", ""},
		"text behind":      {"checkpoint", goldenCheckpointBytes + "{}"},
		"unknown key":      {"other", "{}"},
		"topic under name": {"topic/other", goldenTopicBytes},
	} {
		var s savedState
		if err := s.apply([]byte(record[0]), []byte(record[1])); !errors.Is(err, ErrCheckpointFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The fingerprint is FNV-1a over shard, pos and id: the test vector is from the published
// algorithm over the same 26 bytes.
func TestFingerprintDependsOnEveryMessageAndItsPlace(t *testing.T) {
	a := message{shard: 1, pos: 1<<posBits + 1, id: uuid.UUID{1}}
	b := message{shard: 1, pos: 1<<posBits + 2, id: uuid.UUID{2}}
	of := func(ms ...message) lastTxn {
		l := lastTxn{Hash: hashStart}
		for _, m := range ms {
			l.add(m)
		}
		return l
	}
	if first, again := of(a, b), of(a, b); first != again || first.Messages != 2 {
		t.Error("the same messages give two fingerprints")
	}
	moved := b
	moved.shard = 2
	for _, other := range []lastTxn{of(a), of(b, a), of(a, moved)} {
		if other.Hash == of(a, b).Hash {
			t.Error("other messages give the same fingerprint")
		}
	}
}
