package client

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

type checkBackStream = connect.BidiStreamForClient[notifyv1.CheckBackRequest, notifyv1.CheckBackResponse]

// checkStream is one CheckBack stream to one broker, from its opening to its end.
// Its reader begins handlers, which may have to wait for others: the broker then
// cannot send more checks, and does not count them as asked.
type checkStream struct {
	l    *CheckListener
	addr string
	out  *answers
}

// run attaches and receives until the stream ends, and says why. attached is called
// once the broker has accepted.
func (s *checkStream) run(ctx context.Context, h *http.Client, attached func()) error {
	ctx, cancel := context.WithCancel(ctx)
	st := s.l.client.messaging(h, s.addr).CheckBack(ctx)
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		s.write(ctx, st)
	}()
	defer func() {
		cancel()
		<-writing
		_ = st.CloseResponse()
	}()
	for first := true; ; first = false {
		resp, err := st.Receive()
		if err != nil {
			return callError(s.addr, streamEnded(err))
		}
		if first && !resp.GetAttached() {
			return callError(s.addr, connect.NewError(connect.CodeUnimplemented, errors.New("first frame of the stream is not attached")))
		}
		if first {
			attached()
		}
		for _, c := range resp.GetChecks() {
			check := Check{Message: messageFrom(c.GetMessage()), Number: int(c.GetNumber()), Broker: s.addr}
			s.l.begin(ctx, check, func(d Decision) {
				s.out.add(&notifyv1.CheckAnswer{Handle: c.GetHandle(), Decision: d.proto()})
			})
		}
	}
}

// write sends the attach frame, then all answers that have gathered as one frame,
// again and again. It always half-closes the stream; see Publisher.write.
func (s *checkStream) write(ctx context.Context, st *checkBackStream) {
	defer func() { _ = st.CloseRequest() }()
	err := st.Send(&notifyv1.CheckBackRequest{
		Attach: &notifyv1.AttachProducer{ProducerGroup: s.l.cfg.Group, Instance: s.l.cfg.Instance},
	})
	for err == nil {
		frame, last := s.out.next()
		switch {
		case len(frame) > 0:
			err = st.Send(&notifyv1.CheckBackRequest{Answers: frame})
		case last:
			return
		default:
			select {
			case <-s.out.ready:
			case <-ctx.Done():
				return
			}
		}
	}
}

// answers holds what is to be sent on one CheckBack stream. Those that its end
// leaves unsent are lost: the checks will be asked again.
type answers struct {
	ready chan struct{} // holds one token when the writer should look

	mu    sync.Mutex
	queue []*notifyv1.CheckAnswer
	ended bool // no more will be added: write what is there and half-close
}

func newAnswers() *answers { return &answers{ready: make(chan struct{}, 1)} }

func (a *answers) add(answer *notifyv1.CheckAnswer) {
	a.mu.Lock()
	a.queue = append(a.queue, answer)
	a.mu.Unlock()
	poke(a.ready)
}

// end lets the writer half-close the stream once all is written.
func (a *answers) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	poke(a.ready)
}

// next takes all that has gathered. last: nothing will follow.
func (a *answers) next() (frame []*notifyv1.CheckAnswer, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	frame, a.queue = a.queue, nil
	return frame, a.ended
}
