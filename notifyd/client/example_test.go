package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"notifymirror/notifyd/client"
)

func ExampleClient_Publish() {
	addr, stop := startBroker("orders")
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	ctx := context.Background()

	r, err := c.Publish(ctx, client.Message{Topic: "orders", Key: "42", Body: []byte("hello")}, client.PublishOptions{})
	fmt.Println("durable:", err == nil)

	// The same message again, as after an answer that was lost.
	again, err := c.Publish(ctx, client.Message{ID: r.ID, Topic: "orders", Key: "42", Body: []byte("hello")}, client.PublishOptions{})
	fmt.Println("duplicate:", again.Duplicate, again.ID == r.ID, err)

	_, err = c.Publish(ctx, client.Message{Topic: "orders", Body: make([]byte, 5<<20)}, client.PublishOptions{})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Reason == client.ReasonTooLarge {
		fmt.Printf("%s has %d bytes, at most %d\n", refused.Field, refused.Size, refused.Limit)
	}
	// Output:
	// durable: true
	// duplicate: true true <nil>
	// body has 5242880 bytes, at most 4194304
}

func ExampleClient_PublishBatch() {
	addr, stop := startBroker("orders")
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()

	results, err := c.PublishBatch(context.Background(), []client.Message{
		{Topic: "orders", Key: "42", Body: []byte("placed")},
		{Topic: "ordres", Key: "42", Body: []byte("paid")},
		{Topic: "orders", Key: "42", Body: []byte("sent")},
	})
	fmt.Println(err)
	for i, r := range results {
		fmt.Println(i, r.Err == nil)
	}
	// Output:
	// 1 of 3 messages not known to be stored, the first: topic "ordres" is not declared: notify topic create ordres
	// 0 true
	// 1 false
	// 2 true
}

func ExamplePublisher() {
	addr, stop := startBroker("orders")
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()

	p := c.NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(context.Background()) }()
	stored := 0
	for i := range 1000 {
		m := client.Message{Topic: "orders", Key: "42", Body: fmt.Append(nil, i)}
		err := p.Send(context.Background(), m, client.PublishOptions{}, func(_ client.Published, err error) {
			if err == nil {
				stored++
			}
		})
		if err != nil {
			log.Panic(err)
		}
	}
	p.Close() // Run returns when all is answered
	fmt.Println(<-ran, stored)
	// Output: <nil> 1000
}

func ExampleConsumer() {
	addr, stop := startBroker("orders", "billing")
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	if _, err := c.Publish(context.Background(), client.Message{Topic: "orders", Key: "42"}, client.PublishOptions{}); err != nil {
		log.Panic(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	consumer, err := c.NewConsumer(client.ConsumerConfig{
		Group: "billing",
		Handler: func(ctx context.Context, d client.Delivery) error {
			fmt.Printf("%s %s, attempt %d\n", d.Topic, d.Key, d.Attempt)
			cancel()
			return nil // acknowledges; see also RetryAfter and Reject
		},
	})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(consumer.Run(ctx)) // until the context ends
	// Output:
	// orders 42, attempt 1
	// <nil>
}
