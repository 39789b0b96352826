package notifyd

import (
	"context"
	"errors"
	"io"
	"sync"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

type publishStream = connect.BidiStream[notifyv1.PublishStreamRequest, notifyv1.PublishStreamResponse]

// A lineReader accepts the publishes of one stream and keeps them, in order, for the answers.
type lineReader struct {
	b         *Broker
	forwarded bool
	line      line

	mu      sync.Mutex
	queue   []*publish
	stopped bool // nothing is accepted any more
	ended   bool // the producer has closed its side
	readErr error
	ready   chan struct{} // capacity 1
	room    chan struct{} // capacity 1: answers were taken
}

// maxUnanswered is how many publishes of a stream may wait for their answers: a producer that
// does not read them is not read either.
const maxUnanswered = 10_000

// PublishStream implements the API.
func (b *Broker) PublishStream(ctx context.Context, stream *publishStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &lineReader{b: b, ready: make(chan struct{}, 1), room: make(chan struct{}, 1), forwarded: isPassedOn(stream.RequestHeader())}
	go r.read(ctx, stream)
	for {
		batch, over := r.take()
		if len(batch) == 0 {
			if over {
				return r.readErr
			}
			select {
			case <-r.ready:
			case <-ctx.Done():
				return ctx.Err()
			case <-b.stopping:
				r.stop()
			}
			continue
		}
		res := &notifyv1.PublishStreamResponse{Results: make([]*notifyv1.PublishResult, 0, len(batch))}
		failed := false
		for _, p := range batch {
			select {
			case <-p.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if p.err != nil && breaksLine(p.err) {
				failed = true
			}
			res.Results = append(res.Results, p.result())
		}
		if failed {
			r.stop()
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

func (p *publish) result() *notifyv1.PublishResult {
	if p.err != nil {
		return &notifyv1.PublishResult{Id: p.id.String(), Error: p.err.detail}
	}
	return &notifyv1.PublishResult{Id: p.id.String(), Duplicate: p.dup, InMemory: p.unstored}
}

// read accepts until the stream ends, fails or is stopped.
func (r *lineReader) read(ctx context.Context, stream *publishStream) {
	for {
		req, err := stream.Receive()
		if err != nil {
			switch {
			case errors.Is(err, io.EOF):
				err = nil
			case connect.CodeOf(err) == connect.CodeResourceExhausted:
				err = rpcError(newError(notifyv1.Reason_REASON_TOO_LARGE, "frame of the stream: more than %d bytes; send fewer messages in one, or a smaller body", r.b.maxRequest()))
			}
			r.end(err)
			return
		}
		for _, one := range req.GetPublishes() {
			if !r.awaitRoom(ctx) || !r.accept(ctx, one) {
				return
			}
		}
	}
}

// awaitRoom waits until answers were sent. It reports false when the stream has ended.
func (r *lineReader) awaitRoom(ctx context.Context) bool {
	for {
		r.mu.Lock()
		full := len(r.queue) >= maxUnanswered
		r.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-r.room:
		case <-ctx.Done():
			return false
		}
	}
}

// accept puts one publish on its way. It reports false when the line has stopped.
func (r *lineReader) accept(ctx context.Context, req *notifyv1.PublishRequest) bool {
	var p *publish
	err := checkKnown(req, r.forwarded)
	if err == nil {
		p, err = r.b.accept(ctx, req, &r.line)
	}
	if err != nil {
		return r.add(refusedPublish(req, asAPIError(r.b.refused(req, err)), &r.line), nil)
	}
	if err := r.b.memory.Acquire(ctx, int64(p.size)); err != nil {
		return false
	}
	return r.add(p, func() error {
		_, err := r.b.submit(ctx, p, r.forwarded)
		return err
	})
}

// refusedPublish carries the error of a message that goes nowhere. When it may be sent again,
// what is behind it on the line must wait for that.
func refusedPublish(req *notifyv1.PublishRequest, err *apiError, l *line) *publish {
	m := &message.Message{Topic: req.GetMessage().GetTopic()}
	m.ID, _ = uuid.Parse(req.GetMessage().GetId()) // echoed if it was one
	p := newPublish(store.Item{Msg: m}, l)
	p.fail(err)
	return p
}

// add keeps a publish for its answer and submits it, in one step as seen by stop.
func (r *lineReader) add(p *publish, submit func() error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		if submit != nil {
			r.b.memory.Release(int64(p.size))
		}
		return false
	}
	if submit != nil {
		if err := submit(); err != nil {
			p.release = nil // given back by submit
			p.fail(asAPIError(err))
		}
	}
	r.queue = append(r.queue, p)
	wake(r.ready)
	return true
}

// take returns what is to be answered next: the first publish, and behind it those that are done.
func (r *lineReader) take() (batch []*publish, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(1, len(r.queue))
	for n > 0 && n < len(r.queue) && n < maxBatchRows && r.queue[n].isDone() {
		n++
	}
	batch = r.queue[:n:n]
	r.queue = r.queue[n:]
	wake(r.room)
	return batch, len(r.queue) == 0 && (r.ended || r.stopped)
}

func (p *publish) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop lets nothing more in and fails what is not committed: the producer opens a new stream.
func (r *lineReader) stop() {
	r.line.broken.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.stopped = true
		r.readErr = rpcError(newError(notifyv1.Reason_REASON_UNAVAILABLE, "stream ended behind a failed message: open a new one and send again what failed"))
	}
	wake(r.ready)
}

func (r *lineReader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.ended, r.readErr = true, err
	}
	wake(r.ready)
}
