package notifyd

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var latencyBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

// metrics of the broker; deploy/README.md lists them.
type metrics struct {
	published       *prometheus.CounterVec // topic, kind
	publishedBytes  *prometheus.CounterVec // topic
	rejected        *prometheus.CounterVec // topic, reason
	publishDuration *prometheus.HistogramVec
	attempts        *prometheus.CounterVec   // topic, group, transport
	failures        *prometheus.CounterVec   // topic, group, transport, reason
	pushDuration    *prometheus.HistogramVec // transport
	latency         *prometheus.HistogramVec // topic, group
	filterErrors    *prometheus.CounterVec   // topic, group
	deadLetters     *prometheus.CounterVec   // topic, group, reason
	missed          *prometheus.CounterVec   // topic, group, reason
	redriven        *prometheus.CounterVec   // topic, group
	subscribers     *prometheus.GaugeVec     // group, transport
	shardOwned      *prometheus.GaugeVec     // store, shard
	takeovers       *prometheus.CounterVec   // store
	finished        *prometheus.CounterVec   // topic, outcome
	outboxRejected  *prometheus.CounterVec   // store
	checks          *prometheus.CounterVec   // topic, result
	storeUp         *prometheus.GaugeVec     // store
	storeErrors     *prometheus.CounterVec   // store, op
	batchRows       *prometheus.HistogramVec // op
	unsettled       *prometheus.GaugeVec     // store, shard
	memoryMessages  prometheus.Gauge
	memoryBytes     prometheus.Gauge
	memoryDropped   *prometheus.CounterVec // topic, group, reason
	replayed        *prometheus.CounterVec // topic, group, outcome
	replaying       prometheus.Gauge
	bodyHits        prometheus.Counter
	bodyMisses      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	bodies := counter("notify_due_bodies_total", "Messages of pending rows that were due, by where their bodies came from.", "from")
	return &metrics{
		memoryMessages:  gauge("notify_memory_messages", "Messages of memory topics that are held for their groups.").WithLabelValues(),
		memoryBytes:     gauge("notify_memory_bytes", "Memory of messages of memory topics, bytes.").WithLabelValues(),
		memoryDropped:   counter("notify_memory_dropped_total", "Deliveries of memory topics that ended without an acknowledgement.", "topic", "group", "reason"),
		replaying:       gauge("notify_replaying_messages", "Messages of replays that have no outcome yet.").WithLabelValues(),
		replayed:        counter("notify_replayed_messages_total", "Messages of replays that have an outcome.", "topic", "group", "outcome"),
		bodyHits:        bodies.WithLabelValues("cache"),
		bodyMisses:      bodies.WithLabelValues("store"),
		published:       counter("notify_messages_published_total", "Messages whose INSERT committed, or, with kind memory, that were taken into memory.", "topic", "kind"),
		publishedBytes:  counter("notify_published_bytes_total", "Bytes of body and headers of messages whose INSERT committed.", "topic"),
		rejected:        counter("notify_publish_rejected_total", "Publishes refused before storing; topic is empty for topics not declared.", "topic", "reason"),
		publishDuration: histogram("notify_publish_duration_seconds", "From the call to the durable answer.", latencyBuckets, "kind"),
		attempts:        counter("notify_push_attempts_total", "Delivery attempts that ended.", "topic", "group", "transport"),
		failures:        counter("notify_push_failures_total", "Delivery attempts that ended without an acknowledgement.", "topic", "group", "transport", "reason"),
		pushDuration:    histogram("notify_push_duration_seconds", "From the push of a delivery to the end of the attempt.", latencyBuckets, "transport"),
		latency:         histogram("notify_delivery_latency_seconds", "From the store taking the message to its acknowledgement.", latencyBuckets, "topic", "group"),
		deadLetters:     counter("notify_dead_letters_total", "Deliveries that became dead letters.", "topic", "group", "reason"),
		redriven:        counter("notify_dead_letters_redriven_total", "Dead letters that an operator had delivered again.", "topic", "group"),
		missed:          counter("notify_broadcast_missed_total", "Copies of broadcast messages that an attached instance did not acknowledge and gets no more.", "topic", "group", "reason"),
		filterErrors:    counter("notify_filter_errors_total", "Messages for which a subscription's filter failed; they are delivered.", "topic", "group"),
		subscribers:     gauge("notify_subscribers_connected", "Live streams of consumers, and enabled webhooks.", "group", "transport"),
		shardOwned:      gauge("notify_shard_owned", "1 while this broker owns the shard.", "store", "shard"),
		takeovers:       counter("notify_shard_takeovers_total", "Shards taken by this broker.", "store"),
		finished:        counter("notify_transactions_finished_total", "Halves decided; manual: by an operator.", "topic", "outcome"),
		outboxRejected:  counter("notify_outbox_rejected_total", "Outbox rows that could not be relayed.", "store"),
		checks:          counter("notify_transaction_checks_total", "Answers to checks of halves, by topic for callbacks; no_producer: nobody to ask, not counted against the budget.", "topic", "result"),
		storeUp:         gauge("notify_store_up", "1 while the store answers.", "store"),
		storeErrors:     counter("notify_store_errors_total", "Statements that failed, by what they were for.", "store", "op"),
		batchRows: histogram("notify_store_batch_rows", "Rows in one transaction.",
			[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500}, "op"),
		unsettled: gauge("notify_unsettled_messages", "Messages in memory that are not settled yet.", "store", "shard"),
	}
}

func shardLabel(no int) string { return strconv.Itoa(no) }

// A groupCollector reports deliveries in flight and breakers by reading the groups when asked.
type groupCollector struct {
	core     *core
	inFlight *prometheus.Desc
	open     *prometheus.Desc
}

func newGroupCollector(c *core) *groupCollector {
	return &groupCollector{core: c,
		inFlight: prometheus.NewDesc("notify_inflight_messages", "Deliveries pushed whose acknowledgement is not in.", []string{"group"}, nil),
		open:     prometheus.NewDesc("notify_circuit_open", "1 while the group is down: nothing is pushed to it but a probe now and then.", []string{"group"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *groupCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.inFlight
	ch <- c.open
}

// Collect implements prometheus.Collector.
func (c *groupCollector) Collect(ch chan<- prometheus.Metric) {
	v := c.core.declared.load()
	if v == nil {
		return
	}
	for _, g := range c.core.hub.all() {
		if name, ok := v.GroupNames[g.id]; ok {
			_, n := g.instancesProto()
			ch <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(n), name)
			open := 0.0
			if g.isDown() {
				open = 1
			}
			ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, open, name)
		}
	}
}
