package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// Outcomes of a replayed message.
const (
	// ReplayAcknowledged: the group has handled it.
	ReplayAcknowledged = "acknowledged"
	// ReplayPassedOver: the subscription's filter does not let it through.
	ReplayPassedOver = "passed_over"
	// ReplayRejected: a handler has rejected it.
	ReplayRejected = "rejected"
	// ReplayMaxAttempts, ReplayExpired: the subscription allows no further attempt. The age counts from the replay.
	ReplayMaxAttempts = "max_attempts"
	ReplayExpired     = "expired"
	// ReplayGroupDropped: the group was dropped meanwhile.
	ReplayGroupDropped = "group_dropped"
)

// ReplayOutcome is what became of one message of a replay.
type ReplayOutcome struct {
	// Index is the message's place among those given to Replay.
	Index int
	// Outcome is one of the constants above; a newer broker may have others.
	Outcome string
	// Attempts is how often it was pushed.
	Attempts int
	// Error is that of the last attempt, when that was no acknowledgement.
	Error string
}

// Bounds of one call.
const (
	replayMost  = 1000
	replayBytes = 1 << 20 // of messages, unless one alone is larger
)

// Replay pushes messages, as they are in the mirror, to one group again. They go behind what is live, by the filter, ack
// wait and retries of the group's subscription, and are marked by Delivery.Replayed. One broker holds them in
// memory; nothing is stored, and none becomes a dead letter. It returns when each message has an outcome, which is told as it
// comes, or with an error when ctx ends or no broker takes them: after that, what has no outcome may be sent again,
// which may repeat deliveries. A broker that fails is tried again, or another one is, for Config.Patience.
//
// Messages need an ID; their times other than BornAt are ignored. Up to 1,000 messages or 1 MiB are pushed side by side, in
// any order, and those behind them only then.
func (c *Client) Replay(ctx context.Context, group string, messages []Message, told func(ReplayOutcome)) error {
	for _, m := range messages {
		if err := checkText(m, ""); err != nil {
			return err
		}
	}
	for from := 0; from < len(messages); {
		var part []int
		for size := 0; from < len(messages) && len(part) < replayMost && (len(part) == 0 || size+messages[from].size() <= replayBytes); from++ {
			part = append(part, from)
			size += messages[from].size()
		}
		if err := c.replayPart(ctx, group, messages, part, told); err != nil {
			return err
		}
	}
	return nil
}

// size is about what the message takes on the wire, bytes.
func (m Message) size() int {
	n := 128 + len(m.Topic) + len(m.Key) + len(m.Body)
	for name, value := range m.Headers {
		n += 16 + len(name) + len(value)
	}
	return n
}

// replayPart replays the messages that are left until none is.
func (c *Client) replayPart(ctx context.Context, group string, messages []Message, left []int, told func(ReplayOutcome)) error {
	for len(left) > 0 {
		before := len(left)
		err := c.retry(ctx, repeatable, func(addr string) (err error) {
			left, err = c.replayAt(ctx, addr, group, messages, left, told)
			return err
		})
		var e *Error
		if err != nil && (len(left) == before || ctx.Err() != nil || !errors.As(err, &e) || e.permanent()) {
			return err
		} // what has moved has earned new patience
	}
	return nil
}

// replayAt has one broker replay the messages that are left, and returns those that are left then.
func (c *Client) replayAt(ctx context.Context, addr, group string, messages []Message, left []int, told func(ReplayOutcome)) ([]int, error) {
	req := &notifyv1.ReplayRequest{Group: group}
	for _, i := range left {
		m := messages[i]
		req.Messages = append(req.Messages, &notifyv1.Message{Id: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body, BornAtUs: micros(m.BornAt)})
	}
	admin := notifyv1connect.NewAdminClient(c.http, "http://"+addr, callOptions()...)
	stream, err := admin.Replay(ctx, connect.NewRequest(req))
	if err != nil {
		return left, callError(addr, err)
	}
	defer stream.Close() // an error here is that of the stream
	done := make([]bool, len(left))
	for stream.Receive() {
		for _, o := range stream.Msg().GetOutcomes() {
			if at := int(o.GetIndex()); at < len(done) && !done[at] {
				done[at] = true
				told(ReplayOutcome{Index: left[at], Outcome: o.GetOutcome(), Attempts: int(o.GetAttempts()), Error: o.GetError()})
			}
		}
	}
	var rest []int
	for at, i := range left {
		if !done[at] {
			rest = append(rest, i)
		}
	}
	err = stream.Err()
	if err == nil && len(rest) > 0 {
		err = streamEnded(io.EOF)
	}
	return rest, callError(addr, err)
}
