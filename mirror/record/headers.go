package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// ReservedPrefix begins the names of the headers that the mirror adds; a message's
// own headers may not begin with it, in any mix of cases.
const ReservedPrefix = "notify-"

// A Header is one of a message's own headers: UTF-8 name and value.
type Header struct {
	Name, Value string
}

// Reserved tells whether no message's own header may have this name.
func Reserved[T string | []byte](name T) bool {
	return len(name) >= len(ReservedPrefix) && strings.EqualFold(string(name[:len(ReservedPrefix)]), ReservedPrefix)
}

// FromMap is the headers of a map, by name ascending; nil when there are none.
func FromMap(m map[string]string) []Header {
	if len(m) == 0 {
		return nil
	}
	hs := make([]Header, 0, len(m))
	for name, value := range m {
		hs = append(hs, Header{name, value})
	}
	slices.SortFunc(hs, byName)
	return hs
}

// ToMap is the headers as a map; nil when there are none.
func ToMap(hs []Header) map[string]string {
	if len(hs) == 0 {
		return nil
	}
	m := make(map[string]string, len(hs))
	for _, h := range hs {
		m[h.Name] = h.Value
	}
	return m
}

// fewHeaders is how many a message usually has at most.
const fewHeaders = 4

func byName(a, b Header) int { return strings.Compare(a.Name, b.Name) }

// EncodeHeaders is the store's text of headers: a JSON object with the names in
// ascending order, or an empty text, not nil, when there are none. It does not change
// hs. The error wraps ErrHeader: a reserved or repeated name, text that is not UTF-8.
func EncodeHeaders(hs []Header) ([]byte, error) {
	if len(hs) == 0 {
		return []byte{}, nil
	}
	if !slices.IsSortedFunc(hs, byName) {
		hs = slices.Clone(hs)
		slices.SortFunc(hs, byName)
	}
	size := 1
	for _, h := range hs {
		size += len(h.Name) + len(h.Value) + len(`"":"",`)
	}
	if err := check(hs); err != nil {
		return nil, err
	}
	b := make([]byte, 0, size)
	for i, h := range hs {
		if !utf8.ValidString(h.Name) || !utf8.ValidString(h.Value) {
			return nil, fmt.Errorf("%w: %q is not UTF-8", ErrHeader, h.Name)
		}
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = appendString(b, h.Name)
		b = append(b, ':')
		b = appendString(b, h.Value)
	}
	return append(b, '}'), nil
}

// check finds names that no message may have in headers sorted by name.
func check(hs []Header) error {
	for i, h := range hs {
		if Reserved(h.Name) && h.Name != headerDeliverAt && h.Name != headerExpiresAt {
			return fmt.Errorf("%w: the name %q begins with %s", ErrHeader, h.Name, ReservedPrefix)
		}
		if i > 0 && h.Name == hs[i-1].Name {
			return fmt.Errorf("%w: the name %q comes twice", ErrHeader, h.Name)
		}
	}
	return nil
}

// appendString appends s as a JSON string, escaping only what JSON demands.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for {
		i := 0
		for i < len(s) && plain(s[i]) {
			i++
		}
		b = append(b, s[:i]...)
		if i == len(s) {
			return append(b, '"')
		}
		if c := s[i]; c < ' ' {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
		s = s[i+1:]
	}
}

// plain tells whether a byte stands for itself inside a JSON string.
func plain(c byte) bool { return c >= ' ' && c != '"' && c != '\\' }

// DecodeHeaders reads the store's text of headers; an empty text has none. The
// result is by name ascending. The error wraps ErrHeaderText or ErrHeader.
func DecodeHeaders(text []byte) ([]Header, error) {
	if len(text) == 0 {
		return nil, nil
	}
	hs, err := AppendHeaders(make([]Header, 0, fewHeaders), string(text))
	if len(hs) == 0 {
		hs = nil
	}
	return hs, err
}

// AppendHeaders is DecodeHeaders into a slice that the caller reuses. For a text in
// canonical form the headers are parts of text, and nothing is allocated beyond dst.
func AppendHeaders(dst []Header, text string) ([]Header, error) {
	if text == "" {
		return dst, nil
	}
	if !utf8.ValidString(text) {
		return dst, fmt.Errorf("%w: not UTF-8", ErrHeaderText)
	}
	out, ok := appendCanonical(dst, text)
	if !ok {
		hs, err := parseHeaders(text)
		if err != nil {
			return dst, err
		}
		out = append(dst, hs...)
	}
	if err := check(out[len(dst):]); err != nil {
		return dst, err
	}
	return out, nil
}

// appendCanonical reads a text in canonical form that needs no escapes:
//
//	"{" string ":" string { "," string ":" string } "}"     names ascending
//
// It answers false for any other text.
func appendCanonical(dst []Header, text string) ([]Header, bool) {
	first := len(dst)
	sep := byte('{')
	for {
		if text[0] != sep {
			return dst, sep == ',' && text == "}"
		}
		name, rest, ok := cutString(text[1:])
		if !ok || rest[0] != ':' {
			return dst, false
		}
		value, rest, ok := cutString(rest[1:])
		if !ok {
			return dst, false
		}
		if n := len(dst); n > first && dst[n-1].Name >= name {
			return dst, false
		}
		dst = append(dst, Header{name, value})
		text, sep = rest, ','
	}
}

// cutString reads a JSON string without escapes from the front of text; what is
// left is not empty.
func cutString(text string) (s, rest string, ok bool) {
	if text == "" || text[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(text)-1; i++ {
		if !plain(text[i]) {
			return text[1:i], text[i+1:], text[i] == '"'
		}
	}
	return "", "", false
}

// parseHeaders reads any JSON object of strings and sorts it by name.
func parseHeaders(text string) ([]Header, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed(text, err)
	}
	var hs []Header
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, malformed(text, err)
		}
		value, err := dec.Token()
		if err != nil {
			return nil, malformed(text, err)
		}
		v, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%w: the value of %q is not a string", ErrHeaderText, name)
		}
		hs = append(hs, Header{name.(string), v})
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed(text, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, malformed(text, err)
	}
	slices.SortStableFunc(hs, byName)
	return hs, nil
}

// malformed describes a text that is not a JSON object, by its first bytes.
func malformed(text string, cause error) error {
	const show = 64
	shown := []byte(text)
	if len(shown) > show {
		shown = append(bytes.ToValidUTF8(shown[:show], nil), "..."...)
	}
	if cause == nil || cause == io.EOF {
		return fmt.Errorf("%w: %q", ErrHeaderText, shown)
	}
	return fmt.Errorf("%w: %q: %w", ErrHeaderText, shown, cause)
}
