package main

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// Ways of a unary call.
const (
	// callHTTP is the Connect protocol over HTTP/1.1, as a plain HTTP client speaks it.
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
	if b.calls == callGRPC {
		c, err := client.New(client.Config{Addrs: []string{addr}})
		if err != nil {
			return caller{}, err
		}
		return caller{close: c.Close, publish: func(ctx context.Context, m client.Message) error {
			_, err := c.Publish(ctx, m, client.PublishOptions{})
			return err
		}}, nil
	}
	plain := &http.Client{Transport: new(http.Transport)}
	api := notifyv1connect.NewMessagingClient(plain, "http://"+addr, connect.WithAcceptCompression("gzip", nil, nil))
	return caller{close: plain.CloseIdleConnections, publish: func(ctx context.Context, m client.Message) error {
		_, err := api.Publish(ctx, connect.NewRequest(&notifyv1.PublishRequest{
			Message: &notifyv1.Message{Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body}}))
		return err
	}}, nil
}
