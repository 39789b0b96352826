package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

const (
	demoTopic = "trades"
	// demoEvery is the time between two sample trades.
	demoEvery = 200 * time.Millisecond
)

// demoGroups are the groups that receive the trades. Every fortieth first
// delivery to the second fails, to be delivered again.
func demoGroups() []string { return []string{"settlement", "risk"} }

// trade is a sample message.
type trade struct {
	Symbol   string  `json:"symbol"`
	Price    float64 `json:"price"`
	Quantity int     `json:"quantity"`
	Side     string  `json:"side"`
	Amount   string  `json:"amount"` // price times quantity, to the cent
	At       string  `json:"at"`
}

// demo publishes trades and consumes them in two groups.
type demo struct {
	client    *client.Client
	published atomic.Int64
	delivered atomic.Int64
}

// prepareDemo declares the topic and the groups.
func prepareDemo(ctx context.Context, apiAddr string, logger *slog.Logger) (*demo, error) {
	c, err := client.New(client.Config{Addrs: []string{apiAddr}, Logger: logger, Patience: -1})
	if err != nil {
		return nil, err
	}
	d := &demo{client: c}
	err = c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
		_, err := admin.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: demoTopic}}))
		return err
	})
	var e *client.Error
	if err != nil && !(errors.As(err, &e) && e.Reason == client.ReasonAlreadyExists) {
		return nil, fmt.Errorf("demo topic: %w", err)
	}
	for _, g := range demoGroups() {
		err := c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
			_, err := admin.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: g, Topic: demoTopic}}))
			return err
		})
		if err != nil && !(errors.As(err, &e) && e.Reason == client.ReasonAlreadyExists) {
			return nil, fmt.Errorf("demo group %s: %w", g, err)
		}
	}
	return d, nil
}

// run publishes and consumes until ctx ends.
func (d *demo) run(ctx context.Context) error {
	defer d.client.Close()
	g, ctx := errgroup.WithContext(ctx)
	for i, name := range demoGroups() {
		flaky := i == 1
		var seen atomic.Int64
		consumer, err := d.client.NewConsumer(client.ConsumerConfig{
			Group: name, Instance: "demo", Concurrency: 4, Drain: 500 * time.Millisecond,
			Handler: func(_ context.Context, m client.Delivery) error {
				if flaky && m.Attempt == 1 && seen.Add(1)%40 == 0 {
					return errors.New("sample failure, on purpose")
				}
				d.delivered.Add(1)
				return nil
			},
		})
		if err != nil {
			return err
		}
		g.Go(func() error { return consumer.Run(ctx) })
	}
	p := d.client.NewPublisher(client.PublisherConfig{NoDedup: true})
	g.Go(func() error {
		err := p.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	g.Go(func() error { return d.trickle(ctx, p) })
	return g.Wait()
}

// trickle publishes one trade after the other, with prices that wander.
func (d *demo) trickle(ctx context.Context, p *client.Publisher) error {
	symbols := []string{"ACME", "GLOBEX", "INITECH", "UMBRELLA", "HOOLI"}
	prices := map[string]float64{}
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			symbol := symbols[rand.IntN(len(symbols))]
			price := prices[symbol]
			if price == 0 {
				price = 50 + 100*rand.Float64()
			}
			price *= 1 + (rand.Float64()-0.5)/100
			prices[symbol] = price
			cents, quantity := int(price*100), 1+rand.IntN(500)
			body, err := json.Marshal(trade{
				Symbol: symbol, Price: float64(cents) / 100, Quantity: quantity,
				Amount: fmt.Sprintf("%d.%02d", cents*quantity/100, cents*quantity%100),
				Side:   []string{"buy", "sell"}[rand.IntN(2)], At: now.UTC().Format(time.RFC3339Nano),
			})
			if err != nil {
				return err
			}
			m := client.Message{Topic: demoTopic, Key: symbol, Headers: map[string]string{"source": "demo"}, Body: body}
			err = p.Send(ctx, m, client.PublishOptions{}, func(_ client.Published, err error) {
				if err == nil {
					d.published.Add(1)
				}
			})
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}
