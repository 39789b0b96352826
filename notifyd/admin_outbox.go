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
	name, after, err := afterRejected(req.Msg.GetAfter())
	if err != nil {
		return nil, rpcError(err)
	}
	most := listLimit(req.Msg.GetLimit())
	res := &notifyv1.ListRejectedResponse{}
	for _, k := range b.stores.all() {
		if name != "" && k.st.Name != name {
			continue
		}
		name = ""
		rows, err := k.st.ListRejected(ctx, after, most-len(res.Rejected)+1)
		if err != nil {
			return nil, rpcError(err)
		}
		after = 0
		for _, r := range rows {
			if len(res.Rejected) == most {
				last := res.Rejected[most-1]
				res.Next = last.Store + "/" + strconv.FormatInt(last.Seq, 10)
				return connect.NewResponse(res), nil
			}
			res.Rejected = append(res.Rejected, rejectedProto(k.st.Name, r))
		}
	}
	return connect.NewResponse(res), nil
}

// afterRejected reads what a list returned as next: a store's name and a seq in it.
func afterRejected(after string) (name string, seq int64, err error) {
	if after == "" {
		return "", 0, nil
	}
	name, text, _ := strings.Cut(after, "/")
	if seq, err = strconv.ParseInt(text, 10, 64); err != nil || name == "" {
		return "", 0, &message.FieldError{Field: "after", Rule: "not what a list returned as next"}
	}
	return name, seq, nil
}

func rejectedProto(name string, r store.Rejected) *notifyv1.Rejected {
	m := messageProto(r.Msg)
	m.BornAtUs, m.Key = 0, strings.ToValidUTF8(m.Key, "\uFFFD")
	return &notifyv1.Rejected{Store: name, Seq: r.Seq, Message: m, Reason: r.Reason, RejectedAtUs: r.RejectedAt}
}

// ResubmitRejected implements the API.
func (b *Broker) ResubmitRejected(ctx context.Context, req *connect.Request[notifyv1.ResubmitRejectedRequest]) (*connect.Response[notifyv1.ResubmitRejectedResponse], error) {
	k := b.main
	if s := req.Msg.GetStore(); s != "" {
		if k = b.stores.byName(s); k == nil {
			return nil, rpcError(&message.FieldError{Field: "store", Rule: "no store of this name is open here"})
		}
	}
	err := k.st.Resubmit(ctx, req.Msg.GetSeq())
	if errors.Is(err, store.ErrNoRejected) {
		return nil, rpcError(&message.FieldError{Field: "seq", Rule: "no rejected outbox row has it"})
	}
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.ResubmitRejectedResponse{}), nil
}
