package message

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEachBrokenLimitNamesItsFieldSizeAndLimit(t *testing.T) {
	many := func(n int) map[string]string {
		h := map[string]string{}
		for i := range n {
			h[fmt.Sprintf("h%d", i)] = ""
		}
		return h
	}
	for name, c := range map[string]struct {
		m           Message
		field       string
		size, limit int
	}{
		"topic too long":        {Message{Topic: strings.Repeat("t", 128)}, "topic", 128, 127},
		"key too long":          {Message{Topic: "t", Key: strings.Repeat("k", 256)}, "key", 256, 255},
		"body too long":         {Message{Topic: "t", Body: make([]byte, 101)}, "body", 101, 100},
		"too many headers":      {Message{Topic: "t", Headers: many(65)}, "headers", 65, 64},
		"too many header bytes": {Message{Topic: "t", Headers: map[string]string{"a": strings.Repeat("v", 16<<10)}}, "headers", 16<<10 + 1, 16 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var f *FieldError
			if err := c.m.Validate(100); !errors.As(err, &f) {
				t.Fatalf("Validate = %v, want a FieldError", err)
			}
			if f.Field != c.field || f.Size != c.size || f.Limit != c.limit || !f.TooLarge() {
				t.Errorf("got %+v, want field %s size %d limit %d", f, c.field, c.size, c.limit)
			}
		})
	}
}

func TestAMessageAtEveryLimitIsAccepted(t *testing.T) {
	headers := map[string]string{}
	for i := range MaxHeaders - 1 {
		headers[fmt.Sprintf("h%02d", i)] = ""
	}
	headers["x"] = strings.Repeat("v", MaxHeaderBytes-3*(MaxHeaders-1)-1)
	m := Message{Topic: strings.Repeat("t", 127), Key: strings.Repeat("\u00fc", 127) + "k", Headers: headers, Body: make([]byte, 100)}
	if err := m.Validate(100); err != nil {
		t.Fatal(err)
	}
}

func TestBadNamesAndHeadersAreRefused(t *testing.T) {
	for name, m := range map[string]Message{
		"no topic":             {},
		"reserved topic":       {Topic: "_x"},
		"topic dot":            {Topic: "."},
		"topic with slash":     {Topic: "a/b"},
		"topic not ASCII":      {Topic: "ü"},
		"key not UTF8":         {Topic: "t", Key: "\xff"},
		"reserved header":      {Topic: "t", Headers: map[string]string{"Notify-Id": "1"}},
		"empty header name":    {Topic: "t", Headers: map[string]string{"": "1"}},
		"header name not UTF8": {Topic: "t", Headers: map[string]string{"\xff": "1"}},
		"header not UTF8":      {Topic: "t", Headers: map[string]string{"a": "\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			var f *FieldError
			if err := m.Validate(100); !errors.As(err, &f) {
				t.Fatalf("Validate = %v, want a FieldError", err)
			}
		})
	}
}

func TestHashSeparatesItsParts(t *testing.T) {
	seen := map[[HashSize]byte]string{}
	for name, m := range map[string]Message{
		"key":    {Key: "ab"},
		"body":   {Body: []byte("ab")},
		"split":  {Key: "a", Body: []byte("b")},
		"header": {Headers: map[string]string{"a": "b"}},
		"moved":  {Headers: map[string]string{"ab": ""}},
	} {
		h := m.Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	a := Message{Headers: map[string]string{"a": "1", "b": "2", "c": "3"}}
	b := Message{Headers: map[string]string{"c": "3", "b": "2", "a": "1"}}
	if a.Hash() != b.Hash() {
		t.Error("the order of headers changes the hash")
	}
}
