package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/record"
	"notifymirror/stream"
	"notifymirror/stream/window"
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

// A stream processor in twenty lines: sales per shop and minute, each sale counted once
// whatever dies.
func ExampleProcessor() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	brokers := exampleTopic(ctx, "example-sales", `{"shop":"north","cents":995}`, `{"shop":"south","cents":150}`, `{"shop":"north","cents":5}`)
	exampleOutput(ctx, brokers, "example-totals", "example-state")

	processor, err := stream.NewProcessor(stream.ProcessorConfig{
		Config: stream.Config{Brokers: brokers, Topics: []string{"example-sales"}, Group: "example-totals"},
		State:  "example-state",
		Process: func(ctx context.Context, step *stream.Step, batch []stream.Record) error {
			for _, r := range batch {
				var sale struct {
					Shop  string
					Cents int64
				}
				if err := json.Unmarshal(r.Body, &sale); err != nil {
					return err
				}
				total, _ := strconv.ParseInt(string(step.Get(sale.Shop)), 10, 64) // 0 at first
				text := strconv.AppendInt(nil, total+sale.Cents, 10)
				step.Put(sale.Shop, text)
				step.Emit("example-totals", []byte(sale.Shop), text)
			}
			return nil // outputs, state and offsets are committed together
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go exampleTotals(ctx, brokers, 3, stop)
	if err := processor.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// north 995
	// south 150
	// north 1000
}

// A window's sums live in the processor's state: its snapshot is committed with the
// offsets of what is in it, so that a restart neither loses nor counts twice.
func ExampleStep_Put() {
	perMinute := window.Config{Size: time.Minute, Lateness: 5 * time.Second}
	metrics, err := window.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(ctx context.Context, step *stream.Step, batch []stream.Record) error {
		w, err := window.Restore(perMinute, step.Get("window"))
		if err != nil {
			return err
		}
		for _, r := range batch {
			late, err := w.Add(window.Event{Time: r.CommitTime, Key: string(r.Key), Amount: int64(len(r.Body))})
			if err != nil {
				return err
			}
			if len(late) > 0 {
				step.Emit("late", r.Key, r.Body)
			}
		}
		for _, closed := range w.Due() {
			for key, sum := range closed.Keys {
				step.Emit("per-minute", []byte(key), fmt.Appendf(nil, "%v %d", closed, sum.Sum))
			}
		}
		metrics.Observe("totals", batch[0].Partition, w)
		snapshot, err := w.Snapshot()
		step.Put("window", snapshot)
		return err
	}
}

// exampleOutput makes the output topic anew, and forgets an earlier run's state.
func exampleOutput(ctx context.Context, brokers []string, out, state string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	_, _ = admin.DeleteTopics(ctx, out, state)
	_, _ = admin.DeleteGroups(ctx, out)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, out); err != nil {
		panic(err)
	}
}

// exampleTotals prints n records of the output and stops the processor.
func exampleTotals(ctx context.Context, brokers []string, n int, stop func()) {
	defer stop()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("example-totals"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for n > 0 && ctx.Err() == nil {
		client.PollRecords(ctx, n).EachRecord(func(r *kgo.Record) {
			fmt.Printf("%s %s\n", r.Key, r.Value)
			n--
		})
	}
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
