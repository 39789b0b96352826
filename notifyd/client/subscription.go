package client

import (
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// Subscription is what a consumer takes its group's subscription to a topic to be. Zero
// settings are the broker's own.
type Subscription struct {
	// Topic is required.
	Topic string
	// Filter is a CEL expression over headers, key and topic. Empty: every message.
	Filter string
	// Broadcast: every instance gets a message, instead of one.
	Broadcast bool
	// AckWait is how long a delivery may stay unacknowledged.
	AckWait time.Duration
	// RetryMin and RetryMax bound the backoff between attempts.
	RetryMin, RetryMax time.Duration
	// MaxAttempts is how many attempts a delivery gets before it becomes a dead letter.
	MaxAttempts int
	// MaxAge is how old a message may become before its delivery is a dead letter.
	MaxAge time.Duration
}

// proto is the subscription as the API has it: times in whole milliseconds.
func (s Subscription) proto() *notifyv1.Subscription {
	ms := func(d time.Duration) uint32 { return uint32(d.Milliseconds()) }
	out := &notifyv1.Subscription{Topic: s.Topic, Filter: s.Filter, Mode: notifyv1.Mode_MODE_CLUSTER, Delivery: &notifyv1.DeliverySettings{
		AckWaitMs: ms(s.AckWait), RetryMinMs: ms(s.RetryMin), RetryMaxMs: ms(s.RetryMax),
		MaxAttempts: uint32(s.MaxAttempts), MaxAgeMs: uint64(s.MaxAge.Milliseconds())}}
	if s.Broadcast {
		out.Mode = notifyv1.Mode_MODE_BROADCAST
	}
	return out
}

func subscriptions(list []Subscription) (out []*notifyv1.Subscription) {
	for _, s := range list {
		out = append(out, s.proto())
	}
	return out
}
