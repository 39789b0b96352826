package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// A definition is what the flags of "sub add" and "sub set" say of a subscription.
type definition struct {
	filter, mode                        string
	ackWait, retryMin, retryMax, maxAge time.Duration
	maxAttempts                         uint32
}

func (d *definition) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.filter, "filter", "", `CEL over headers, key and topic, such as 'headers.region == "eu"'; a missing header reads as "" (empty: every message)`)
	f.StringVar(&d.mode, "mode", "cluster", "cluster: one instance gets a message; broadcast: every instance that is attached")
	spanVar(f, &d.ackWait, "ack-wait", 0, "deliver again when not acknowledged within this time (0: the broker's ack_wait)")
	spanVar(f, &d.retryMin, "retry-min", 0, "shortest pause before the next attempt (0: the broker's retry_min)")
	spanVar(f, &d.retryMax, "retry-max", 0, "longest pause before the next attempt (0: the broker's retry_max)")
	f.Uint32Var(&d.maxAttempts, "max-attempts", 0, "make a dead letter after so many attempts (0: the broker's max_attempts)")
	spanVar(f, &d.maxAge, "max-age", 0, "make a dead letter of what is older (0: the broker's max_age)")
}

// request is what the flags ask for, with only the given ones set.
func (d *definition) request(cmd *cobra.Command) (*notifyv1.UpdateSubscriptionRequest, error) {
	r := &notifyv1.UpdateSubscriptionRequest{}
	given := cmd.Flags().Changed
	if given("filter") {
		r.Filter = &d.filter
	}
	if given("mode") {
		mode, err := modeOf(d.mode)
		if err != nil {
			return nil, err
		}
		r.Mode = &mode
	}
	for _, t := range []struct {
		flag string
		d    time.Duration
		into **uint32
	}{{"ack-wait", d.ackWait, &r.AckWaitMs}, {"retry-min", d.retryMin, &r.RetryMinMs}, {"retry-max", d.retryMax, &r.RetryMaxMs}} {
		ms, err := milliseconds("--"+t.flag, t.d)
		if err != nil {
			return nil, err
		}
		if given(t.flag) {
			*t.into = &ms
		}
	}
	if given("max-attempts") {
		r.MaxAttempts = &d.maxAttempts
	}
	if d.maxAge < 0 {
		return nil, usageError(fmt.Errorf("--max-age %s: negative", d.maxAge))
	}
	if ms := uint64(d.maxAge.Milliseconds()); given("max-age") {
		r.MaxAgeMs = &ms
	}
	return r, nil
}

// subscription is what the flags ask for as a whole.
func (d *definition) subscription(cmd *cobra.Command, group, topic string) (*notifyv1.Subscription, error) {
	r, err := d.request(cmd)
	if err != nil {
		return nil, err
	}
	s := &notifyv1.Subscription{Group: group, Topic: topic, Filter: r.GetFilter(), Mode: r.GetMode()}
	if d.ackWait != 0 || d.retryMin != 0 || d.retryMax != 0 || d.maxAge != 0 || d.maxAttempts != 0 {
		s.Delivery = &notifyv1.DeliverySettings{AckWaitMs: r.GetAckWaitMs(), RetryMinMs: r.GetRetryMinMs(), RetryMaxMs: r.GetRetryMaxMs(),
			MaxAttempts: r.GetMaxAttempts(), MaxAgeMs: r.GetMaxAgeMs()}
	}
	return s, nil
}

func modeOf(text string) (notifyv1.Mode, error) {
	switch text {
	case "cluster":
		return notifyv1.Mode_MODE_CLUSTER, nil
	case "broadcast":
		return notifyv1.Mode_MODE_BROADCAST, nil
	}
	return 0, usageError(fmt.Errorf("--mode %q: want cluster or broadcast", text))
}
