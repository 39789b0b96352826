package window

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tell Prometheus of windows. There is one for a registry, whatever groups and
// partitions there are.
type Metrics struct {
	late      *prometheus.CounterVec
	open      *prometheus.GaugeVec
	keys      *prometheus.GaugeVec
	watermark *prometheus.GaugeVec
}

// NewMetrics makes and registers them. The error is the registry's.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	byPartition := []string{"group", "partition"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, byPartition)
	}
	m := &Metrics{
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notify_stream_late_records_total", Help: "Events that came too late for some of their windows (merged into the others), or for all (dropped).",
		}, []string{"group", "action"}),
		open:      gauge("notify_stream_windows_open", "Windows that are not handed out."),
		keys:      gauge("notify_stream_window_keys", "Keys in all open windows; bounded by MaxCells."),
		watermark: gauge("notify_stream_watermark_timestamp_seconds", "Event time up to which all windows are closed, Unix time."),
	}
	return m, errors.Join(reg.Register(m.late), reg.Register(m.open), reg.Register(m.keys), reg.Register(m.watermark))
}

// Observe tells how windows stand: those of a partition that a group reads. Call it after a
// batch, such as before Snapshot. A batch that comes again since its transaction failed
// has its late events counted again.
func (m *Metrics) Observe(group string, partition int32, w *Windows) {
	number := strconv.Itoa(int(partition))
	m.late.WithLabelValues(group, "merged").Add(float64(w.merged))
	m.late.WithLabelValues(group, "dropped").Add(float64(w.dropped))
	w.merged, w.dropped = 0, 0
	m.open.WithLabelValues(group, number).Set(float64(len(w.open)))
	m.keys.WithLabelValues(group, number).Set(float64(w.cells))
	if w.marked {
		m.watermark.WithLabelValues(group, number).Set(float64(w.mark) / 1e9)
	}
}

// Forget ends what is said about a partition, which another process reads from now on.
func (m *Metrics) Forget(group string, partition int32) {
	number := strconv.Itoa(int(partition))
	for _, g := range []*prometheus.GaugeVec{m.open, m.keys, m.watermark} {
		g.DeleteLabelValues(group, number)
	}
}
