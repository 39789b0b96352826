package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// fakeBroker speaks the real protocol and keeps what it got in memory. A message
// whose body holds "refuse" is refused.
type fakeBroker struct {
	notifyv1connect.UnimplementedMessagingHandler
	notifyv1connect.UnimplementedAdminHandler
	addr string

	mu        sync.Mutex
	published []*notifyv1.PublishRequest
	subs      []*notifyv1.Subscription
	updated   *notifyv1.UpdateSubscriptionRequest
	dropped   []string
	settled   []string
	deliver   []*notifyv1.Message // to everyone who subscribes
	next      string              // of every list

	replayed      []string // bodies
	replayHeaders map[string]string
	replayUntil   int // as many; 0: all
}

func startBroker(t *testing.T) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBroker{addr: ln.Addr().String()}
	mux := http.NewServeMux()
	mux.Handle(notifyv1connect.NewMessagingHandler(f))
	mux.Handle(notifyv1connect.NewAdminHandler(f))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: &protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return f
}

func (f *fakeBroker) take(r *notifyv1.PublishRequest) *notifyv1.PublishResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(string(r.GetMessage().GetBody()), "refuse") {
		return &notifyv1.PublishResult{Error: &notifyv1.ErrorDetail{Reason: client.ReasonTooLarge, Message: "body has 9 bytes, at most 3", Field: "body", Size: 9, Limit: 3}}
	}
	f.published = append(f.published, r)
	return &notifyv1.PublishResult{Id: fmt.Sprintf("id-%d", len(f.published))}
}

func detailed(code connect.Code, d *notifyv1.ErrorDetail) error {
	e := connect.NewError(code, errors.New(d.GetMessage()))
	if detail, err := connect.NewErrorDetail(d); err == nil {
		e.AddDetail(detail)
	}
	return e
}

func (f *fakeBroker) Publish(_ context.Context, r *connect.Request[notifyv1.PublishRequest]) (*connect.Response[notifyv1.PublishResponse], error) {
	if r.Msg.GetMessage().GetTopic() == "missing" {
		return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: client.ReasonUnknownTopic, Message: `topic "missing" is not declared: notify topic create missing`})
	}
	if r.Msg.GetMessage().GetTopic() == "volatile" {
		return connect.NewResponse(&notifyv1.PublishResponse{Id: "id-v", InMemory: true}), nil
	}
	if r.Msg.GetMessage().GetTopic() == "secret" {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("denied"))
	}
	res := f.take(r.Msg)
	if res.GetError() != nil {
		return nil, detailed(connect.CodeInvalidArgument, res.GetError())
	}
	return connect.NewResponse(&notifyv1.PublishResponse{Id: res.GetId()}), nil
}

