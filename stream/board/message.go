package board

import (
	"bytes"
	"encoding/json"
	"io"

	"notifymirror/stream"
)

// message is a record as fields and filters see it. Its body is decoded when somebody
// asks for it, once.
type message struct {
	record  stream.Record
	key     string
	decoded bool
	body    any
}

func newMessage(r stream.Record) *message { return &message{record: r, key: string(r.Key)} }

func (m *message) header(name string) string {
	for _, h := range m.record.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// json is the decoded body, with its numbers as they are written; nil when it is no JSON.
func (m *message) json() any {
	if m.decoded {
		return m.body
	}
	m.decoded = true
	d := json.NewDecoder(bytes.NewReader(m.record.Body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil // something behind it
	}
	m.body = v
	return v
}
