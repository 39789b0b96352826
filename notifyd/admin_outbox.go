package notifyd

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// ListRejected implements the API.
func (b *Broker) ListRejected(ctx context.Context, req *connect.Request[notifyv1.ListRejectedRequest]) (*connect.Response[notifyv1.ListRejectedResponse], error) {
	after, err := int64(0), error(nil)
	if req.Msg.GetAfter() != "" {
		if after, err = strconv.ParseInt(req.Msg.GetAfter(), 10, 64); err != nil {
			return nil, rpcError(&message.FieldError{Field: "after", Rule: "not what a list returned as next"})
		}
	}
	most := listLimit(req.Msg.GetLimit())
	rows, err := b.keeper.st.ListRejected(ctx, after, most+1)
	if err != nil {
		return nil, rpcError(err)
	}
	res := &notifyv1.ListRejectedResponse{}
	for i, r := range rows {
		if i == most {
			res.Next = strconv.FormatInt(rows[i-1].Seq, 10)
			break
		}
		m := messageProto(r.Msg)
		m.BornAtUs, m.Key = 0, strings.ToValidUTF8(m.Key, "\uFFFD")
		res.Rejected = append(res.Rejected, &notifyv1.Rejected{Store: b.keeper.st.Name, Seq: r.Seq, Message: m, Reason: r.Reason, RejectedAtUs: r.RejectedAt})
	}
	return connect.NewResponse(res), nil
}

// ResubmitRejected implements the API.
func (b *Broker) ResubmitRejected(ctx context.Context, req *connect.Request[notifyv1.ResubmitRejectedRequest]) (*connect.Response[notifyv1.ResubmitRejectedResponse], error) {
	if s := req.Msg.GetStore(); s != "" && s != b.keeper.st.Name {
		return nil, rpcError(&message.FieldError{Field: "store", Rule: "no store has this name here"})
	}
	err := b.keeper.st.Resubmit(ctx, req.Msg.GetSeq())
	if errors.Is(err, store.ErrNoRejected) {
		return nil, rpcError(&message.FieldError{Field: "seq", Rule: "no rejected outbox row has it"})
	}
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.ResubmitRejectedResponse{}), nil
}
