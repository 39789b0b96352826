package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"notifymirror/notifyd/client"
)

// errEnd is returned by source.next behind the last message.
var errEnd = errors.New("end of messages")

// item is one message to publish, or what is wrong with it.
type item struct {
	number  int    // from 1
	kind    string // what a number counts: line, element, message
	message client.Message
	err     error
	weight  int // what it adds to the progress
}

// name names the item to people: "line 7".
func (it item) name() string { return fmt.Sprintf("%s %d", it.kind, it.number) }

// source is where messages come from: one body, perhaps repeated, or a file of many.
type source struct {
	message client.Message // what all share
	total   int            // of one body
	body    func() ([]byte, error)
	many    func() (item, error) // nil for one body
	bytes   int64                // of the file of many; -1 unknown
	closer  io.Closer

	sent   int
	loaded []byte
}

// source reads the arguments; its errors are of usage.
func (a *app) source(f publishFlags, args []string) (*source, error) {
	headers, err := pairs("-H", f.headers)
	if err != nil {
		return nil, err
	}
	fields, err := pairs("--header-field", f.headerFields)
	if err != nil {
		return nil, err
	}
	s := &source{message: client.Message{Topic: args[0], Key: f.key, Headers: headers, Delay: f.delay, TTL: f.ttl}, total: f.count}
	file := f.ndjson + f.jsonArray
	if file == "" {
		if f.keyField != "" || len(fields) > 0 {
			return nil, errors.New("--key-field and --header-field need --ndjson or --json-array")
		}
		if f.count < 1 {
			return nil, fmt.Errorf("--count %d: want at least 1", f.count)
		}
		arg := "-"
		if len(args) == 2 {
			arg = args[1]
		}
		s.body = func() ([]byte, error) { return a.readBody(arg) }
		return s, nil
	}
	if len(args) == 2 {
		return nil, errors.New("give a body or a file of messages, not both")
	}
	in, err := a.open(s, file)
	if err != nil {
		return nil, err
	}
	x := extractor{headers: headers, keyField: f.keyField, headerFields: fields}
	if f.ndjson != "" {
		s.many = newLines(file, bufio.NewReaderSize(in, 1<<20), x).next
	} else {
		s.many = newElements(file, in, x).next
	}
	return s, nil
}

// open opens a file of messages, "-" for stdin.
func (a *app) open(s *source, file string) (io.Reader, error) {
	s.bytes = -1
	if file == "-" {
		return a.in, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		s.bytes = info.Size()
	}
	s.closer = f
	return f, nil
}

// readBody returns the body that an argument stands for.
func (a *app) readBody(arg string) ([]byte, error) {
	switch {
	case arg == "-":
		if terminal(a.in) {
			a.say("reading the body from the terminal; Ctrl-D ends it")
		}
		return io.ReadAll(a.in)
	case len(arg) > 1 && arg[0] == '@':
		return os.ReadFile(arg[1:])
	}
	return []byte(arg), nil
}

// next returns the next message, or errEnd.
func (s *source) next() (item, error) {
	if s.many != nil {
		return s.many()
	}
	if s.sent == s.total {
		return item{}, errEnd
	}
	if s.sent == 0 {
		body, err := s.body()
		if err != nil {
			return item{}, err
		}
		s.loaded = body
	}
	s.sent++
	m := s.message
	m.Body = s.loaded
	return item{number: s.sent, kind: "message", message: m, weight: 1}, nil
}

// size is what the weights of all items come to, -1 unknown.
func (s *source) size() int64 {
	if s.many != nil {
		return s.bytes
	}
	return int64(s.total)
}

func (s *source) close() {
	if s.closer != nil {
		_ = s.closer.Close() // only read
	}
}
