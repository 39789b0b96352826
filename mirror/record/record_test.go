package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func sample() Message {
	return Message{
		ID:         uuid.MustParse("01939f2e-7c41-7abc-8def-0123456789ab"),
		Topic:      "orders.eu",
		Key:        []byte("k1"),
		Headers:    []Header{{"a", ""}, {"content-type", "text/plain"}, {"ünï", "ß"}},
		Body:       []byte("hello"),
		BornAt:     time.UnixMicro(1764446190123456),
		CommitTime: time.UnixMilli(1764446190125),
		Source:     Source{Store: "0b7e9a0e-58d6-4d8e-9d0a-3a3f6c1f2b11", Generation: 3},
		Seq:        18446744073709551615,
	}
}

// kafka is the record as the protocol's own message, the first of its batch.
func kafka(r Record) []byte {
	k := kmsg.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: string(h.Key), Value: h.Value})
	}
	body := k.AppendTo(nil)
	k.Length = int32(len(body) - 1) // one byte holds the zero length
	return k.AppendTo(nil)
}

func TestARecordHasTheseBytes(t *testing.T) {
	const golden = "d803" + "000000" +
		"04" + "6b31" + // key k1
		"0a" + "68656c6c6f" + // value hello
		"10" + // 8 headers
		"02" + "61" + "00" +
		"18" + "636f6e74656e742d74797065" + "14" + "746578742f706c61696e" +
		"0a" + "c3bc6ec3af" + "04" + "c39f" +
		"12" + "6e6f746966792d6964" + "48" + "30313933396632652d376334312d376162632d386465662d303132333435363738396162" +
		"18" + "6e6f746966792d746f706963" + "12" + "6f72646572732e6575" +
		"1c" + "6e6f746966792d626f726e2d6174" + "20" + "31373634343436313930313233343536" +
		"1a" + "6e6f746966792d736f75726365" + "4c" + "30623765396130652d353864362d346438652d396430612d3361336636633166326231312f33" +
		"14" + "6e6f746966792d736571" + "28" + "3138343436373434303733373039353531363135"
	r := Encode(sample())
	if got := hex.EncodeToString(kafka(r)); got != golden {
		t.Errorf("record\n got %s\nwant %s", got, golden)
	}
	if got := r.Timestamp.UnixMilli(); got != 1764446190125 {
		t.Errorf("timestamp %d", got)
	}
}

func TestAnUnkeyedEmptyMessageHasItsIDAsKeyAndAnEmptyValue(t *testing.T) {
	m := sample()
	m.Key, m.Body = nil, nil
	r := Encode(m)
	if string(r.Key) != "01939f2e-7c41-7abc-8def-0123456789ab" {
		t.Errorf("key %q", r.Key)
	}
	if r.Value == nil || len(r.Value) != 0 {
		t.Errorf("value %#v, want empty and not nil", r.Value)
	}
	back, err := Decode(r)
	if err != nil || len(back.Key) != 0 {
		t.Errorf("read back with key %q, error %v", back.Key, err)
	}
}

func messages() *rapid.Generator[Message] {
	return rapid.Custom(func(t *rapid.T) Message {
		names := rapid.SliceOfNDistinct(rapid.String().Filter(func(s string) bool { return !Reserved(s) }), 0, 8, rapid.ID[string]).Draw(t, "names")
		headers := map[string]string{}
		for _, n := range names {
			headers[n] = rapid.String().Draw(t, "value")
		}
		return Message{
			ID:         uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Topic:      rapid.StringMatching(`[A-Za-z0-9.-][A-Za-z0-9._-]{0,126}`).Draw(t, "topic"),
			Key:        rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, "key"),
			Headers:    FromMap(headers),
			Body:       rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			BornAt:     time.UnixMicro(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "born")),
			CommitTime: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "commit")),
			Source:     Source{rapid.StringMatching(`[a-f0-9-]{36}`).Draw(t, "store"), rapid.Uint64().Draw(t, "generation")},
			Seq:        rapid.Uint64().Draw(t, "seq"),
		}
	})
}

func TestADecodedRecordIsTheMessageAndFitsItsSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		r := Encode(m)
		back, err := Decode(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Key) == 0 {
			m.Key = nil
		}
		if !reflect.DeepEqual(back, m) {
			t.Fatalf("\n got %+v\nwant %+v", back, m)
		}
		if size, n := Size(r), len(kafka(r)); size < n || size > n+20 {
			t.Fatalf("size %d of a record of %d bytes", size, n)
		}
	})
}

