package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/client"
)

// A line publishes messages that carry a number, on one stream.
type line struct {
	client    *client.Client
	publisher *client.Publisher
	messages  *messages
	running   errgroup.Group
	failure   firstError
}

func newLine(ctx context.Context, cfg client.PublisherConfig, addrs ...string) (*line, error) {
	c, err := client.New(client.Config{Addrs: addrs})
	if err != nil {
		return nil, err
	}
	l := &line{client: c, publisher: c.NewPublisher(cfg), messages: newMessages(0)}
	l.running.Go(func() error { return l.publisher.Run(context.WithoutCancel(ctx)) })
	return l, nil
}

// send publishes a message with a number; acked is called when it is acknowledged.
func (l *line) send(ctx context.Context, number string, acked func()) error {
	m := l.messages.message()
	m.Headers[headerNumber] = number
	return l.publisher.Send(ctx, m, client.PublishOptions{}, func(_ client.Published, err error) {
		if err != nil {
			l.failure.set(err)
			return
		}
		acked()
	})
}

// close returns when everything is answered, with the first error of an answer.
func (l *line) close() error {
	l.publisher.Close()
	err := errors.Join(l.running.Wait(), l.failure.get())
	l.client.Close()
	return err
}
