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
	// DeliverAt is when the message is pushed first, by the store's clock; zero or
	// past: at once. Delay is the same from the publish on; give one of the two. At
	// most 40 days ahead. The mirror has the message at once in any case.
	DeliverAt time.Time
	Delay     time.Duration
	// ExpiresAt is when deliveries that are not acknowledged become dead letters;
	// zero: never. TTL is the same from the publish, or from DeliverAt, on; give
	// one of the two. A TTL is at most 365 days.
	ExpiresAt time.Time
	TTL       time.Duration
}

func (m Message) proto() *notifyv1.Message {
	return &notifyv1.Message{Id: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body,
		DeliverAtUs: micros(m.DeliverAt), ExpiresAtUs: micros(m.ExpiresAt), DelayMs: millis(m.Delay), TtlMs: millis(m.TTL)}
}

// micros is the API's form of a time, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// millis is the API's form of a duration, rounded up: a short one is not none.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds() // the sum of a very long one and a millisecond would be negative
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func messageFrom(m *notifyv1.Message) Message {
	return Message{ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(), Headers: m.GetHeaders(), Body: m.GetBody(),
		BornAt: timeOf(m.GetBornAtUs()), DeliverAt: timeOf(m.GetDeliverAtUs()), ExpiresAt: timeOf(m.GetExpiresAtUs())}
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
	// InMemory is true when the topic's messages are in the memory of the broker that was asked
	// only: never stored, and lost when it dies.
	InMemory bool
}
