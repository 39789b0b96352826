package record

import (
	"errors"
	"testing"
	"time"
)

func TestTimesOfAMessageAreMirroredAndAreNoHeadersOfItsOwn(t *testing.T) {
	hs, err := AppendHeaders(nil, `{"a":"b","notify-deliver-at":"7","notify-expires-at":"9"}`)
	if err != nil || len(hs) != 3 {
		t.Fatalf("headers %v, %v", hs, err)
	}
	r := Encode(Message{Topic: "t", Key: []byte("k"), Headers: hs, BornAt: time.UnixMicro(1), Source: Source{"s", 1}, Seq: 1})
	found := 0
	for _, h := range r.Headers {
		if string(h.Key) == headerDeliverAt && string(h.Value) == "7" || string(h.Key) == headerExpiresAt && string(h.Value) == "9" {
			found++
		}
	}
	m, err := Decode(r)
	if err != nil || found != 2 || len(m.Headers) != 1 || m.Headers[0] != (Header{"a", "b"}) {
		t.Errorf("%d times in the record; read back %+v, %v", found, m, err)
	}
	for _, text := range []string{`{"Notify-Deliver-At":"7"}`, `{"notify-id":"x"}`} {
		if _, err := AppendHeaders(nil, text); !errors.Is(err, ErrHeader) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
