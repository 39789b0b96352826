package client

import (
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// Message is what a producer publishes and a consumer receives. The broker
// checks the limits; they are in Error.Limit when one is exceeded.
type Message struct {
	// ID is a UUIDv7 in text form, the message's name. Empty at publish: one is
	// made.
	ID string
	// Topic is 1 to 127 bytes of [A-Za-z0-9._-] and may not begin with "_".
	Topic string
	// Key is at most 255 bytes. Messages of one topic and key keep their order in
	// the mirror. Empty: unkeyed.
	Key string
	// Headers are at most 64 pairs and 16 KiB of names and values in UTF-8. Names
	// may not begin with "notify-".
	Headers map[string]string
	// Body is at most 4 MiB unless the broker is configured otherwise.
	Body []byte
	// BornAt is when the store took the message, by the store's clock, in
	// microseconds. Ignored at publish.
	BornAt time.Time
}

func (m Message) proto() *notifyv1.Message {
	return &notifyv1.Message{Id: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body}
}

func messageFrom(m *notifyv1.Message) Message {
	out := Message{ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(), Headers: m.GetHeaders(), Body: m.GetBody()}
	if us := m.GetBornAtUs(); us != 0 {
		out.BornAt = time.UnixMicro(us).UTC()
	}
	return out
}

// PublishOptions are what may be asked of one publish beside the message.
type PublishOptions struct {
	// IdempotencyKey makes a repeat with the same topic and key store nothing and
	// return the first id, for the broker's dedup window (24 h by default). The
	// same key with another content is refused with ReasonConflict. At most 255
	// bytes. Default: the message's id, which is made here when it is empty, so
	// that a retry after an unknown result is no duplicate.
	IdempotencyKey string
	// NoDedup publishes without an idempotency key unless one is given. It saves
	// the store a row, kept for the dedup window, for each message. The price: an
	// unknown result is not retried, and a message that is sent again because its
	// answer was lost, by the caller or by a Publisher, may be stored twice.
	NoDedup bool
}

// Published is the broker's answer: the message is durable.
type Published struct {
	// ID of the stored message.
	ID string
	// Duplicate is true when the idempotency key was known. ID is then that of
	// the first publish.
	Duplicate bool
}
