package notifyd

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

type checkStream = connect.BidiStream[notifyv1.CheckBackRequest, notifyv1.CheckBackResponse]

// answersAtOnce is how many answers of one stream are decided side by side; they meet in batches.
const answersAtOnce = 256

// CheckBack implements the API.
func (b *Broker) CheckBack(ctx context.Context, stream *checkStream) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	a := first.GetAttach()
	if a == nil {
		return rpcError(&message.FieldError{Field: "attach", Rule: "must be in the first message of the stream"})
	}
	if err := message.ValidateGroup(a.GetProducerGroup()); err != nil {
		return rpcError(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := b.producers.attach(a.GetProducerGroup(), a.GetInstance())
	defer func() { b.unasked(ctx, b.producers.detach(p)) }()
	ended := make(chan error, 1)
	go func() { ended <- b.receiveAnswers(ctx, stream, p) }()
	if err := stream.Send(&notifyv1.CheckBackResponse{Attached: true}); err != nil {
		return err
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-b.stopping:
			return rpcError(newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping"))
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
			if checks := b.producers.take(p); len(checks) > 0 {
				if err := stream.Send(&notifyv1.CheckBackResponse{Checks: checks}); err != nil {
					return err
				}
			}
		}
	}
}

// unaskedPatience bounds how long the checks that a producer left unread are given back.
const unaskedPatience = 5 * time.Second

// unasked gives checks back that their instance was not sent.
func (b *Broker) unasked(ctx context.Context, checks []*notifyv1.Check) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unaskedPatience)
	defer cancel()
	for _, c := range checks {
		h, err := decodeHandle(c.GetHandle())
		if err != nil {
			continue // made here: it is a handle
		}
		if k := b.stores.byID(h.store); k != nil {
			k.notAsked(ctx, h.shard, h.id, c.GetMessage().GetTopic(), k.seldomer(c.GetMessage().GetTopic(), c.GetMessage().GetBornAtUs()), "the instance that was to be asked has left")
		}
	}
}

// receiveAnswers takes decisions until the producer closes its side.
func (b *Broker) receiveAnswers(ctx context.Context, stream *checkStream, p *producer) error {
	var deciding errgroup.Group
	deciding.SetLimit(answersAtOnce)
	defer deciding.Wait()
	for {
		req, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, a := range req.GetAnswers() {
			h, err := decodeHandle(a.GetHandle())
			if err != nil {
				return rpcError(&message.FieldError{Field: "handle", Rule: err.Error()})
			}
			deciding.Go(func() error {
				b.answered(ctx, h, p.group, a.GetDecision())
				return nil
			})
		}
	}
}

// answered takes one answer; one that is not a decision, or comes too late, changes nothing.
func (b *Broker) answered(ctx context.Context, h handle, group string, answer notifyv1.Decision) {
	d := store.Undecided
	switch answer {
	case notifyv1.Decision_DECISION_COMMIT:
		d = store.Committed
	case notifyv1.Decision_DECISION_ROLLBACK:
		d = store.RolledBack
	}
	b.metrics.checks.WithLabelValues("", decisionLabel(d)).Inc()
	if d == store.Undecided {
		return
	}
	if err := b.decideAnywhere(ctx, h, group, d); err != nil && ctx.Err() == nil {
		b.log.Debug("answer to a check not taken", "half", h.id, "err", err)
	}
}

// decideAnywhere decides here, or at a broker that owns a shard.
func (b *Broker) decideAnywhere(ctx context.Context, h handle, group string, d store.Decision) error {
	peer := b.passOn(ctx, nil)
	if peer == nil {
		_, err := b.decide(ctx, h, group, d)
		return err
	}
	req := b.forwarded(&notifyv1.DecideRequest{Handle: h.encode(), ProducerGroup: group})
	var err error
	if d == store.Committed {
		_, err = peer.Commit(ctx, req)
	} else {
		_, err = peer.Rollback(ctx, req)
	}
	return err
}
