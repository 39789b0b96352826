package notifyd

import (
	"context"
	"maps"
	"slices"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

const (
	// defaultListLimit is the length of a list for which no limit was asked, and the longest.
	defaultListLimit = 500
	// countLimit is where counting the pending rows of one shard stops.
	countLimit = 10_000
)

// page cuts a sorted list behind after, to limit items; next is set when it stopped early.
func page[T any](items []T, name func(T) string, after string, limit uint32) (cut []T, next string) {
	start := 0
	for after != "" && start < len(items) && name(items[start]) <= after {
		start++
	}
	items = items[start:]
	most := listLimit(limit)
	if len(items) <= most {
		return items, ""
	}
	return items[:most], name(items[most-1])
}

// badAfter refuses a place to go on that no list gave.
func badAfter() error {
	return &message.FieldError{Field: "after", Rule: "not what a list returned as next"}
}

// listLimit is the length of a list for which limit was asked.
func listLimit(limit uint32) int {
	if limit > 0 && limit < defaultListLimit {
		return int(limit)
	}
	return defaultListLimit
}

func topicProto(t store.Topic) *notifyv1.Topic {
	return &notifyv1.Topic{Name: t.Name, Mirrored: &t.Mirrored, CreatedAtUs: t.CreatedAt, CheckAfterMs: uint32(t.Settings.CheckAfter / 1000),
		Durability: durabilityProto(t.Settings.Durability)}
}

// fresh reads the registry in force for a listing.
func (b *Broker) fresh(ctx context.Context) (*view, error) {
	if err := b.main.readRegistry(ctx); err != nil {
		return nil, rpcError(err)
	}
	return b.declared.load(), nil
}

// CreateTopic implements the API.
func (b *Broker) CreateTopic(ctx context.Context, req *connect.Request[notifyv1.CreateTopicRequest]) (*connect.Response[notifyv1.CreateTopicResponse], error) {
	t := req.Msg.GetTopic()
	if err := message.ValidateTopic(t.GetName()); err != nil {
		return nil, rpcError(err)
	}
	after, err := checkAfterOf(t.GetCheckAfterMs())
	if err != nil {
		return nil, rpcError(err)
	}
	durability, err := b.durabilityOf(ctx, t.GetDurability())
	if err != nil {
		return nil, rpcError(err)
	}
	mirrored := (t.Mirrored == nil || t.GetMirrored()) && durability != store.InMemory
	if err := b.main.st.CreateTopic(ctx, store.Topic{Name: t.GetName(), Mirrored: mirrored, Settings: store.TopicSettings{CheckAfter: after, Durability: durability}}); err != nil {
		return nil, rpcError(err)
	}
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.CreateTopicResponse{Topic: topicProto(v.Topics[t.GetName()]), StoresAway: b.spread(ctx)}), nil
}