func (f *fakeBroker) PublishStream(_ context.Context, s *connect.BidiStream[notifyv1.PublishStreamRequest, notifyv1.PublishStreamResponse]) error {
	for {
		req, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp := &notifyv1.PublishStreamResponse{}
		for _, p := range req.GetPublishes() {
			resp.Results = append(resp.Results, f.take(p))
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

func (f *fakeBroker) Subscribe(_ context.Context, s *connect.BidiStream[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]) error {
	first, err := s.Receive()
	if err != nil {
		return err
	}
	if first.GetAttach().GetGroup() == "missing" {
		return detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: client.ReasonUnknownGroup, Message: `group "missing" does not exist: notify sub add --group missing --topic T`})
	}
	resp := &notifyv1.SubscribeResponse{}
	f.mu.Lock()
	for _, m := range f.deliver {
		resp.Deliveries = append(resp.Deliveries, &notifyv1.Delivery{Token: []byte(m.GetId()), Attempt: 1, Message: m})
	}
	f.mu.Unlock()
	if err := s.Send(&notifyv1.SubscribeResponse{Attached: &notifyv1.Attached{BrokerId: "b", AckWaitMs: 5000}}); err != nil {
		return err
	}
	if err := s.Send(resp); err != nil {
		return err
	}
	for {
		req, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		for _, a := range req.GetAcks() {
			f.settled = append(f.settled, "ack "+string(a))
		}
		for _, n := range req.GetNacks() {
			f.settled = append(f.settled, "nack "+string(n.GetToken()))
		}
		f.mu.Unlock()
	}
}

func (f *fakeBroker) ListBrokers(context.Context, *connect.Request[notifyv1.ListBrokersRequest]) (*connect.Response[notifyv1.ListBrokersResponse], error) {
	return connect.NewResponse(&notifyv1.ListBrokersResponse{Brokers: []*notifyv1.BrokerInfo{{Id: "b", Address: f.addr}}}), nil
}

func (f *fakeBroker) ListTopics(_ context.Context, r *connect.Request[notifyv1.ListTopicsRequest]) (*connect.Response[notifyv1.ListTopicsResponse], error) {
	no := false
	return connect.NewResponse(&notifyv1.ListTopicsResponse{Next: f.next, Topics: []*notifyv1.Topic{
		{Name: r.Msg.GetAfter() + "a", CreatedAtUs: 1}, {Name: "b", Mirrored: &no, Durability: notifyv1.Durability_DURABILITY_REPLICATED},
	}}), nil
}

func (f *fakeBroker) GetTopic(_ context.Context, r *connect.Request[notifyv1.GetTopicRequest]) (*connect.Response[notifyv1.GetTopicResponse], error) {
	return connect.NewResponse(&notifyv1.GetTopicResponse{Topic: &notifyv1.Topic{Name: r.Msg.GetName()}, Subscriptions: []*notifyv1.Subscription{{Group: "g"}}}), nil
}

func (f *fakeBroker) CreateTopic(_ context.Context, r *connect.Request[notifyv1.CreateTopicRequest]) (*connect.Response[notifyv1.CreateTopicResponse], error) {
	return connect.NewResponse(&notifyv1.CreateTopicResponse{Topic: r.Msg.GetTopic()}), nil
}

func (f *fakeBroker) ListGroups(context.Context, *connect.Request[notifyv1.ListGroupsRequest]) (*connect.Response[notifyv1.ListGroupsResponse], error) {
	return connect.NewResponse(&notifyv1.ListGroupsResponse{Groups: []*notifyv1.Group{{Name: "g", Topics: []string{"a", "b"}, InFlight: 3, Pending: 10000, PendingTruncated: true}}}), nil
}

func (f *fakeBroker) GetGroup(_ context.Context, r *connect.Request[notifyv1.GetGroupRequest]) (*connect.Response[notifyv1.GetGroupResponse], error) {
	if r.Msg.GetName() == "missing" {
		return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: client.ReasonUnknownGroup, Message: "no such group"})
	}
	return connect.NewResponse(&notifyv1.GetGroupResponse{Group: &notifyv1.Group{Name: r.Msg.GetName(), InMemory: 4, Instances: []*notifyv1.Instance{{Name: "i", Peer: "p", Credit: 5}}}}), nil
}

func (f *fakeBroker) AddSubscription(_ context.Context, r *connect.Request[notifyv1.AddSubscriptionRequest]) (*connect.Response[notifyv1.AddSubscriptionResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.subs {
		s := r.Msg.GetSubscription()
		switch {
		case proto.Equal(known, s):
			return nil, alreadyExists(known)
		case known.GetGroup() == s.GetGroup() && known.GetTopic() == s.GetTopic():
			return nil, detailed(connect.CodeFailedPrecondition, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_DEFINED_OTHERWISE, Message: "declared otherwise"})
		}
	}
	f.subs = append(f.subs, r.Msg.GetSubscription())
	return connect.NewResponse(&notifyv1.AddSubscriptionResponse{Subscription: r.Msg.GetSubscription(), GroupCreated: true}), nil
}

// alreadyExists is what a broker says of a subscription that it has.
func alreadyExists(s *notifyv1.Subscription) error {
	err := connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("subscription of %q to %q: already exists", s.GetGroup(), s.GetTopic()))
	if detail, detailErr := connect.NewErrorDetail(&notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_ALREADY_EXISTS}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}

