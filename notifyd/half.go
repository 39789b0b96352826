package notifyd

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// Prepare implements the API.
func (b *Broker) Prepare(ctx context.Context, req *connect.Request[notifyv1.PrepareRequest]) (*connect.Response[notifyv1.PrepareResponse], error) {
	msg := req.Msg
	pub := &notifyv1.PublishRequest{Message: msg.GetMessage()}
	p, err := b.accept(ctx, pub, nil)
	if err == nil && p.unstored {
		err = checkUnstored(p.item.Msg.Topic, "halves")
	}
	if err == nil {
		err = checkPrepare(msg)
	}
	if err != nil {
		return nil, rpcError(b.refused(pub, err))
	}
	if peer := b.passOn(ctx, req.Header()); peer != nil {
		forward := connect.NewRequest(msg)
		forward.Header().Set(forwardedHeader, b.cfg.ID)
		msg.Message.Id = p.item.Msg.ID.String()
		return peer.Prepare(ctx, forward)
	}
	after := (time.Duration(msg.GetCheckAfterMs()) * time.Millisecond).Microseconds()
	if after == 0 {
		after = b.checkDelay(p.item.Msg.Topic).first
	}
	p.item.Prepare = &store.Prepare{Group: msg.GetProducerGroup(), CheckURL: msg.GetCheckUrl(), CheckAfter: after}
	o, err := b.run(ctx, p)
	if err != nil {
		return nil, rpcError(b.refused(pub, err))
	}
	return connect.NewResponse(&notifyv1.PrepareResponse{Id: p.id.String(), Handle: o.handle(p.id)}), nil
}

func checkPrepare(req *notifyv1.PrepareRequest) error {
	if err := message.ValidateGroup(req.GetProducerGroup()); err != nil {
		err.(*message.FieldError).Field = "producer_group"
		return err
	}
	return validateCheckURL(req.GetCheckUrl())
}

// maxURLBytes is the longest callback URL.
const maxURLBytes = 1000

func validateCheckURL(s string) error {
	if s == "" {
		return nil
	}
	if len(s) > maxURLBytes {
		return &message.FieldError{Field: "check_url", Rule: "too many bytes", Size: len(s), Limit: maxURLBytes}
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return &message.FieldError{Field: "check_url", Rule: "not an http or https URL without credentials"}
	}
	return nil
}

// Commit implements the API.
func (b *Broker) Commit(ctx context.Context, req *connect.Request[notifyv1.DecideRequest]) (*connect.Response[notifyv1.DecideResponse], error) {
	if peer := b.passOn(ctx, req.Header()); peer != nil {
		return peer.Commit(ctx, b.forwarded(req.Msg))
	}
	return b.decideRequest(ctx, req.Msg, store.Committed)
}

// Rollback implements the API.
func (b *Broker) Rollback(ctx context.Context, req *connect.Request[notifyv1.DecideRequest]) (*connect.Response[notifyv1.DecideResponse], error) {
	if peer := b.passOn(ctx, req.Header()); peer != nil {
		return peer.Rollback(ctx, b.forwarded(req.Msg))
	}
	return b.decideRequest(ctx, req.Msg, store.RolledBack)
}

func (b *Broker) forwarded(req *notifyv1.DecideRequest) *connect.Request[notifyv1.DecideRequest] {
	out := connect.NewRequest(req)
	out.Header().Set(forwardedHeader, b.cfg.ID)
	return out
}

func (b *Broker) decideRequest(ctx context.Context, req *notifyv1.DecideRequest, d store.Decision) (*connect.Response[notifyv1.DecideResponse], error) {
	h, err := decodeHandle(req.GetHandle())
	if err != nil {
		return nil, rpcError(&message.FieldError{Field: "handle", Rule: err.Error()})
	}
	if req.GetProducerGroup() == "" {
		return nil, rpcError(&message.FieldError{Field: "producer_group", Rule: "missing; give the group that prepared"})
	}
	p, err := b.decide(ctx, h, req.GetProducerGroup(), d)
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.DecideResponse{Id: p.id.String(), Repeated: p.dup}), nil
}

// decide takes a decision in any shard owned here. group "" is an operator.
func (b *Broker) decide(ctx context.Context, h handle, group string, d store.Decision) (*publish, error) {
	if h.store.String() != b.main.st.StoreID || h.shard >= b.main.st.Shards {
		return nil, newError(notifyv1.Reason_REASON_UNKNOWN_HALF, "no such half message: its store is not of this cluster")
	}
	p := newPublish(store.Item{Decide: &store.Decide{Shard: h.shard, ID: h.id, Group: group, Decision: d}}, nil)
	if _, err := b.run(ctx, p); err != nil {
		return nil, err
	}
	return p, nil
}

// run submits a publish that stands alone and waits for its answer. It returns the owner that took it.
func (b *Broker) run(ctx context.Context, p *publish) (*owner, error) {
	if !b.memory.TryAcquire(int64(p.size)) {
		return nil, overloaded(int64(b.cfg.PublishMemory))
	}
	s, err := b.submit(ctx, p, true)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, p.err
	}
	o, _ := s.(*owner)
	return o, nil
}

// passOn returns a broker that owns shards when this one owns none, unless the call was passed on already.
func (b *Broker) passOn(ctx context.Context, header http.Header) notifyv1connect.MessagingClient {
	if len(b.main.owned()) > 0 || isPassedOn(header) {
		return nil
	}
	peer := b.forward.peer(ctx)
	if peer == "" {
		return nil
	}
	return notifyv1connect.NewMessagingClient(b.forward.http, "http://"+peer, connect.WithGRPC())
}

// A handle names a half. Its layout is that of a token up to the message id, without pos:
// version 1, store id (16 bytes), shard (2 bytes), id (16 bytes).
type handle struct {
	store uuid.UUID
	shard int
	id    uuid.UUID
}

const handleSize = 35

func (h handle) encode() []byte {
	b := append([]byte{tokenVersion}, h.store[:]...)
	b = append(b, byte(h.shard>>8), byte(h.shard))
	return append(b, h.id[:]...)
}

func decodeHandle(b []byte) (handle, error) {
	if len(b) != handleSize || b[0] != tokenVersion {
		return handle{}, errHandle
	}
	return handle{store: uuid.UUID(b[1:17]), shard: int(b[17])<<8 | int(b[18]), id: uuid.UUID(b[19:35])}, nil
}

func (o *owner) handle(id uuid.UUID) []byte {
	return handle{store: o.storeID, shard: o.no, id: id}.encode()
}
