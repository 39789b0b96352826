package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

type publishStream = connect.BidiStreamForClient[notifyv1.PublishStreamRequest, notifyv1.PublishStreamResponse]

// stream publishes on one stream until it breaks, or until the publisher is
// closed and all is answered. It returns how many messages were answered.
// A writer beside it sends what is queued; this goroutine reads answers.
func (p *Publisher) stream(ctx context.Context, h *http.Client, addr string) (answered int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	st := p.c.messaging(h, addr).PublishStream(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.write(ctx, st)
	}()
	defer func() {
		cancel()
		<-written
		_ = st.CloseResponse()
	}()
	for {
		resp, err := st.Receive()
		if errors.Is(err, io.EOF) {
			p.mu.Lock()
			done := p.win.empty() && p.closed
			p.mu.Unlock()
			if done {
				return answered, nil
			}
		}
		if err != nil {
			return answered, streamEnded(err)
		}
		n, err := p.answer(addr, resp.GetResults())
		if answered == 0 && n > 0 {
			p.c.dir.worked(addr) // not only when the stream ends
		}
		answered += n
		if err != nil {
			return answered, err
		}
	}
}

// write sends all that is queued as one frame, again and again, until the
// publisher is closed, ctx ends, or the stream breaks: the reader learns why.
// It always half-closes the stream: HTTP/2 does not notice the end of a context
// while it waits for more of a request's body, and the reader would wait for ever.
func (p *Publisher) write(ctx context.Context, st *publishStream) {
	defer func() { _ = st.CloseRequest() }()
	for {
		p.mu.Lock()
		batch := p.win.next(p.cfg.BatchMessages, p.cfg.BatchBytes)
		closed := p.closed
		p.mu.Unlock()
		switch {
		case len(batch) > 0:
			if st.Send(&notifyv1.PublishStreamRequest{Publishes: batch}) != nil {
				return
			}
		case closed:
			return
		default:
			select {
			case <-p.work:
			case <-ctx.Done():
				return
			}
		}
	}
}

// answer hands results to the oldest messages. A message that failed but may be
// stored later stays for the next stream. It returns how many were answered for
// good, and the first failure once this stream can do no more.
func (p *Publisher) answer(addr string, results []*notifyv1.PublishResult) (int, error) {
	p.mu.Lock()
	entries, ok := p.win.answered(len(results))
	for i, e := range entries {
		if sendAgain(e, results[i].GetError()) {
			p.win.again(e)
			if p.failure == nil {
				p.failure = detailError(addr, results[i].GetError())
			}
		}
	}
	var failure error
	if p.win.spent() {
		failure = p.failure
	}
	p.mu.Unlock()
	if !ok {
		return 0, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("broker answered %d messages, more than it was sent", len(results)))
	}
	var weight int64
	n := 0
	for i, e := range entries {
		d := results[i].GetError()
		switch {
		case sendAgain(e, d):
			continue
		case d != nil:
			e.done(Published{}, detailError(addr, d))
		default:
			e.done(Published{ID: results[i].GetId(), Duplicate: results[i].GetDuplicate(), InMemory: results[i].GetInMemory()}, nil)
		}
		weight += e.weight
		n++
	}
	clear(entries) // their array lives on in the window
	p.room.Release(weight)
	return n, failure
}

// sendAgain: an unknown result is asked again only where a repeat is recognised.
func sendAgain(e entry, d *notifyv1.ErrorDetail) bool {
	return d.GetRetryable() || d.GetReason() == ReasonResultUnknown && e.req.GetIdempotencyKey() != ""
}
