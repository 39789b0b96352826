package message

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// Message is one message between a producer and its consumers.
type Message struct {
	// ID is its name, a UUIDv7 given at publish.
	ID    uuid.UUID
	Topic string
	// Key orders messages of one topic in the mirror; empty: unkeyed.
	Key     string
	Headers map[string]string
	Body    []byte
	// Mirrored is the topic's setting at publish.
	Mirrored bool
	// BornAt is when the store took it, microseconds since 1970 UTC by the store's clock.
	BornAt int64
	// DeliverAt is when it is pushed first, ExpiresAt when deliveries that are not acknowledged
	// become dead letters; by the same clock, 0: at once, never.
	DeliverAt, ExpiresAt int64
}

// Names under which the two times stand in a row's headers, and in the mirror.
const (
	HeaderDeliverAt = ReservedHeaderPrefix + "deliver-at"
	HeaderExpiresAt = ReservedHeaderPrefix + "expires-at"
)

// StoredHeaders are the headers with the times that are set; the result may be m.Headers.
func (m *Message) StoredHeaders() map[string]string {
	if m.DeliverAt == 0 && m.ExpiresAt == 0 {
		return m.Headers
	}
	all := make(map[string]string, len(m.Headers)+2)
	maps.Copy(all, m.Headers)
	for name, at := range map[string]int64{HeaderDeliverAt: m.DeliverAt, HeaderExpiresAt: m.ExpiresAt} {
		if at != 0 {
			all[name] = strconv.FormatInt(at, 10)
		}
	}
	return all
}

// SetStoredHeaders takes headers as StoredHeaders gave them; they are the message's from then on.
func (m *Message) SetStoredHeaders(all map[string]string) error {
	for name, at := range map[string]*int64{HeaderDeliverAt: &m.DeliverAt, HeaderExpiresAt: &m.ExpiresAt} {
		text, ok := all[name]
		if !ok {
			continue
		}
		var err error
		if *at, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
		delete(all, name)
	}
	m.Headers = all
	if len(all) == 0 {
		m.Headers = nil
	}
	return nil
}

// overhead is the memory that a message takes beside its strings and body, in bytes.
const overhead = 256

// Size is about the memory the message takes, in bytes.
func (m *Message) Size() int {
	n := overhead + len(m.Topic) + len(m.Key) + len(m.Body)
	for k, v := range m.Headers {
		n += len(k) + len(v) + 32
	}
	return n
}

// HashSize is the length of a content hash, in bytes.
const HashSize = 16

// Hash identifies the content (key, headers, body) for idempotent publishing: the first
// 16 bytes of SHA-256 over each part behind its length.
func (m *Message) Hash() [HashSize]byte {
	h := sha256.New()
	part := func(s []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write(s)
	}
	part([]byte(m.Key))
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		part([]byte(k))
		part([]byte(m.Headers[k]))
	}
	part(m.Body)
	return [HashSize]byte(h.Sum(nil))
}
