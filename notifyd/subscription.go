package notifyd

import (
	"fmt"
	"strings"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/filter"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// Limits of delivery settings.
const (
	minAckWait = 100 * time.Millisecond
	maxAckWait = 12 * time.Hour
	maxRetry   = 24 * time.Hour
	maxMaxAge  = 366 * 24 * time.Hour
)

// settingsOf reads a subscription's definition. Its error is a *message.FieldError.
func settingsOf(s *notifyv1.Subscription) (store.SubscriptionSettings, error) {
	d := s.GetDelivery()
	out := store.SubscriptionSettings{
		Filter:      strings.TrimSpace(s.GetFilter()),
		Broadcast:   s.GetMode() == notifyv1.Mode_MODE_BROADCAST,
		AckWait:     int64(d.GetAckWaitMs()) * 1000,
		RetryMin:    int64(d.GetRetryMinMs()) * 1000,
		RetryMax:    int64(d.GetRetryMaxMs()) * 1000,
		MaxAttempts: int64(d.GetMaxAttempts()),
		MaxAge:      fromMillis(d.GetMaxAgeMs()),
	}
	if _, known := notifyv1.Mode_name[int32(s.GetMode())]; !known {
		return out, &message.FieldError{Field: "mode", Rule: "want MODE_CLUSTER or MODE_BROADCAST"}
	}
	return out, checkSettings(out)
}

// fromMillis is a time in microseconds; one that is too large stays too large.
func fromMillis(ms uint64) int64 { return int64(min(ms, 1<<50)) * 1000 }

// checkSettings returns the first broken rule of a definition.
func checkSettings(s store.SubscriptionSettings) error {
	if s.Filter != "" {
		if _, err := filter.Compile(s.Filter); err != nil {
			return &message.FieldError{Field: "filter", Rule: err.Error()}
		}
	}
	for _, f := range []struct {
		name     string
		us       int64
		min, max time.Duration
	}{
		{"ack_wait", s.AckWait, minAckWait, maxAckWait},
		{"retry_min", s.RetryMin, time.Millisecond, maxRetry},
		{"retry_max", s.RetryMax, time.Millisecond, maxRetry},
		{"max_age", s.MaxAge, time.Millisecond, maxMaxAge},
	} {
		if d := time.Duration(f.us) * time.Microsecond; f.us != 0 && (f.us > f.max.Microseconds() || d < f.min) {
			return &message.FieldError{Field: f.name, Rule: fmt.Sprintf("want %s to %s, or 0 for the broker's setting", f.min, f.max)}
		}
	}
	if s.RetryMin > s.RetryMax && s.RetryMax != 0 {
		return &message.FieldError{Field: "retry_min", Rule: fmt.Sprintf("%s is above retry_max, %s", micros(s.RetryMin), micros(s.RetryMax))}
	}
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// definition is what two sides compare, field by field, as people write it.
var definition = []struct {
	name string
	text func(store.SubscriptionSettings) string
}{
	{"filter", func(s store.SubscriptionSettings) string { return fmt.Sprintf("%q", s.Filter) }},
	{"mode", func(s store.SubscriptionSettings) string { return modeText(s.Broadcast) }},
	{"ack_wait", func(s store.SubscriptionSettings) string { return durationText(s.AckWait) }},
	{"retry_min", func(s store.SubscriptionSettings) string { return durationText(s.RetryMin) }},
	{"retry_max", func(s store.SubscriptionSettings) string { return durationText(s.RetryMax) }},
	{"max_attempts", func(s store.SubscriptionSettings) string { return orDefault(s.MaxAttempts, fmt.Sprint(s.MaxAttempts)) }},
	{"max_age", func(s store.SubscriptionSettings) string { return durationText(s.MaxAge) }},
}

func modeText(broadcast bool) string {
	if broadcast {
		return "broadcast"
	}
	return "cluster"
}

func orDefault(n int64, text string) string {
	if n == 0 {
		return "the broker's"
	}
	return text
}

func durationText(us int64) string { return orDefault(us, micros(us).String()) }

// differences lists what two definitions say otherwise: "field: yours / the server's".
func differences(yours, servers store.SubscriptionSettings) (out []string) {
	for _, f := range definition {
		if a, b := f.text(yours), f.text(servers); a != b {
			out = append(out, fmt.Sprintf("%s: %s / %s", f.name, a, b))
		}
	}
	return out
}

// compare returns an error that shows how a definition differs from the one in force, or nil.
func (v *view) compare(group, topic string, yours store.SubscriptionSettings) error {
	s, ok := v.Subscription(group, topic)
	if !ok {
		return unknownSubscription(group, topic)
	}
	if d := differences(yours, s.Settings); len(d) > 0 {
		return newError(notifyv1.Reason_REASON_DEFINED_OTHERWISE,
			"subscription of %q to %q is declared otherwise (yours / the server's): %s; agree with it, or change it for all: notify sub set %s/%s",
			group, topic, strings.Join(d, "; "), group, topic)
	}
	return nil
}

func (v *view) subscriptionProto(s store.Subscription) *notifyv1.Subscription {
	x := s.Settings
	out := &notifyv1.Subscription{Group: v.GroupNames[s.GroupID], Topic: s.Topic, CreatedAtUs: s.CreatedAt,
		Filter: x.Filter, Mode: notifyv1.Mode_MODE_CLUSTER, Version: uint64(x.Changes) + 1,
		Delivery: &notifyv1.DeliverySettings{AckWaitMs: uint32(x.AckWait / 1000), RetryMinMs: uint32(x.RetryMin / 1000), RetryMaxMs: uint32(x.RetryMax / 1000),
			MaxAttempts: uint32(x.MaxAttempts), MaxAgeMs: uint64(x.MaxAge / 1000)}}
	if x.Broadcast {
		out.Mode = notifyv1.Mode_MODE_BROADCAST
	}
	return out
}