func TestManyHeadersFitTheSize(t *testing.T) {
	m := sample()
	m.Headers = nil
	for i := range 64 {
		m.Headers = append(m.Headers, Header{fmt.Sprintf("%064d", i), strings.Repeat("v", 64)})
	}
	if r := Encode(m); Size(r) < len(kafka(r)) {
		t.Errorf("size %d of a record of %d bytes", Size(r), len(kafka(r)))
	}
}

func TestHeadersOfALaterVersionAndAnyOrderAreRead(t *testing.T) {
	r := Encode(sample())
	r.Headers = append([]KafkaHeader{{[]byte("notify-later"), []byte("x")}}, r.Headers...)
	r.Headers[0], r.Headers[len(r.Headers)-1] = r.Headers[len(r.Headers)-1], r.Headers[0]
	m, err := Decode(r)
	if err != nil || !reflect.DeepEqual(m, sample()) {
		t.Fatalf("error %v, message %+v", err, m)
	}
}

func TestForeignRecordsAreRefused(t *testing.T) {
	without := func(name string) Record {
		r := Encode(sample())
		var kept []KafkaHeader
		for _, h := range r.Headers {
			if string(h.Key) != name {
				kept = append(kept, h)
			}
		}
		r.Headers = kept
		return r
	}
	with := func(name, value string) Record {
		r := without(name)
		r.Headers = append(r.Headers, KafkaHeader{[]byte(name), []byte(value)})
		return r
	}
	twice := Encode(sample())
	twice.Headers = append(twice.Headers, KafkaHeader{[]byte("notify-seq"), []byte("1")})
	twiceUser := Encode(sample())
	twiceUser.Headers = append(twiceUser.Headers, KafkaHeader{[]byte("a"), []byte("1")})
	cases := map[string]Record{
		"empty":              {},
		"no id":              without("notify-id"),
		"no topic":           without("notify-topic"),
		"no born-at":         without("notify-born-at"),
		"no source":          without("notify-source"),
		"no seq":             without("notify-seq"),
		"id not a uuid":      with("notify-id", strings.Repeat("x", 36)),
		"id in braces":       with("notify-id", "{01939f2e-7c41-7abc-8def-0123456789ab}"),
		"born-at text":       with("notify-born-at", "today"),
		"source without /":   with("notify-source", "abc"),
		"source without id":  with("notify-source", "/1"),
		"source without gen": with("notify-source", "abc/"),
		"seq negative":       with("notify-seq", "-1"),
		"seq twice":          twice,
		"user header twice":  twiceUser,
	}
	for name, r := range cases {
		if _, err := Decode(r); !errors.Is(err, ErrNotMirrored) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestEncodeDoesNotMixHeadersOfTwoMessages(t *testing.T) {
	a := Encode(sample())
	first := bytes.Clone(kafka(a))
	for i := range a.Headers { // appending to one field must not reach its neighbour
		_ = append(a.Headers[i].Key, "XXXX"...)
		_ = append(a.Headers[i].Value, "XXXX"...)
	}
	if !bytes.Equal(first, kafka(a)) {
		t.Error("a header's append wrote over another header")
	}
}

func BenchmarkEncode(b *testing.B) {
	m := sample()
	b.ReportAllocs()
	for b.Loop() {
		Encode(m)
	}
}

func BenchmarkDecode(b *testing.B) {
	r := Encode(sample())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(r); err != nil {
			b.Fatal(err)
		}
	}
}

// What a Decoder has read before changes nothing: it is Decode, for any records in any order.
func TestADecoderReadsEachRecordAsDecodeDoes(t *testing.T) {
	sources := []string{"", "a/1", "a/2", "b/1", "a", "/1", "a/x"}
	topics := []string{"", "orders", "trades"}
	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		for range 20 {
			r := Encode(Message{ID: uuid.New(), Topic: "x", Source: Source{"s", 1}, Seq: 1, BornAt: time.UnixMicro(1)})
			for i, h := range r.Headers {
				switch string(h.Key) {
				case headerSource:
					r.Headers[i].Value = []byte(rapid.SampledFrom(sources).Draw(t, "source"))
				case headerTopic:
					r.Headers[i].Value = []byte(rapid.SampledFrom(topics).Draw(t, "topic"))
				}
			}
			got, err := d.Decode(r)
			want, wrong := Decode(r)
			if !reflect.DeepEqual(got, want) || (err == nil) != (wrong == nil) {
				t.Fatalf("%+v, %v; Decode says %+v, %v", got, err, want, wrong)
			}
		}
	})
}
