package board

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all boards; deploy/README.md lists them.
type metrics struct {
	registerer prometheus.Registerer
	records    *prometheus.CounterVec
	unreadable *prometheus.CounterVec
	age        *prometheus.GaugeVec
	viewers    *prometheus.GaugeVec
	cut        *prometheus.CounterVec
	rebuilds   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	byBoard := []string{"board"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(byBoard, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, byBoard)
	}
	m := &metrics{
		registerer: reg,
		records:    counter("notify_board_records_total", "Records taken as they came; history that was read at a start is not in it."),
		unreadable: counter("notify_board_unreadable_total", "Records without an answer of the filter, or without an amount.", "what"),
		age:        gauge("notify_board_age_seconds", "Age of the instant up to which the board is known to be whole."),
		viewers:    gauge("notify_board_viewers", "Pages that look."),
		cut:        counter("notify_board_viewers_cut_total", "Pages that took too long to take a frame; they come back by themselves."),
		rebuilds:   counter("notify_board_rebuilds_total", "Times that a board began to read its history anew."),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.records, m.unreadable, m.age, m.viewers, m.cut, m.rebuilds} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// count takes note of a reading.
func (m *metrics) count(board string, r reading) {
	m.records.WithLabelValues(board).Inc()
	if r.failed {
		m.unreadable.WithLabelValues(board, "filter").Inc()
	}
	if r.noAmount {
		m.unreadable.WithLabelValues(board, "amount").Inc()
	}
}
