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

// durabilities are the settings by their names in the API.
var durabilities = [...]struct {
	proto notifyv1.Durability
	store store.Durability
}{
	{notifyv1.Durability_DURABILITY_DURABLE, store.Durable},
	{notifyv1.Durability_DURABILITY_REPLICATED, store.Replicated},
	{notifyv1.Durability_DURABILITY_MEMORY, store.InMemory},
}

func durabilityProto(d store.Durability) notifyv1.Durability {
	for _, x := range durabilities {
		if x.store == d {
			return x.proto
		}
	}
	return notifyv1.Durability_DURABILITY_UNSPECIFIED // a newer program's
}

// durabilityOf reads a topic's durability, and refuses one that the store's server cannot give.
func (b *Broker) durabilityOf(ctx context.Context, d notifyv1.Durability) (store.Durability, error) {
	if d == notifyv1.Durability_DURABILITY_UNSPECIFIED {
		d = notifyv1.Durability_DURABILITY_DURABLE
	}
	for _, x := range durabilities {
		if x.proto != d {
			continue
		}
		var err error
		if x.store == store.Replicated {
			err = b.main.st.CanReplicate(ctx)
		}
		if errors.Is(err, store.ErrNoSemiSync) {
			err = &message.FieldError{Field: "durability", Rule: err.Error()}
		}
		return x.store, err
	}
	return "", &message.FieldError{Field: "durability", Rule: "want DURABILITY_DURABLE, DURABILITY_REPLICATED or DURABILITY_MEMORY"}
}

// UpdateTopic implements the API.
func (b *Broker) UpdateTopic(ctx context.Context, req *connect.Request[notifyv1.UpdateTopicRequest]) (*connect.Response[notifyv1.UpdateTopicResponse], error) {
	if req.Msg.CheckAfterMs == nil && req.Msg.Durability == nil {
		return nil, rpcError(&message.FieldError{Field: "check_after_ms", Rule: "missing, and durability too; nothing else can be changed"})
	}
	after, err := checkAfterOf(req.Msg.GetCheckAfterMs())
	if err != nil {
		return nil, rpcError(err)
	}
	durability, err := b.durabilityOf(ctx, req.Msg.GetDurability())
	if err != nil {
		return nil, rpcError(err)
	}
	err = b.main.st.SetTopic(ctx, req.Msg.GetName(), func(s *store.TopicSettings) error {
		if req.Msg.CheckAfterMs != nil {
			s.CheckAfter = after
		}
		if req.Msg.Durability != nil {
			if (s.Durability == store.InMemory) != (durability == store.InMemory) {
				return &message.FieldError{Field: "durability", Rule: "a topic is in memory for good, or never: create another topic"}
			}
			s.Durability = durability
		}
		return nil
	})
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
