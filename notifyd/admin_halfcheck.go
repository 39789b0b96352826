package notifyd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// GetHalf implements the API.
func (b *Broker) GetHalf(ctx context.Context, req *connect.Request[notifyv1.GetHalfRequest]) (*connect.Response[notifyv1.GetHalfResponse], error) {
	h, err := b.findHalf(ctx, req.Msg.GetId())
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.GetHalfResponse{Half: b.halfProto(h)}), nil
}

// CheckHalf implements the API.
func (b *Broker) CheckHalf(ctx context.Context, req *connect.Request[notifyv1.CheckHalfRequest]) (*connect.Response[notifyv1.CheckHalfResponse], error) {
	before, err := b.findHalf(ctx, req.Msg.GetId())
	if err != nil {
		return nil, rpcError(err)
	}
	if err := b.main.st.CheckNow(ctx, before.Shard, before.Msg.ID, b.cfg.CheckBudget); err != nil {
		return nil, rpcError(err)
	}
	h, err := b.findHalf(ctx, req.Msg.GetId())
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.CheckHalfResponse{Half: b.halfProto(h), WasParked: before.Parked}), nil
}

// findHalf reads a half, or says what became of it.
func (b *Broker) findHalf(ctx context.Context, text string) (store.Half, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return store.Half{}, &message.FieldError{Field: "id", Rule: "not a UUID"}
	}
	no, err := b.main.st.FindHalf(ctx, id)
	if err == nil {
		h, err := b.main.st.GetHalf(ctx, no, id)
		if !errors.Is(err, store.ErrUnknownHalf) {
			return h, err
		}
	} else if !errors.Is(err, store.ErrUnknownHalf) {
		return store.Half{}, err
	}
	d, at, err := b.main.st.Decided(ctx, id)
	switch {
	case errors.Is(err, store.ErrUnknownHalf):
		return store.Half{}, halfProblem(err)
	case err != nil:
		return store.Half{}, err
	}
	return store.Half{}, newError(notifyv1.Reason_REASON_UNKNOWN_HALF, "half message %s waits no more: its decision was %s, at %s", id, d, utc(at))
}

func utc(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }

// whyUndecided says why a half waits, in words. instances are those of its producer group that are attached here.
func whyUndecided(h store.Half, budget, instances int, now int64) string {
	whom := fmt.Sprintf("producer group %q", h.Group)
	if h.CheckURL != "" {
		whom = h.CheckURL
	}
	asked := fmt.Sprintf("%s was asked %d of %d times and gave no decision", whom, h.Checks, budget)
	if h.Checks == 0 {
		asked = "nobody has decided it, and " + whom + " was not asked yet"
	}
	if h.LastError != "" {
		asked += "; the last check: " + h.LastError
	}
	next := "the next check is due"
	if h.NextCheckAt > now {
		next = "the next check is at " + utc(h.NextCheckAt)
	}
	switch {
	case h.Parked:
		return fmt.Sprintf("parked: %s; decide it with notify half commit or rollback, or have it asked about again with notify half check", asked)
	case h.CheckURL == "" && instances == 0:
		return fmt.Sprintf("%s; no instance of it is attached to this broker, and without one nobody is asked and no check is spent", asked)
	}
	return asked + "; " + next
}
