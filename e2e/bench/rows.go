package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/schema"
)

// topicName is the topic of every message.
const topicName = "trades"

// bodyBytes is the size of every body.
const bodyBytes = 512

// messages makes messages: 1,000 keys, one header, a body of 512 bytes that is part JSON and
// part noise. Two of one seed make the same messages.
type messages struct {
	random  *rand.Rand
	n       int
	unkeyed bool
}

func newMessages(seed int) *messages {
	return &messages{random: rand.New(rand.NewPCG(uint64(seed), 1))}
}

// headers are those of every message, and their text in the store.
func headers() (map[string]string, []byte) {
	return map[string]string{"kind": "trade"}, []byte(`{"kind":"trade"}`)
}

// withoutKeys makes messages that have no key.
func (s *messages) withoutKeys() *messages {
	s.unkeyed = true
	return s
}

func (s *messages) key() string {
	if s.unkeyed {
		return ""
	}
	return fmt.Sprintf("account-%d", s.random.IntN(1000))
}

func (s *messages) body() []byte {
	s.n++
	b := make([]byte, 0, bodyBytes)
	b = fmt.Appendf(b, `{"n":%d,"symbol":"ACME","price":%d,"quantity":%d,"side":"buy","note":"`, s.n, s.random.IntN(1e6), s.random.IntN(500))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	for len(b) < bodyBytes-2 {
		for bits, k := s.random.Uint64(), 0; k < 10 && len(b) < bodyBytes-2; k++ {
			b = append(b, letters[bits&63])
			bits >>= 6
		}
	}
	return append(b, `"}`...)
}

// message is for the broker.
func (s *messages) message() client.Message {
	h, _ := headers()
	return client.Message{Topic: topicName, Key: s.key(), Headers: h, Body: s.body()}
}

// appendRow appends the columns of a message table's row.
func (s *messages) appendRow(args []any, pos, bornAt int64) []any {
	_, h := headers()
	id := uuid.Must(uuid.NewV7())
	return append(args, pos, id[:], topicName, []byte(s.key()), h, s.body(), 1, bornAt)
}

// insertText is an INSERT of rows into a shard's message table.
func insertText(shard, rows int) string {
	return "INSERT INTO " + schema.Message(shard) + " (" + schema.MessageColumnList + ") VALUES " + tuples(rows)
}

// tuples is "(?,?,?,?,?,?,?,?),(...".
func tuples(rows int) string {
	const one = "(?,?,?,?,?,?,?,?)"
	b := make([]byte, 0, rows*(len(one)+1))
	for i := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, one...)
	}
	return string(b)
}