// ListTopics implements the API.
func (b *Broker) ListTopics(ctx context.Context, req *connect.Request[notifyv1.ListTopicsRequest]) (*connect.Response[notifyv1.ListTopicsResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	names, next := page(slices.Sorted(maps.Keys(v.Topics)), func(s string) string { return s }, req.Msg.GetAfter(), req.Msg.GetLimit())
	res := &notifyv1.ListTopicsResponse{Next: next}
	for _, n := range names {
		res.Topics = append(res.Topics, topicProto(v.Topics[n]))
	}
	return connect.NewResponse(res), nil
}

// GetTopic implements the API.
func (b *Broker) GetTopic(ctx context.Context, req *connect.Request[notifyv1.GetTopicRequest]) (*connect.Response[notifyv1.GetTopicResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	t, ok := v.Topics[req.Msg.GetName()]
	if !ok {
		return nil, rpcError(unknownTopic(req.Msg.GetName()))
	}
	res := &notifyv1.GetTopicResponse{Topic: topicProto(t)}
	for _, s := range v.Subscriptions {
		if s.Topic == t.Name {
			res.Subscriptions = append(res.Subscriptions, v.subscriptionProto(s))
		}
	}
	return connect.NewResponse(res), nil
}

func (b *Broker) groupProto(v *view, g store.Group) *notifyv1.Group {
	out := &notifyv1.Group{Name: g.Name, CreatedAtUs: g.CreatedAt, Topics: v.topicsOf(g.ID)}
	out.Instances, out.InFlight = b.hub.group(g.ID).instancesProto()
	out.Down = b.hub.group(g.ID).isDown()
	return out
}

func (g *pushGroup) instancesProto() (list []*notifyv1.Instance, inFlight uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.instances {
		list = append(list, &notifyv1.Instance{Name: i.name, Peer: i.peer, Credit: uint32(i.credit), InFlight: uint32(max(0, i.inFlight))})
	}
	return list, uint64(len(g.flights))
}

// ListGroups implements the API.
func (b *Broker) ListGroups(ctx context.Context, req *connect.Request[notifyv1.ListGroupsRequest]) (*connect.Response[notifyv1.ListGroupsResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	pending, err := b.pending.of(ctx, b.stores.all())
	if err != nil {
		return nil, rpcError(err)
	}
	names, next := page(slices.Sorted(maps.Keys(v.Groups)), func(s string) string { return s }, req.Msg.GetAfter(), req.Msg.GetLimit())
	res := &notifyv1.ListGroupsResponse{Next: next}
	for _, n := range names {
		g := b.groupProto(v, v.Groups[n])
		g.Pending, g.PendingTruncated = pending[v.Groups[n].ID].rows, pending[v.Groups[n].ID].cut
		res.Groups = append(res.Groups, g)
	}
	return connect.NewResponse(res), nil
}

// GetGroup implements the API.
func (b *Broker) GetGroup(ctx context.Context, req *connect.Request[notifyv1.GetGroupRequest]) (*connect.Response[notifyv1.GetGroupResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	g, ok := v.Groups[req.Msg.GetName()]
	if !ok {
		return nil, rpcError(unknownGroup(req.Msg.GetName()))
	}
	out := b.groupProto(v, g)
	out.InMemory = uint64(b.inMemory.owedTo(g.ID))
	for _, k := range b.stores.all() {
		for _, o := range k.owned() {
			n, err := k.st.CountPending(ctx, o.no, g.ID, countLimit)
			if err != nil {
				return nil, rpcError(err)
			}
			out.Pending += uint64(n)
			out.PendingTruncated = out.PendingTruncated || n == countLimit
		}
	}
	return connect.NewResponse(&notifyv1.GetGroupResponse{Group: out}), nil
}

// ListBrokers implements the API.
func (b *Broker) ListBrokers(ctx context.Context, _ *connect.Request[notifyv1.ListBrokersRequest]) (*connect.Response[notifyv1.ListBrokersResponse], error) {
	live, err := b.main.st.Brokers(ctx, b.main.leaseTime())
	if err != nil {
		return nil, rpcError(err)
	}
	res := &notifyv1.ListBrokersResponse{}
	for _, x := range live {
		res.Brokers = append(res.Brokers, &notifyv1.BrokerInfo{Id: x.ID, Address: x.Address, Version: x.Version, SeenAtUs: x.SeenAt})
	}
	return connect.NewResponse(res), nil
}

// ListShards implements the API. An outbox-only store that is away is not listed.
func (b *Broker) ListShards(ctx context.Context, _ *connect.Request[notifyv1.ListShardsRequest]) (*connect.Response[notifyv1.ListShardsResponse], error) {
	res := &notifyv1.ListShardsResponse{}
	for _, k := range b.stores.all() {
		shards, err := k.listShards(ctx)
		if err != nil && k == b.main {
			return nil, rpcError(err)
		}
		res.Shards = append(res.Shards, shards...)
	}
	return connect.NewResponse(res), nil
}

func (k *keeper) listShards(ctx context.Context) ([]*notifyv1.Shard, error) {
	leases, now, err := k.st.Leases(ctx)
	if err != nil {
		return nil, err
	}
	settled, err := k.st.Settled(ctx)
	if err != nil {
		return nil, err
	}
	var list []*notifyv1.Shard
	for _, l := range leases {
		s := &notifyv1.Shard{Store: k.st.Name, Number: uint32(l.Shard), Epoch: l.Epoch, Settled: int64(settled[l.Shard])}
		if !l.Free(now) {
			s.Owner = l.Owner
		}
		o := k.owner(l.Shard)
		s.Here = o != nil && o.epoch == l.Epoch
		list = append(list, s)
	}
	return list, nil
}
