package notifyd

import (
	"context"
	"errors"
	"slices"
	"strings"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// AddSubscription implements the API.
func (b *Broker) AddSubscription(ctx context.Context, req *connect.Request[notifyv1.AddSubscriptionRequest]) (*connect.Response[notifyv1.AddSubscriptionResponse], error) {
	s := req.Msg.GetSubscription()
	if err := errors.Join(message.ValidateGroup(s.GetGroup()), message.ValidateTopic(s.GetTopic())); err != nil {
		return nil, rpcError(err)
	}
	settings, err := settingsOf(s)
	if err != nil {
		return nil, rpcError(err)
	}
	if b.cfg.AutoCreateTopics {
		if _, err := b.findTopic(ctx, s.GetTopic()); err != nil {
			return nil, rpcError(err)
		}
	}
	created, err := b.main.st.AddSubscription(ctx, s.GetGroup(), s.GetTopic(), settings)
	if errors.Is(err, store.ErrNoTopic) {
		return nil, rpcError(unknownTopic(s.GetTopic()))
	}
	if errors.Is(err, store.ErrExists) {
		return nil, b.refuseTwin(ctx, s, settings, err)
	}
	if err != nil {
		return nil, rpcError(err)
	}
	sub, away, err := b.changed(ctx, s.GetGroup(), s.GetTopic())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.AddSubscriptionResponse{Subscription: sub, GroupCreated: created, StoresAway: away}), nil
}

// refuseTwin says how a subscription that is there differs from the one asked for.
func (b *Broker) refuseTwin(ctx context.Context, s *notifyv1.Subscription, settings store.SubscriptionSettings, exists error) error {
	v, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	if err := v.compare(s.GetGroup(), s.GetTopic(), settings); err != nil {
		return rpcError(err)
	}
	return rpcError(exists)
}

// changed brings a change of a subscription into force everywhere and returns what it is now.
func (b *Broker) changed(ctx context.Context, group, topic string) (sub *notifyv1.Subscription, away []string, err error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	if s, ok := v.Subscription(group, topic); ok { // else somebody has removed it meanwhile
		sub = v.subscriptionProto(s)
	}
	return sub, b.spread(ctx), nil
}

// UpdateSubscription implements the API.
func (b *Broker) UpdateSubscription(ctx context.Context, req *connect.Request[notifyv1.UpdateSubscriptionRequest]) (*connect.Response[notifyv1.UpdateSubscriptionResponse], error) {
	r := req.Msg
	err := b.main.st.SetSubscription(ctx, r.GetGroup(), r.GetTopic(), func(s *store.SubscriptionSettings) error {
		return update(s, r)
	})
	if err := subscriptionProblem(err, r.GetGroup(), r.GetTopic()); err != nil {
		return nil, rpcError(err)
	}
	sub, away, err := b.changed(ctx, r.GetGroup(), r.GetTopic())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.UpdateSubscriptionResponse{Subscription: sub, StoresAway: away}), nil
}

// update puts what a request gives in the place of what is in force.
func update(s *store.SubscriptionSettings, r *notifyv1.UpdateSubscriptionRequest) error {
	wanted := &notifyv1.Subscription{Filter: r.GetFilter(), Mode: r.GetMode(), Delivery: &notifyv1.DeliverySettings{
		AckWaitMs: r.GetAckWaitMs(), RetryMinMs: r.GetRetryMinMs(), RetryMaxMs: r.GetRetryMaxMs(), MaxAttempts: r.GetMaxAttempts(), MaxAgeMs: r.GetMaxAgeMs()}}
	given, err := settingsOf(wanted)
	if err != nil {
		return err
	}
	if r.Filter != nil {
		s.Filter = given.Filter
	}
	if r.Mode != nil {
		s.Broadcast = given.Broadcast
	}
	if r.AckWaitMs != nil {
		s.AckWait = given.AckWait
	}
	if r.RetryMinMs != nil {
		s.RetryMin = given.RetryMin
	}
	if r.RetryMaxMs != nil {
		s.RetryMax = given.RetryMax
	}
	if r.MaxAttempts != nil {
		s.MaxAttempts = given.MaxAttempts
	}
	if r.MaxAgeMs != nil {
		s.MaxAge = given.MaxAge
	}
	return checkSettings(*s)
}

func subscriptionProblem(err error, group, topic string) error {
	if errors.Is(err, store.ErrNoSubscription) {
		return unknownSubscription(group, topic)
	}
	return err
}

// RemoveSubscription implements the API.
func (b *Broker) RemoveSubscription(ctx context.Context, req *connect.Request[notifyv1.RemoveSubscriptionRequest]) (*connect.Response[notifyv1.RemoveSubscriptionResponse], error) {
	group, topic := req.Msg.GetGroup(), req.Msg.GetTopic()
	if err := subscriptionProblem(b.main.st.RemoveSubscription(ctx, group, topic), group, topic); err != nil {
		return nil, rpcError(err)
	}
	_, away, err := b.changed(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.RemoveSubscriptionResponse{StoresAway: away}), nil
}

// DropGroup implements the API.
func (b *Broker) DropGroup(ctx context.Context, req *connect.Request[notifyv1.DropGroupRequest]) (*connect.Response[notifyv1.DropGroupResponse], error) {
	err := b.main.st.DropGroup(ctx, req.Msg.GetName())
	if errors.Is(err, store.ErrNoGroup) {
		err = unknownGroup(req.Msg.GetName())
	}
	if err != nil {
		return nil, rpcError(err)
	}
	if _, err := b.fresh(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.DropGroupResponse{StoresAway: b.spread(ctx)}), nil
}

// ListSubscriptions implements the API.
func (b *Broker) ListSubscriptions(ctx context.Context, req *connect.Request[notifyv1.ListSubscriptionsRequest]) (*connect.Response[notifyv1.ListSubscriptionsResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	var all []*notifyv1.Subscription
	for _, s := range v.Subscriptions {
		p := v.subscriptionProto(s)
		if (req.Msg.GetGroup() == "" || req.Msg.GetGroup() == p.Group) && (req.Msg.GetTopic() == "" || req.Msg.GetTopic() == p.Topic) {
			all = append(all, p)
		}
	}
	name := func(s *notifyv1.Subscription) string { return s.Group + "/" + s.Topic }
	slices.SortFunc(all, func(a, b *notifyv1.Subscription) int { return strings.Compare(name(a), name(b)) })
	cut, next := page(all, name, req.Msg.GetAfter(), req.Msg.GetLimit())
	return connect.NewResponse(&notifyv1.ListSubscriptionsResponse{Subscriptions: cut, Next: next}), nil
}
