package stream_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/stream"
)

// gauge is the sum of a metric over its series, and how many there are.
func gauge(t *testing.T, reg prometheus.Gatherer, name string) (sum float64, series int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += value(m)
				series++
			}
		}
	}
	return sum, series
}

func value(m *dto.Metric) float64 {
	if m.Gauge != nil {
		return m.Gauge.GetValue()
	}
	if m.Histogram != nil {
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Counter.GetValue()
}

func waitGauge(t *testing.T, reg prometheus.Gatherer, name string, ok func(sum float64, series int) bool) {
	t.Helper()
	waitFor(t, name, func() bool { return ok(gauge(t, reg, name)) })
}

func TestLagIsRightWhileBehindAndZeroWhenAllIsHandled(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a", "b", "c")
	m.abort(0, "lost")
	reg := prometheus.NewRegistry()
	goOn := make(chan struct{})
	s := newSeen()
	r := run(t, stream.Config{
		Topics: []string{name}, Group: name, Registerer: reg, LagInterval: 10 * time.Millisecond,
		Handler: func(ctx context.Context, r stream.Record) error {
			select {
			case <-goOn:
				return s.handle(ctx, r)
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	waitGauge(t, reg, "notify_stream_lag_records", func(sum float64, n int) bool { return sum == 3 && n == 2 })
	goOn <- struct{}{}
	waitGauge(t, reg, "notify_stream_lag_records", func(sum float64, _ int) bool { return sum == 2 })
	// The last record handled was committed long ago, so the consumer is that far behind.
	waitGauge(t, reg, "notify_stream_lag_seconds", func(sum float64, _ int) bool { return sum >= time.Since(at(2)).Seconds() })
	close(goOn)
	s.count(t, 3)
	waitGauge(t, reg, "notify_stream_lag_records", func(sum float64, n int) bool { return sum == 0 && n == 2 })
	waitGauge(t, reg, "notify_stream_lag_seconds", func(sum float64, n int) bool { return sum < 5 && n == 1 })
	r.stop(t)
	if _, n := gauge(t, reg, "notify_stream_lag_records"); n != 0 {
		t.Errorf("%d partitions still have a lag after the stop", n)
	}
	for metric, want := range map[string]float64{
		"notify_stream_records_total": 3, "notify_stream_handle_duration_seconds": 3, "notify_stream_handler_errors_total": 0,
	} {
		if got, _ := gauge(t, reg, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

func TestAKafkaThatWasAwayIsReadOnAndLagGrowsMeanwhile(t *testing.T) {
	k := startOwnKafka(t)
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a")
	reg := prometheus.NewRegistry()
	s := newSeen()
	r := run(t, stream.Config{
		Topics: []string{name}, Group: name, Registerer: reg, LagInterval: 10 * time.Millisecond, Handler: s.handle,
		Client: func(sc *sarama.Config) { sc.Metadata.Retry.Max, sc.Metadata.Retry.Backoff = 1, 10*time.Millisecond },
	})
	s.count(t, 1)
	waitGauge(t, reg, "notify_stream_lag_seconds", func(sum float64, n int) bool { return n == 1 && sum < 5 })
	k.stop()
	at := time.Now()
	waitFor(t, "growing lag", func() bool {
		lag, _ := gauge(t, reg, "notify_stream_lag_seconds")
		return lag > 1 || time.Since(at) > 30*time.Second
	})
	k.start()
	newMirror(t, name).commit(0, "b")
	if got := strings.Join(s.count(t, 2), " "); got != "a b" {
		t.Errorf("handled %q", got)
	}
	waitGauge(t, reg, "notify_stream_lag_records", func(sum float64, n int) bool { return n == 1 && sum == 0 })
	r.stop(t)
}

// counting dials, and counts what it reads.
type counting struct {
	net.Dialer
	read atomic.Int64
}

func (d *counting) Dial(network, addr string) (net.Conn, error) {
	c, err := d.Dialer.Dial(network, addr)
	return countingConn{c, &d.read}, err
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func TestASlowHandlerMakesKafkaWait(t *testing.T) {
	const records, size, fetch = 200, 100 << 10, 256 << 10 // 20 MB
	name := topic(t, 1)
	m := newMirror(t, name)
	body := strings.Repeat("x", size)
	m.begin()
	for range records {
		m.send(0, body) // a batch each
	}
	m.end(kgo.TryCommit)
	d := &counting{}
	goOn := make(chan struct{})
	s := newSeen()
	r := run(t, stream.Config{
		Topics: []string{name}, FetchBytes: fetch, LagInterval: time.Hour,
		Client: func(sc *sarama.Config) { sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, d },
		Handler: func(ctx context.Context, r stream.Record) error {
			select {
			case <-goOn:
				return s.handle(ctx, r)
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	quiet, last := 0, int64(-1)
	waitFor(t, "pause in reading", func() bool {
		now := d.read.Load()
		if now == last && now > size {
			quiet++
		} else {
			quiet, last = 0, now
		}
		return quiet == 25
	})
	if read := d.read.Load(); read > 6*fetch {
		t.Errorf("%d bytes read ahead of a handler that waits, with %d bytes per fetch", read, fetch)
	}
	close(goOn)
	s.count(t, records)
	r.stop(t)
}
