package stream_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// A member of a consumer group handles each message of a topic at least once.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	brokers := exampleTopic(ctx, "example-orders", "first", "second")

	consumer, err := stream.New(stream.Config{
		Brokers: brokers,
		Topics:  []string{"example-orders"},
		Group:   "example-billing",
		Handler: func(ctx context.Context, r stream.Record) error {
			fmt.Printf("%s of customer %s\n", r.Body, r.Key)
			if string(r.Body) == "second" {
				stop() // enough for an example
			}
			return nil // handled: the offset may be committed
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := consumer.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first of customer 7
	// second of customer 7
}

// Replay reads again what was published, without a group: here all that there is.
func ExampleConsumer_Records() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	brokers := exampleTopic(ctx, "example-replay", "first", "second", "third")

	consumer, err := stream.New(stream.Config{
		Brokers: brokers,
		Topics:  []string{"example-replay"},
		Start:   stream.AtOffset(1),
		End:     stream.Newest(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range consumer.Records(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("offset %d: %s\n", r.Offset, r.Body)
	}
	// Output:
	// offset 1: second
	// offset 2: third
}

// exampleTopic stands for a mirror that wrote some messages of customer 7.
func exampleTopic(ctx context.Context, topic string, bodies ...string) (brokers []string) {
	brokers = []string{os.Getenv(kafkaEnv)}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	kafka := record.TopicName("", topic)
	admin := kadm.NewClient(client)
	_, _ = admin.DeleteTopics(ctx, kafka)             // of an earlier run
	_, _ = admin.DeleteGroups(ctx, "example-billing") // likewise
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, kafka); err != nil {
		panic(err)
	}
	for i, body := range bodies {
		r := record.Encode(record.Message{
			ID: uuid.New(), Topic: topic, Key: []byte("7"), Body: []byte(body),
			BornAt: time.Now(), CommitTime: time.Now(),
			Source: record.Source{Store: "example", Generation: 1}, Seq: uint64(i + 1),
		})
		k := &kgo.Record{Topic: kafka, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		if err := client.ProduceSync(ctx, k).FirstErr(); err != nil {
			panic(err)
		}
	}
	return brokers
}
