package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withDatabase{m}) }

// withDatabase runs tests with the database that the examples need.
type withDatabase struct{ m *testing.M }

func (d withDatabase) Run() int { return dbtest.Run(d.m) }

type (
	pubStream = connect.BidiStream[notifyv1.PublishStreamRequest, notifyv1.PublishStreamResponse]
	subStream = connect.BidiStream[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]
	chkStream = connect.BidiStream[notifyv1.CheckBackRequest, notifyv1.CheckBackResponse]
)

// fakeBroker speaks the real protocol and follows a script.
type fakeBroker struct {
	notifyv1connect.UnimplementedMessagingHandler
	addr string

	publish       func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error)
	publishStream func(context.Context, *pubStream) error
	subscribe     func(context.Context, *subStream) error
	prepare       func(context.Context, *notifyv1.PrepareRequest) (*notifyv1.PrepareResponse, error)
	decide        func(context.Context, string, *notifyv1.DecideRequest) (*notifyv1.DecideResponse, error)
	checkBack     func(context.Context, *chkStream) error
	brokers       func() []string

	server *http.Server
}

func (f *fakeBroker) Publish(ctx context.Context, r *connect.Request[notifyv1.PublishRequest]) (*connect.Response[notifyv1.PublishResponse], error) {
	return answer(f.publish(ctx, r.Msg))
}

func (f *fakeBroker) PublishStream(ctx context.Context, s *pubStream) error {
	return f.publishStream(ctx, s)
}

func (f *fakeBroker) Subscribe(ctx context.Context, s *subStream) error { return f.subscribe(ctx, s) }

func (f *fakeBroker) Prepare(ctx context.Context, r *connect.Request[notifyv1.PrepareRequest]) (*connect.Response[notifyv1.PrepareResponse], error) {
	return answer(f.prepare(ctx, r.Msg))
}

func (f *fakeBroker) Commit(ctx context.Context, r *connect.Request[notifyv1.DecideRequest]) (*connect.Response[notifyv1.DecideResponse], error) {
	return answer(f.decide(ctx, "commit", r.Msg))
}

func (f *fakeBroker) Rollback(ctx context.Context, r *connect.Request[notifyv1.DecideRequest]) (*connect.Response[notifyv1.DecideResponse], error) {
	return answer(f.decide(ctx, "rollback", r.Msg))
}

func (f *fakeBroker) CheckBack(ctx context.Context, s *chkStream) error { return f.checkBack(ctx, s) }

func answer[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func (f *fakeBroker) ListBrokers(context.Context, *connect.Request[notifyv1.ListBrokersRequest]) (*connect.Response[notifyv1.ListBrokersResponse], error) {
	resp := &notifyv1.ListBrokersResponse{}
	for _, a := range f.brokers() {
		resp.Brokers = append(resp.Brokers, &notifyv1.BrokerInfo{Id: "id-" + a, Address: a})
	}
	return connect.NewResponse(resp), nil
}

// start serves f at addr, "" for a free port, until stop is called or the test ends.
func (f *fakeBroker) start(t *testing.T, addr string) *fakeBroker {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	if f.brokers == nil {
		f.brokers = func() []string { return []string{f.addr} }
	}
	mux := http.NewServeMux()
	mux.Handle(notifyv1connect.NewMessagingHandler(f))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	f.server = &http.Server{Handler: mux, Protocols: &protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.server.Serve(ln)
	}()
	t.Cleanup(func() {
		f.stop()
		<-done
	})
	return f
}

// stop is kill -9: connections break, the port is free.
func (f *fakeBroker) stop() { _ = f.server.Close() }

// refusal is an error as the broker makes them.
func refusal(code connect.Code, d *notifyv1.ErrorDetail) error {
	e := connect.NewError(code, errors.New(d.GetMessage()))
	detail, err := connect.NewErrorDetail(d)
	if err != nil {
		panic(err)
	}
	e.AddDetail(detail)
	return e
}

// storeLog is what was stored, in order.
type storeLog struct {
	mu  sync.Mutex
	all []*notifyv1.PublishRequest
}

func (l *storeLog) add(reqs ...*notifyv1.PublishRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, reqs...)
}

func (l *storeLog) bodies() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, len(l.all))
	for i, r := range l.all {
		out[i] = string(r.GetMessage().GetBody())
	}
	return out
}

// answerAll stores and answers every frame until the client half-closes.
func (l *storeLog) answerAll(_ context.Context, s *pubStream) error {
	for {
		req, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.add(req.GetPublishes()...)
		if err := s.Send(results(req.GetPublishes())); err != nil {
			return err
		}
	}
}

func results(reqs []*notifyv1.PublishRequest) *notifyv1.PublishStreamResponse {
	resp := &notifyv1.PublishStreamResponse{}
	for _, r := range reqs {
		resp.Results = append(resp.Results, &notifyv1.PublishResult{Id: "id-" + string(r.GetMessage().GetBody())})
	}
	return resp
}

// proxy is a network that can be frozen, as a stopped process looks: connections
// stay open and nothing comes out of the other end.
type proxy struct {
	addr   string
	frozen atomic.Bool
	closed chan struct{} // one token for each end that was closed
	wg     sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String(), closed: make(chan struct{}, 1000)}
	var mu sync.Mutex
	var conns []net.Conn
	p.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			p.wg.Go(func() { p.pump(in, out) })
			p.wg.Go(func() { p.pump(out, in) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) pump(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			p.closed <- struct{}{}
			return
		}
		if p.frozen.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) freeze() { p.frozen.Store(true) }

func newClient(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// await fails the test when ch gives nothing within ten seconds.
func await[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing within 10 s", what)
		panic("unreachable")
	}
}