func (f *fakeBroker) UpdateSubscription(_ context.Context, r *connect.Request[notifyv1.UpdateSubscriptionRequest]) (*connect.Response[notifyv1.UpdateSubscriptionResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updated = r.Msg
	return connect.NewResponse(&notifyv1.UpdateSubscriptionResponse{Subscription: &notifyv1.Subscription{
		Group: r.Msg.GetGroup(), Topic: r.Msg.GetTopic(), Filter: r.Msg.GetFilter(), Version: 2}}), nil
}

func (f *fakeBroker) RemoveSubscription(context.Context, *connect.Request[notifyv1.RemoveSubscriptionRequest]) (*connect.Response[notifyv1.RemoveSubscriptionResponse], error) {
	return connect.NewResponse(&notifyv1.RemoveSubscriptionResponse{StoresAway: []string{"shop"}}), nil
}

func (f *fakeBroker) DropGroup(_ context.Context, r *connect.Request[notifyv1.DropGroupRequest]) (*connect.Response[notifyv1.DropGroupResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = append(f.dropped, r.Msg.GetName())
	return connect.NewResponse(&notifyv1.DropGroupResponse{}), nil
}

func (f *fakeBroker) ListSubscriptions(_ context.Context, r *connect.Request[notifyv1.ListSubscriptionsRequest]) (*connect.Response[notifyv1.ListSubscriptionsResponse], error) {
	switch r.Msg.GetGroup() {
	case "missing":
		return connect.NewResponse(&notifyv1.ListSubscriptionsResponse{}), nil
	case "all":
		return connect.NewResponse(&notifyv1.ListSubscriptionsResponse{Subscriptions: []*notifyv1.Subscription{{Group: "all", Topic: "t", Mode: notifyv1.Mode_MODE_BROADCAST}}}), nil
	}
	return connect.NewResponse(&notifyv1.ListSubscriptionsResponse{Subscriptions: []*notifyv1.Subscription{{Group: "g", Topic: "t"}}}), nil
}

// result is what a command line did.
type result struct {
	code     int
	out, err string
}

// notify runs a command line against the broker.
func (f *fakeBroker) notify(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return notify(t, stdin, append(args, "--server", f.addr)...)
}

func notify(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, streams{in: strings.NewReader(stdin), out: &out, err: &errs}, args)
	if ctx.Err() != nil {
		t.Fatalf("notify %v did not end; stderr %q", args, errs.String())
	}
	return result{code, out.String(), errs.String()}
}

// want fails the test unless the command ended with code and printed exactly out.
func (r result) want(t *testing.T, code int, out string) {
	t.Helper()
	if r.code != code || r.out != out {
		t.Errorf("exit %d, stdout %q, stderr %q; want exit %d, stdout %q", r.code, r.out, r.err, code, out)
	}
}

func (f *fakeBroker) ListHalves(_ context.Context, r *connect.Request[notifyv1.ListHalvesRequest]) (*connect.Response[notifyv1.ListHalvesResponse], error) {
	res := &notifyv1.ListHalvesResponse{Next: f.next, Halves: []*notifyv1.Half{
		{Message: &notifyv1.Message{Id: "id-1", Topic: "t"}, ProducerGroup: "shop", Checks: 15, Parked: true}}}
	if !r.Msg.GetParkedOnly() {
		res.Halves = append(res.Halves, &notifyv1.Half{Message: &notifyv1.Message{Id: "id-2", Topic: "t"}, ProducerGroup: "shop", NextCheckAtUs: 1})
	}
	return connect.NewResponse(res), nil
}

func (f *fakeBroker) DecideHalf(_ context.Context, r *connect.Request[notifyv1.DecideHalfRequest]) (*connect.Response[notifyv1.DecideHalfResponse], error) {
	switch {
	case r.Msg.GetId() != "id-1":
		return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_UNKNOWN_HALF, Message: "no such half message"})
	case r.Msg.GetDecision() != notifyv1.Decision_DECISION_COMMIT:
		return nil, detailed(connect.CodeFailedPrecondition, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_DECIDED_OTHERWISE, Message: "commit was taken first, and stays"})
	}
	return connect.NewResponse(&notifyv1.DecideHalfResponse{Repeated: true}), nil
}

func (f *fakeBroker) GetHalf(_ context.Context, r *connect.Request[notifyv1.GetHalfRequest]) (*connect.Response[notifyv1.GetHalfResponse], error) {
	if r.Msg.GetId() != "id-1" {
		return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_UNKNOWN_HALF, Message: "half message id-9 waits no more: its decision was commit"})
	}
	return connect.NewResponse(&notifyv1.GetHalfResponse{Half: &notifyv1.Half{ProducerGroup: "shop", CheckUrl: "http://x", Checks: 15, Parked: true,
		LastError: "status 500", Why: "parked: because", Message: &notifyv1.Message{Id: "id-1", Topic: "t", Key: "k", Headers: map[string]string{"a": "1"}, Body: []byte("one\ntwo")}}}), nil
}

