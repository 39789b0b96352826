package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"notifymirror/notifyd/client"
)

// lines makes each line of a file a message: the body is the exact bytes of the
// line without its newline. Lines of white space alone are passed over.
type lines struct {
	file    string
	in      *bufio.Reader
	extract extractor
	number  int
	seen    bool // something that is not white space
}

func newLines(file string, in *bufio.Reader, x extractor) *lines {
	return &lines{file: file, in: in, extract: x}
}

func (l *lines) next() (item, error) {
	for {
		line, err := l.in.ReadBytes('\n')
		if len(line) == 0 && errors.Is(err, io.EOF) {
			return item{}, errEnd
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return item{}, fmt.Errorf("%s: %w", l.file, err)
		}
		l.number++
		weight := len(line)
		line = bytes.TrimSuffix(line, []byte("\n"))
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if !l.seen && text[0] == '[' {
			return item{}, usageError(fmt.Errorf("%s: begins with \"[\", so it is one JSON array and not one object per line; use --json-array %s", l.file, l.file))
		}
		l.seen = true
		it := item{number: l.number, kind: "line", weight: weight}
		it.message, it.err = l.extract.message(line)
		return it, nil
	}
}

// elements makes each element of a file that is one JSON array a message: the
// body is the exact bytes of the element. The file is read as a stream.
type elements struct {
	file    string
	dec     *json.Decoder
	extract extractor
	number  int
}

func newElements(file string, in io.Reader, x extractor) *elements {
	return &elements{file: file, dec: json.NewDecoder(in), extract: x}
}

func (e *elements) next() (item, error) {
	before := e.dec.InputOffset()
	if e.number == 0 {
		switch t, err := e.dec.Token(); {
		case err != nil:
			return item{}, e.broken(err)
		case t != json.Delim('['):
			return item{}, usageError(fmt.Errorf("%s: does not begin with \"[\"; use --ndjson for one object per line", e.file))
		}
	}
	if !e.dec.More() {
		if _, err := e.dec.Token(); err != nil {
			return item{}, e.broken(err)
		}
		return item{}, errEnd
	}
	var raw json.RawMessage
	if err := e.dec.Decode(&raw); err != nil {
		return item{}, e.broken(err)
	}
	e.number++
	it := item{number: e.number, kind: "element", weight: int(e.dec.InputOffset() - before)}
	it.message, it.err = e.extract.message(raw)
	return it, nil
}

func (e *elements) broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: element %d at byte %d: %w", e.file, e.number+1, e.dec.InputOffset(), err)
}

// extractor makes a message of a JSON object, with key and headers from fields.
type extractor struct {
	headers      map[string]string // what all share
	keyField     string
	headerFields map[string]string // header name -> field
}

// message keeps body as it is. The object must have the key's field; a header
// whose field is missing or null is left out.
func (x extractor) message(body []byte) (client.Message, error) {
	m := client.Message{Headers: x.headers, Body: body}
	if x.keyField == "" && len(x.headerFields) == 0 {
		return m, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return m, fmt.Errorf("not a JSON object: %w", err)
	}
	if x.keyField != "" {
		key, ok, err := text(object[x.keyField])
		if err != nil {
			return m, fmt.Errorf("field %q: %w", x.keyField, err)
		}
		if !ok {
			return m, fmt.Errorf("field %q, the key, is missing", x.keyField)
		}
		m.Key = key
	}
	if len(x.headerFields) > 0 {
		m.Headers = maps.Clone(x.headers)
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
	}
	for name, field := range x.headerFields {
		value, ok, err := text(object[field])
		if err != nil {
			return m, fmt.Errorf("field %q: %w", field, err)
		}
		if ok {
			m.Headers[name] = value
		}
	}
	return m, nil
}

// text is a JSON value as a header or key: a string's text, a number, true or
// false as written. False: missing or null.
func text(raw json.RawMessage) (string, bool, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", false, nil
	}
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", false, err
		}
		return s, true, nil
	case '{', '[':
		return "", false, errors.New("is an object or array; want a string, number or boolean")
	}
	return string(raw), true, nil
}
