package main

import (
	"context"
	"time"
)

// readableRate is how many messages are published per second where only the mirror is looked at.
const readableRate = 2000

// measureReadable sees when messages are readable in the mirror, on each kind of Kafka. Nothing
// is pushed.
func measureReadable(ctx context.Context, b *bench) ([]number, error) {
	var numbers []number
	for _, kind := range b.kafkaKinds() {
		most := 50 * time.Millisecond
		if kind.suffix != "" {
			most = 100 * time.Millisecond
		}
		got, err := b.withPathTo(ctx, kind.start, "", "readable", func(broker, kafka string, pids map[string]int) ([]number, error) {
			p := &path{rate: readableRate, most: most, suffix: kind.suffix, pids: pids}
			return p.measure(ctx, b, broker, kafka)
		})
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, got...)
	}
	return numbers, nil
}
