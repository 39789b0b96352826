package stream_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"notifymirror/stream"

	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkConsumer reads messages of 512 bytes from 8 partitions to the end.
func BenchmarkConsumer(b *testing.B) {
	const each = 25_000
	name := topic(b, 8)
	m := newMirror(b, name)
	body := strings.Repeat("x", 512)
	for p := range int32(8) {
		for range 5 {
			m.begin()
			bodies := make([]string, each/5)
			for i := range bodies {
				bodies[i] = body
			}
			m.send(p, bodies...)
			m.end(kgo.TryCommit)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		var n atomic.Int64
		c := newConsumer(b, stream.Config{Topics: []string{name}, End: stream.Newest(), Handler: func(context.Context, stream.Record) error {
			n.Add(1)
			return nil
		}})
		if err := c.Run(deadline(b)); err != nil || n.Load() != 8*each {
			b.Fatalf("%d records, error %v", n.Load(), err)
		}
	}
	b.ReportMetric(float64(8*each*b.N)/b.Elapsed().Seconds(), "msg/s")
}