func (f *fakeBroker) CheckHalf(_ context.Context, r *connect.Request[notifyv1.CheckHalfRequest]) (*connect.Response[notifyv1.CheckHalfResponse], error) {
	return connect.NewResponse(&notifyv1.CheckHalfResponse{WasParked: true, Half: &notifyv1.Half{Why: "the next check is due", Message: &notifyv1.Message{Id: r.Msg.GetId(), Topic: "t"}}}), nil
}

func (f *fakeBroker) UpdateTopic(_ context.Context, r *connect.Request[notifyv1.UpdateTopicRequest]) (*connect.Response[notifyv1.UpdateTopicResponse], error) {
	return connect.NewResponse(&notifyv1.UpdateTopicResponse{Topic: &notifyv1.Topic{Name: r.Msg.GetName(), CheckAfterMs: r.Msg.GetCheckAfterMs(), Durability: r.Msg.GetDurability()}}), nil
}

func rejected() *notifyv1.Rejected {
	return &notifyv1.Rejected{Store: "a", Seq: 7, Reason: "headers: not JSON", RejectedAtUs: 1, Message: &notifyv1.Message{Id: "id-7", Topic: "t"}}
}

func (f *fakeBroker) ListRejected(context.Context, *connect.Request[notifyv1.ListRejectedRequest]) (*connect.Response[notifyv1.ListRejectedResponse], error) {
	return connect.NewResponse(&notifyv1.ListRejectedResponse{Next: f.next, Rejected: []*notifyv1.Rejected{rejected()}}), nil
}

func (f *fakeBroker) GetRejected(_ context.Context, r *connect.Request[notifyv1.GetRejectedRequest]) (*connect.Response[notifyv1.GetRejectedResponse], error) {
	x := rejected()
	x.HeaderText, x.Message.Body = []byte("{"), []byte{0xff}
	return connect.NewResponse(&notifyv1.GetRejectedResponse{Rejected: x}), nil
}

func (f *fakeBroker) ResubmitRejected(_ context.Context, r *connect.Request[notifyv1.ResubmitRejectedRequest]) (*connect.Response[notifyv1.ResubmitRejectedResponse], error) {
	if r.Msg.GetSeq() != 7 {
		return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_INVALID, Message: "no such rejected outbox row"})
	}
	return connect.NewResponse(&notifyv1.ResubmitRejectedResponse{}), nil
}

// ShowMessage knows one stored message, one half and one that was rolled back; any other id it does not know.
func (f *fakeBroker) ShowMessage(_ context.Context, r *connect.Request[notifyv1.ShowMessageRequest]) (*connect.Response[notifyv1.ShowMessageResponse], error) {
	res := &notifyv1.ShowMessageResponse{Why: "delivered and deleted, or never stored here"}
	switch m := (&notifyv1.Message{Id: r.Msg.GetId(), Topic: "t", Key: "k1", BornAtUs: 1e6, Body: []byte("b")}); r.Msg.GetId() {
	case "00000000-0000-0000-0000-000000000001":
		res = &notifyv1.ShowMessageResponse{Why: "waits for 1 of 2 groups: risk", Stored: []*notifyv1.StoredMessage{{Message: m, Store: "a", Shard: 3, Pos: 77, Owner: "one", Asked: true,
			Why: "waits for 1 of 2 groups: risk", Groups: []*notifyv1.GroupState{
				{Group: "mail", State: "acknowledged", Why: "acknowledged"},
				{Group: "risk", State: "waiting", Attempts: 3, MaxAttempts: 16, NextAtUs: 9e6, LastError: "nack: db down", Why: "waits: attempt 4 of 16 at 1970-01-01T00:00:09Z, after: nack: db down"}}}}}
	case "00000000-0000-0000-0000-0000000000aa":
		res = &notifyv1.ShowMessageResponse{Why: "waits as a half: nobody has decided it", Half: &notifyv1.Half{Message: m, ProducerGroup: "shop", PreparedAtUs: 1e6}}
	case "00000000-0000-0000-0000-0000000000bb":
		res = &notifyv1.ShowMessageResponse{Why: "never a message", Decision: notifyv1.Decision_DECISION_ROLLBACK, DecidedAtUs: 1e6}
	case "00000000-0000-0000-0000-0000000000cc":
		res = &notifyv1.ShowMessageResponse{Why: "rejected from the outbox", Unknown: []string{"store b: it is away"},
			Rejected: []*notifyv1.Rejected{{Store: "a", Seq: 7, Message: m, Reason: "headers: not JSON", RejectedAtUs: 1e6}}}
	}
	return connect.NewResponse(res), nil
}
