package notifyd

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// topicCheckMin and topicCheckMax bound a topic's check_after.
const (
	topicCheckMin = 100 * time.Millisecond
	topicCheckMax = 30 * 24 * time.Hour
)

// checkAfterOf reads a topic's check_after, in microseconds.
func checkAfterOf(ms uint32) (int64, error) {
	d := time.Duration(ms) * time.Millisecond
	if d != 0 && (d < topicCheckMin || d > topicCheckMax) {
		return 0, &message.FieldError{Field: "check_after_ms", Rule: "must be 0 for the broker's setting, or 100ms to 720h"}
	}
	return d.Microseconds(), nil
}

// UpdateTopic implements the API.
func (b *Broker) UpdateTopic(ctx context.Context, req *connect.Request[notifyv1.UpdateTopicRequest]) (*connect.Response[notifyv1.UpdateTopicResponse], error) {
	if req.Msg.CheckAfterMs == nil {
		return nil, rpcError(&message.FieldError{Field: "check_after_ms", Rule: "missing; it is all that can be changed"})
	}
	after, err := checkAfterOf(req.Msg.GetCheckAfterMs())
	if err != nil {
		return nil, rpcError(err)
	}
	err = b.main.st.SetTopic(ctx, req.Msg.GetName(), func(s *store.TopicSettings) { s.CheckAfter = after })
	if errors.Is(err, store.ErrNoTopic) {
		return nil, rpcError(unknownTopic(req.Msg.GetName()))
	}
	if err != nil {
		return nil, rpcError(err)
	}
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.UpdateTopicResponse{Topic: topicProto(v.Topics[req.Msg.GetName()]), StoresAway: b.spread(ctx)}), nil
}
