package client_test

import (
	"context"
	"errors"
	"fmt"

	"notifymirror/notifyd/client"
)

func ExampleClient_Publish() {
	c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:7700"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.Publish(context.Background(), client.Message{Topic: "orders", Key: "42", Body: []byte("hello")}, client.PublishOptions{})
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Reason == client.ReasonTooLarge:
		fmt.Printf("%s has %d bytes, at most %d\n", refused.Field, refused.Size, refused.Limit)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("durable:", r.ID)
	}
}

func ExampleConsumer() {
	c, err := client.New(client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	consumer, err := c.NewConsumer(client.ConsumerConfig{
		Group: "billing",
		Handler: func(ctx context.Context, d client.Delivery) error {
			fmt.Printf("%s %s, attempt %d\n", d.Topic, d.Key, d.Attempt)
			return nil // acknowledges; an error has it delivered again
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := consumer.Run(context.Background()); err != nil { // until the context ends
		fmt.Println(err)
	}
}
