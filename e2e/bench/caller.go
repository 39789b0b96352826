package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"google.golang.org/protobuf/proto"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// Ways of a unary call.
const (
	// callHTTP is the Connect protocol over HTTP/1.1, written by hand: as little of this
	// machine's processors as possible goes into the load.
	callHTTP = "http"
	// callGRPC is the Go client: gRPC over HTTP/2.
	callGRPC = "grpc"
)

// A caller publishes messages one by one, over a connection of its own.
type caller struct {
	publish func(context.Context, client.Message) error
	close   func()
}

func (b *bench) newCaller(addr string) (caller, error) {
	if b.calls == callHTTP {
		return newPlainCaller(addr)
	}
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return caller{}, err
	}
	return caller{close: c.Close, publish: func(ctx context.Context, m client.Message) error {
		_, err := c.Publish(ctx, m, client.PublishOptions{NoDedup: true})
		return err
	}}, nil
}

func newPlainCaller(addr string) (caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return caller{}, err
	}
	answers := bufio.NewReader(conn)
	var out []byte
	return caller{close: func() { conn.Close() }, publish: func(_ context.Context, m client.Message) error {
		body, err := proto.Marshal(&notifyv1.PublishRequest{
			Message: &notifyv1.Message{Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body}})
		if err != nil {
			return err
		}
		out = fmt.Appendf(out[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/proto\r\nContent-Length: %d\r\n\r\n",
			notifyv1connect.MessagingPublishProcedure, addr, len(body))
		if _, err := conn.Write(append(out, body...)); err != nil {
			return err
		}
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", res.Status, text)
		}
		return nil
	}}, nil
}
