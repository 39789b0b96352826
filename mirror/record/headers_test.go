package record

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHeaderTextIsCanonical(t *testing.T) {
	cases := []struct {
		headers []Header
		text    string
	}{
		{nil, ``},
		{[]Header{{"a", "1"}}, `{"a":"1"}`},
		{[]Header{{"b", "2"}, {"a", "1"}, {"", ""}}, `{"":"","a":"1","b":"2"}`},
		{[]Header{{"q\"\\", "\n\x00<>&\u2028é"}}, "{\"q\\\"\\\\\":\"\\u000a\\u0000<>&\u2028é\"}"},
	}
	for _, c := range cases {
		before := slices.Clone(c.headers)
		text, err := EncodeHeaders(c.headers)
		if err != nil || string(text) != c.text || text == nil {
			t.Errorf("%v: %q, error %v, want %q", c.headers, text, err, c.text)
		}
		if !slices.Equal(before, c.headers) {
			t.Errorf("the caller's headers were changed to %v", c.headers)
		}
	}
}

func TestHeadersNoMessageMayHaveAreRefused(t *testing.T) {
	for _, hs := range [][]Header{
		{{"notify-id", "x"}},
		{{"NoTiFy-", "x"}},
		{{"a", "1"}, {"b", "2"}, {"a", "3"}},
		{{"a\xff", "1"}},
		{{"a", "\xc3"}},
	} {
		if text, err := EncodeHeaders(hs); !errors.Is(err, ErrHeader) {
			t.Errorf("%q: text %q, error %v", hs, text, err)
		}
	}
	for _, text := range []string{
		`{"notify-seq":"1"}`, `{"Notify-x":"1"}`, `{"a":"1","a":"2"}`, `{"\u0061":"1","a":"2"}`,
	} {
		if hs, err := DecodeHeaders([]byte(text)); !errors.Is(err, ErrHeader) {
			t.Errorf("%s: headers %q, error %v", text, hs, err)
		}
	}
	for _, hs := range [][]Header{{{"notify", "x"}}, {{"notifyx", ""}}, {{"x-notify-id", ""}}} {
		if _, err := EncodeHeaders(hs); err != nil {
			t.Errorf("%q: error %v", hs, err)
		}
	}
}

func TestTextThatIsNoObjectOfStringsIsRefused(t *testing.T) {
	for _, text := range []string{
		` `, `x`, `null`, `[]`, `"a"`, `{`, `{"a"`, `{"a":`, `{"a":"`, `{"a":"1"`, `{"a":"1",`, `{"a":"1",}`, `{,}`,
		`{"a":1}`, `{"a":null}`, `{"a":true}`, `{"a":{}}`, `{"a":["b"]}`, `{"a":"1"}x`, `{"a":"1"}{}`,
		"{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", `{a:"1"}`, `{"a":"1""b":"2"}`, strings.Repeat(`{"a":"é`, 20),
	} {
		hs, err := DecodeHeaders([]byte(text))
		if !errors.Is(err, ErrHeaderText) {
			t.Errorf("%s: headers %q, error %v", text, hs, err)
		}
		if err != nil && !utf8.ValidString(err.Error()) {
			t.Errorf("%s: error %q is not UTF-8", text, err)
		}
	}
}

func TestHandWrittenTextIsReadInOrderOfNames(t *testing.T) {
	got, err := DecodeHeaders([]byte(" { \"b\" : \"\\u00e9\\n\" ,\n\"a\":\"\" } "))
	if want := []Header{{"a", ""}, {"b", "é\n"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, error %v", got, err)
	}
	if got, err := DecodeHeaders([]byte(`{}`)); err != nil || len(got) != 0 {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestAppendHeadersKeepsWhatIsThereAndDropsItsOwnOnError(t *testing.T) {
	have := []Header{{"z", "0"}}
	got, err := AppendHeaders(have, `{"a":"1"}`)
	if want := []Header{{"z", "0"}, {"a", "1"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, error %v", got, err)
	}
	got, err = AppendHeaders(have, `{"a":"1","b":2}`)
	if err == nil || !slices.Equal(got, have) {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestMapsAndHeadersAreTheSame(t *testing.T) {
	m := map[string]string{"b": "2", "a": "1", "c": ""}
	hs := FromMap(m)
	if !slices.Equal(hs, []Header{{"a", "1"}, {"b", "2"}, {"c", ""}}) || !maps.Equal(ToMap(hs), m) {
		t.Errorf("headers %q", hs)
	}
	if FromMap(nil) != nil || ToMap(nil) != nil {
		t.Error("no headers are not nil")
	}
}

// FuzzHeaderText holds DecodeHeaders to encoding/json, and the encoder to both.
func FuzzHeaderText(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"a":"1"}`, `{"a":"1","b":"2"}`, `{"b":"2","a":"1"}`, `{"a":"1","a":"2"}`, `{"a":"\u00e9\ud800\n"}`,
		` {"a" : "b"} `, `{"a":1}`, `{"a":null}`, `{"a":"1"}x`, "{\"a\":\"\x1f\"}", "{\"a\":\"\xff\"}", `{"":""}`, `{"a":"1",}`, `{"notify-a":""}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := DecodeHeaders(text)
		want, ok := oracle(text)
		switch {
		case ok && errors.Is(err, ErrHeader):
			return // a repeated or reserved name, which encoding/json lets pass
		case ok != (err == nil):
			t.Fatalf("%q: error %v, encoding/json says %v", text, err, ok)
		case !ok:
			return
		}
		if !maps.Equal(ToMap(got), want) || !slices.IsSortedFunc(got, byName) {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
		again, err := EncodeHeaders(got)
		if err != nil {
			t.Fatal(err)
		}
		back, ok := oracle(again)
		if !ok || !maps.Equal(back, want) {
			t.Fatalf("%q written as %q, which is %q", text, again, back)
		}
		if own, err := DecodeHeaders(again); err != nil || !reflect.DeepEqual(own, got) {
			t.Fatalf("%q read back as %q, error %v", again, own, err)
		}
	})
}

// oracle is what encoding/json makes of header text; false when it is no object of strings.
func oracle(text []byte) (map[string]string, bool) {
	if len(text) == 0 {
		return nil, true
	}
	var pointers map[string]*string
	if !utf8.Valid(text) || json.Unmarshal(text, &pointers) != nil || pointers == nil {
		return nil, false
	}
	m := map[string]string{}
	for name, value := range pointers {
		if value == nil {
			return nil, false
		}
		m[name] = *value
	}
	if len(m) == 0 {
		m = nil
	}
	return m, true
}

const threeHeaders = `{"content-type":"application/json","source":"checkout-7","trace":"00-4bf92f3577b34da6a3ce929d0e0e4736"}`

func BenchmarkDecodeHeaders(b *testing.B) {
	text := []byte(threeHeaders)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeHeaders(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendHeadersReusing(b *testing.B) {
	var hs []Header
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if hs, err = AppendHeaders(hs[:0], threeHeaders); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeHeadersEscaped(b *testing.B) {
	text := []byte(strings.Replace(threeHeaders, "checkout", `\"checkout\"`, 1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeHeaders(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeHeaders(b *testing.B) {
	hs, err := DecodeHeaders([]byte(threeHeaders))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeHeaders(hs); err != nil {
			b.Fatal(err)
		}
	}
}
