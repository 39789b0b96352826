package stream

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the consumer's. topic is notify's name; group is empty for assigned
// partitions. Consumers of one registry share them.
type metrics struct {
	records    *prometheus.CounterVec
	errors     *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	rejected   *prometheus.CounterVec
	gone       *prometheus.CounterVec
	duplicates *prometheus.CounterVec
	foreign    *prometheus.CounterVec
	lagRecords *prometheus.GaugeVec
	lagSeconds *prometheus.GaugeVec

	stateEntries *prometheus.GaugeVec
	stateBytes   *prometheus.GaugeVec
}

// topicMetrics are those of one group and topic.
type topicMetrics struct {
	records, errors, retries, rejected, duplicates, foreign prometheus.Counter
	duration                                                prometheus.Observer
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	byTopic, byPartition := []string{"group", "topic"}, []string{"group", "topic", "partition"}
	m := &metrics{}
	err := errors.Join(
		register(reg, &m.records, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_records_total", Help: "Records handled.",
		}, byTopic)),
		register(reg, &m.errors, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_handler_errors_total", Help: "Errors that the handler returned; each stopped the consumer.",
		}, byTopic)),
		register(reg, &m.duration, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "notify_stream_handle_duration_seconds", Help: "Time in the handler, per record, or per batch for a batch handler.",
			Buckets:                        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
		}, byTopic)),
		register(reg, &m.retries, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_retries_total", Help: "Outcomes that asked for another try later.",
		}, byTopic)),
		register(reg, &m.rejected, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_rejected_total", Help: "Records that went to the reject topic.",
		}, byTopic)),
		register(reg, &m.gone, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_gone_total", Help: "Times that a partition went on at its oldest record, since what was to be read next is gone.",
		}, byTopic)),
		register(reg, &m.duplicates, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_duplicates_total", Help: "Repeats dropped by source and seq; only a reader of uncommitted records has them.",
		}, []string{"group"})),
		register(reg, &m.foreign, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_foreign_records_total", Help: "Records passed over since the mirror did not write them.",
		}, byTopic)),
		register(reg, &m.lagRecords, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_stream_lag_records", Help: "Records not handled yet; markers among them count too. 0 when there is nothing to handle.",
		}, byPartition)),
		register(reg, &m.stateEntries, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_stream_state_entries", Help: "Keys in the state of a processor's partition, as committed.",
		}, byPartition)),
		register(reg, &m.stateBytes, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_stream_state_bytes", Help: "Keys and values in the state of a processor's partition, as committed.",
		}, byPartition)),
		register(reg, &m.lagSeconds, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "notify_stream_lag_seconds", Help: "Time since the latest instant for which all committed before it is handled; grows while Kafka is away.",
		}, byTopic)),
	)
	return m, err
}

// register puts a collector into the registry, or takes the one that is there.
func register[T prometheus.Collector](reg prometheus.Registerer, to *T, c T) error {
	*to = c
	if reg == nil {
		return nil
	}
	err := reg.Register(c)
	if have, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := have.ExistingCollector.(T); ok {
			*to = same
			return nil
		}
	}
	return err
}

func (m *metrics) of(group, topic string) topicMetrics {
	return topicMetrics{
		records:    m.records.WithLabelValues(group, topic),
		errors:     m.errors.WithLabelValues(group, topic),
		retries:    m.retries.WithLabelValues(group, topic),
		rejected:   m.rejected.WithLabelValues(group, topic),
		duplicates: m.duplicates.WithLabelValues(group),
		foreign:    m.foreign.WithLabelValues(group, topic),
		duration:   m.duration.WithLabelValues(group, topic),
	}
}
