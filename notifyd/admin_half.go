package notifyd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// ListHalves implements the API. The list goes shard by shard, each by id.
func (b *Broker) ListHalves(ctx context.Context, req *connect.Request[notifyv1.ListHalvesRequest]) (*connect.Response[notifyv1.ListHalvesResponse], error) {
	no, after, err := readPlace(req.Msg.GetAfter())
	if err != nil {
		return nil, rpcError(err)
	}
	most := listLimit(req.Msg.GetLimit())
	res := &notifyv1.ListHalvesResponse{}
	for ; no < b.main.st.Shards; no++ {
		halves, err := b.main.st.ListHalves(ctx, no, after, req.Msg.GetParkedOnly(), most-len(res.Halves)+1)
		if err != nil {
			return nil, rpcError(err)
		}
		for _, h := range halves {
			if len(res.Halves) == most {
				last := res.Halves[most-1]
				res.Next = fmt.Sprintf("%d/%s", no, last.Message.Id)
				if x, err := decodeHandle(last.Handle); err == nil && x.shard != no {
					res.Next = fmt.Sprintf("%d/%s", no, uuid.Nil)
				}
				return connect.NewResponse(res), nil
			}
			res.Halves = append(res.Halves, b.halfProto(h))
		}
		after = uuid.Nil
	}
	return connect.NewResponse(res), nil
}

// readPlace reads where a list of halves goes on: "SHARD/ID".
func readPlace(s string) (no int, after uuid.UUID, err error) {
	if s == "" {
		return 0, uuid.Nil, nil
	}
	shardText, id, ok := strings.Cut(s, "/")
	if ok {
		_, err = fmt.Sscanf(shardText, "%d", &no)
	}
	if ok && err == nil {
		after, err = uuid.Parse(id)
	}
	if !ok || err != nil || no < 0 {
		return 0, uuid.Nil, badAfter()
	}
	return no, after, nil
}

func (b *Broker) halfProto(h store.Half) *notifyv1.Half {
	out := &notifyv1.Half{Message: messageProto(h.Msg), Handle: handle{store: b.main.storeID, shard: h.Shard, id: h.Msg.ID}.encode(),
		ProducerGroup: h.Group, CheckUrl: h.CheckURL, PreparedAtUs: h.Msg.BornAt, Checks: uint32(h.Checks), Parked: h.Parked,
		LastError: h.LastError, Why: whyUndecided(h, b.cfg.CheckBudget, b.producers.count(h.Group), b.main.clock.now())}
	switch {
	case h.NextCheckAt == store.CheckDueNow:
		out.NextCheckAtUs = b.main.clock.now()
	case !h.Parked:
		out.NextCheckAtUs = h.NextCheckAt
	}
	out.Message.BornAtUs = 0
	return out
}

// DecideHalf implements the API.
func (b *Broker) DecideHalf(ctx context.Context, req *connect.Request[notifyv1.DecideHalfRequest]) (*connect.Response[notifyv1.DecideHalfResponse], error) {
	id, err := uuid.Parse(req.Msg.GetId())
	if err != nil {
		return nil, rpcError(&message.FieldError{Field: "id", Rule: "not a UUID"})
	}
	d := store.Committed
	switch req.Msg.GetDecision() {
	case notifyv1.Decision_DECISION_COMMIT:
	case notifyv1.Decision_DECISION_ROLLBACK:
		d = store.RolledBack
	default:
		return nil, rpcError(&message.FieldError{Field: "decision", Rule: "must be commit or rollback"})
	}
	if len(b.main.owned()) == 0 {
		return nil, rpcError(newError(notifyv1.Reason_REASON_UNAVAILABLE, "this broker owns no shard now: ask another one"))
	}
	repeated, err := b.decideCopies(ctx, id, d)
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.DecideHalfResponse{Repeated: repeated}), nil
}

// decideCopies decides a half by its id, wherever it stands. A Prepare that was sent again through
// another broker may have left a copy in a second shard, which only goes.
func (b *Broker) decideCopies(ctx context.Context, id uuid.UUID, d store.Decision) (repeated bool, err error) {
	for copies := 0; ; copies++ {
		no, err := b.main.st.FindHalf(ctx, id)
		unknown := errors.Is(err, store.ErrUnknownHalf)
		switch {
		case unknown && copies > 0:
			return repeated, nil
		case err != nil && !unknown:
			return false, err
		}
		p, err := b.decide(ctx, handle{store: b.main.storeID, shard: no, id: id}, "", d)
		if err != nil {
			return false, err
		}
		if copies == 0 {
			repeated = p.dup
		}
		if unknown {
			return repeated, nil
		}
	}
}
