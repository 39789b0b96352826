package notifyd

import (
	"context"
	"errors"
	"fmt"
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
			p := rejectedProto(k.st.Name, r)
			p.HeaderText = nil
			res.Rejected = append(res.Rejected, p)
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
		return "", 0, badAfter()
	}
	return name, seq, nil
}

func rejectedProto(name string, r store.Rejected) *notifyv1.Rejected {
	m := messageProto(r.Msg)
	m.BornAtUs, m.Key = 0, strings.ToValidUTF8(m.Key, "\uFFFD")
	return &notifyv1.Rejected{Store: name, Seq: r.Seq, Message: m, Reason: r.Reason, RejectedAtUs: r.RejectedAt, HeaderText: r.HeaderText}
}

// GetRejected implements the API.
func (b *Broker) GetRejected(ctx context.Context, req *connect.Request[notifyv1.GetRejectedRequest]) (*connect.Response[notifyv1.GetRejectedResponse], error) {
	k, err := b.storeNamed(req.Msg.GetStore())
	if err != nil {
		return nil, rpcError(err)
	}
	r, err := k.st.GetRejected(ctx, req.Msg.GetSeq())
	if err != nil {
		return nil, rpcError(rejectedProblem(err))
	}
	return connect.NewResponse(&notifyv1.GetRejectedResponse{Rejected: rejectedProto(k.st.Name, r)}), nil
}

// storeNamed finds the store of a request; empty is the main one.
func (b *Broker) storeNamed(name string) (*keeper, error) {
	if name == "" {
		return b.main, nil
	}
	if k := b.stores.byName(name); k != nil {
		return k, nil
	}
	return nil, &message.FieldError{Field: "store", Rule: fmt.Sprintf("%q is not the name of a store that is open at this broker", name)}
}

func rejectedProblem(err error) error {
	if errors.Is(err, store.ErrNoRejected) {
		return &apiError{code: connect.CodeNotFound, detail: &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_INVALID, Field: "seq",
			Message: err.Error() + ": it was put back, never rejected, or is in another store; notify outbox rejected ls lists those that are, --store NAME says in which store"}}
	}
	return err
}

// ResubmitRejected implements the API.
func (b *Broker) ResubmitRejected(ctx context.Context, req *connect.Request[notifyv1.ResubmitRejectedRequest]) (*connect.Response[notifyv1.ResubmitRejectedResponse], error) {
	k, err := b.storeNamed(req.Msg.GetStore())
	if err != nil {
		return nil, rpcError(err)
	}
	if err := k.st.Resubmit(ctx, req.Msg.GetSeq()); err != nil {
		return nil, rpcError(rejectedProblem(err))
	}
	return connect.NewResponse(&notifyv1.ResubmitRejectedResponse{}), nil
}
