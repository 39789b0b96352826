package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxValue is how many characters of a value are told apart and shown.
const maxValue = 80

// A Field is a part of a message that a board shows, written as its place and, if the last
// word of that is not good enough, its name on the page:
//
//	key
//	headers.region
//	json.buyer.country as Country
//	json.lines.0.sku
//
// A body that is not JSON has no json fields. A value that is missing, an object or a list
// reads as "".
type Field struct {
	// Label is the name on the page.
	Label string
	kind  fieldKind
	// name is the header's, path leads to a value of the body.
	name string
	path []string
}

type fieldKind uint8

const (
	noField fieldKind = iota
	keyField
	headerField
	jsonField
)

var errField = errors.New(`not a field: write key, headers.NAME or json.NAME.NAME, with "as Label" behind it if you like`)

// ParseField reads the text of a field.
func ParseField(text string) (Field, error) {
	place, label, labelled := strings.Cut(text, " as ")
	place, label = strings.TrimSpace(place), strings.TrimSpace(label)
	f := Field{Label: label}
	kind, rest, dotted := strings.Cut(place, ".")
	switch {
	case place == "key":
		f.kind, rest = keyField, "key"
	case kind == "headers" && dotted && rest != "":
		f.kind, f.name = headerField, rest
	case kind == "json" && dotted:
		f.kind, f.path = jsonField, strings.Split(rest, ".")
		for _, name := range f.path {
			if name == "" {
				return Field{}, errField
			}
		}
		rest = f.path[len(f.path)-1]
	default:
		return Field{}, errField
	}
	if labelled && label == "" {
		return Field{}, errField
	}
	if !labelled {
		f.Label = strings.ToUpper(rest[:1]) + rest[1:]
	}
	return f, nil
}

// UnmarshalText implements encoding.TextUnmarshaler for configurations.
func (f *Field) UnmarshalText(text []byte) (err error) {
	*f, err = ParseField(string(text))
	return err
}

// of is the field's value in a message, at full length.
func (f Field) of(m *message) string {
	switch f.kind {
	case keyField:
		return m.key
	case headerField:
		return m.header(f.name)
	case jsonField:
		return scalar(descend(m.json(), f.path))
	}
	return ""
}

// descend follows a path into decoded JSON; nil is nothing.
func descend(v any, path []string) any {
	for _, name := range path {
		switch parent := v.(type) {
		case map[string]any:
			v = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return nil
			}
			v = parent[i]
		default:
			return nil
		}
	}
	return v
}

// scalar is the text of a single value.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// short cuts a value for the page, and makes it UTF-8.
func short(s string) string {
	if len(s) <= maxValue && utf8.ValidString(s) {
		return s
	}
	s = strings.ToValidUTF8(s[:min(len(s), 4*maxValue)], "\uFFFD")
	runes := []rune(s)
	if len(runes) <= maxValue {
		return s
	}
	return fmt.Sprintf("%s\u2026", string(runes[:maxValue-1]))
}
