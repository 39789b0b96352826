package mirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/canal"
)

// mostTopics is how many topics have a series of their own; the others share "other".
const mostTopics = 1000

// storeMetrics are the metrics of one store's mirror, all with the label store.
type storeMetrics struct {
	active            prometheus.Gauge
	foreign, messages prometheus.Counter
	topicRecords      *prometheus.CounterVec
	topicBytes        *prometheus.CounterVec
	topicSeries       map[string]topicMetrics
	unmirrored        prometheus.Counter
	backfilled        prometheus.Counter // came from the tables before
	remaining         prometheus.Gauge   // of a backfill
	errors            *prometheus.CounterVec
	buffered          prometheus.Gauge
	latency           prometheus.Histogram
	transaction       prometheus.Histogram
	checkpointed      prometheus.Gauge
	halted            *prometheus.GaugeVec
	waiting           *prometheus.GaugeVec // for somebody to mend Kafka
}

// topicMetrics are those of one topic.
type topicMetrics struct{ records, bytes prometheus.Counter }

// newStoreMetrics registers a store's metrics.
func newStoreMetrics(reg prometheus.Registerer, store string, c *Copier, tailer func() canal.Stats) (*storeMetrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, NativeHistogramBucketFactor: 1.1,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		})
	}
	transactions := counters("notify_mirror_transactions_total", "Source transactions read.", "kind")
	skipped := counters("notify_mirror_skipped_total", "Messages read and not copied.", "reason")
	m := &storeMetrics{
		active:       gauge("notify_mirror_active", "1 on the canald that copies the store."),
		foreign:      transactions.WithLabelValues("foreign"),
		messages:     transactions.WithLabelValues("message"),
		topicRecords: counters("notify_mirror_messages_total", "Records acknowledged by Kafka.", "topic"),
		topicBytes:   counters("notify_mirror_bytes_total", "Bytes of records acknowledged by Kafka.", "topic"),
		topicSeries:  make(map[string]topicMetrics),
		unmirrored:   skipped.WithLabelValues("topic_excluded"),
		backfilled:   skipped.WithLabelValues("backfilled"),
		remaining:    gauge("notify_mirror_backfill_remaining_messages", "Messages of the snapshot that are not in Kafka yet; 0 when there is no backfill."),
		errors:       counters("notify_mirror_errors_total", "Ends of a run of the mirror by a fault.", "stage"),
		buffered:     gauge("notify_mirror_buffered_bytes", "Memory of messages read and not yet acknowledged by Kafka."),
		latency:      histogram("notify_mirror_latency_seconds", "Message taken by the store to acknowledged by Kafka."),
		transaction:  histogram("notify_mirror_kafka_transaction_duration_seconds", "First record of a Kafka transaction to its commit."),
		checkpointed: gauge("notify_mirror_last_checkpoint_timestamp_seconds", "Time of the last checkpoint."),
		halted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_mirror_halted", Help: "1 when the mirror stopped and wants an operator.",
		}, []string{"reason"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_mirror_waiting", Help: "1 while the mirror waits until somebody mends Kafka.",
		}, []string{"reason"}),
	}
	m.setWaiting("")
	for _, stage := range []string{"read", "produce", "start"} {
		m.errors.WithLabelValues(stage)
	}
	for _, reason := range reasons {
		m.halted.WithLabelValues(string(reason))
	}
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"store": store}, reg)
	for _, c := range append(tailerMetrics(tailer), []prometheus.Collector{
		m.active, transactions, m.topicRecords, m.topicBytes, skipped, m.errors,
		m.remaining, m.buffered, m.latency, m.transaction, m.checkpointed, m.halted, m.waiting,
		lagGauge("notify_mirror_lag_seconds", "Age of the last instant known to be wholly in Kafka.",
			c, func(l lagging) float64 { return l.behind.Seconds() }),
		lagGauge("notify_mirror_lag_bytes", "Binlog that is not in Kafka yet; NaN: not known.",
			c, func(l lagging) float64 { return l.bytes }),
		lagGauge("notify_mirror_binlog_files_before_checkpoint", "Binlog files older than what is not in Kafka yet; NaN: not known.",
			c, func(l lagging) float64 { return l.files }),
		lagGauge("notify_mirror_binlog_headroom_seconds", "Time until the server may drop binlog that is not in Kafka.",
			c, func(l lagging) float64 { return l.headroom }),
	}...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// lagGauge is a gauge of how far a mirror is behind.
func lagGauge(name, help string, c *Copier, value func(lagging) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(c.lag.at(time.Now())) })
}

// tailerMetrics are those that the Tailer counts.
func tailerMetrics(stats func() canal.Stats) []prometheus.Collector {
	cs := []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "notify_mirror_connected", Help: "1 while the binlog stream is open.",
		}, func() float64 { return bool01(stats().Connected) }),
	}
	for _, cause := range canal.Causes() {
		cs = append(cs, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "notify_mirror_reconnects_total", Help: "Binlog streams opened again.",
			ConstLabels: prometheus.Labels{"cause": string(cause)},
		}, func() float64 { return float64(stats().Reconnects[cause]) }))
	}
	return cs
}

// topic returns the metrics of a topic, by its name in the store. One goroutine calls it.
func (m *storeMetrics) topic(name string) topicMetrics {
	if t, ok := m.topicSeries[name]; ok {
		return t
	}
	if len(m.topicSeries) >= mostTopics {
		name = "other"
	}
	t := topicMetrics{m.topicRecords.WithLabelValues(name), m.topicBytes.WithLabelValues(name)}
	m.topicSeries[name] = t
	return t
}

// committed counts the records of a Kafka transaction; age tells that of a time of the store's.
func (m *storeMetrics) committed(chunks []*chunk, now time.Time, took time.Duration, age func(of, now time.Time) time.Duration) {
	for _, c := range chunks {
		for i := 0; i < len(c.items); {
			t, first, bytes := c.items[i].topic, i, 0
			for ; i < len(c.items) && c.items[i].topic == t; i++ {
				bytes += c.items[i].size
				m.latency.Observe(age(time.UnixMicro(c.items[i].bornAt), now).Seconds())
			}
			t.metrics.records.Add(float64(i - first))
			t.metrics.bytes.Add(float64(bytes))
		}
	}
	m.transaction.Observe(took.Seconds())
	m.checkpointed.Set(float64(now.UnixMicro()) / 1e6)
}

func (m *storeMetrics) setHalted(reason Reason) {
	for _, r := range reasons {
		m.halted.WithLabelValues(string(r)).Set(bool01(r == reason))
	}
}

// setWaiting sets what is to be mended in Kafka; empty: nothing.
func (m *storeMetrics) setWaiting(reason Reason) {
	for _, r := range obstacleReasons {
		m.waiting.WithLabelValues(string(r)).Set(bool01(r == reason))
	}
}

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
