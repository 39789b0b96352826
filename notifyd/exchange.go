package notifyd

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/filter"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A view is one version of the registry with the exchange made from it. It is never changed.
type view struct {
	*store.Registry
	audiences  map[string]*audience      // by topic
	filters    map[string]*filter.Filter // by expression
	policies   map[subscriptionKey]policy
	broadcasts bool   // some subscription does
	replicates bool   // some topic is replicated
	standard   policy // of rows whose subscription is gone
}

type subscriptionKey struct {
	topic string
	group int32
}

// An audience is who gets the messages of one topic.
type audience struct {
	all       []int32   // groups without a filter
	choosers  []chooser // groups with one
	broadcast []chooser // groups of which every instance gets a copy
}

// A chooser is a group that gets what its filter, if it has one, lets through.
type chooser struct {
	group  int32
	filter *filter.Filter
	failed prometheus.Counter
}

// A policy is how the deliveries of a subscription go.
type policy struct {
	ackWait time.Duration
	retry   retryPolicy
}

// A viewer makes views of registries.
type viewer struct {
	standard policy
	failed   *prometheus.CounterVec // topic, group
	broken   func(group, topic string, err error)
}

func newViewer(c *core) *viewer {
	return &viewer{
		standard: policy{ackWait: time.Duration(c.cfg.AckWait), retry: retryPolicy{
			min: time.Duration(c.cfg.RetryMin), max: time.Duration(c.cfg.RetryMax), attempts: c.cfg.MaxAttempts, age: time.Duration(c.cfg.MaxAge)}},
		failed: c.metrics.filterErrors,
		broken: func(group, topic string, err error) {
			c.log.Error("filter cannot be compiled by this version and lets everything through", "group", group, "topic", topic, "err", err)
		}}
}

// view compiles each filter that the view before, or nil, does not have. One that this program cannot compile, since a newer one took it, lets
// everything through: an unwanted message can be thrown away, a missing one cannot be found.
func (w *viewer) view(r *store.Registry, before *view) *view {
	v := &view{Registry: r, filters: map[string]*filter.Filter{}, audiences: map[string]*audience{}, policies: map[subscriptionKey]policy{}, standard: w.standard}
	for _, t := range r.Topics {
		v.replicates = v.replicates || t.Settings.Durability == store.Replicated
	}
	for _, s := range r.Subscriptions {
		v.policies[subscriptionKey{s.Topic, s.GroupID}] = w.standard.with(s.Settings)
		to := v.audiences[s.Topic]
		if to == nil {
			to = &audience{}
			v.audiences[s.Topic] = to
		}
		c := w.chooser(v, s, before)
		switch {
		case s.Settings.Broadcast:
			to.broadcast, v.broadcasts = append(to.broadcast, c), true
		case c.filter == nil:
			to.all = append(to.all, s.GroupID)
		default:
			to.choosers = append(to.choosers, c)
		}
	}
	return v
}

func (w *viewer) chooser(v *view, s store.Subscription, before *view) chooser {
	c := chooser{group: s.GroupID}
	if s.Settings.Filter == "" {
		return c
	}
	group := v.GroupNames[s.GroupID]
	f, err := v.compile(s.Settings.Filter, before)
	if err != nil {
		w.broken(group, s.Topic, err)
		return c
	}
	c.filter, c.failed = f, w.failed.WithLabelValues(s.Topic, group)
	return c
}

// wants asks the filter, if there is one. One that fails lets the message through, and is counted.
func (c chooser) wants(in *filter.Input) bool {
	if c.filter == nil {
		return true
	}
	wanted, err := c.filter.Match(in)
	if err != nil {
		c.failed.Inc()
	}
	return wanted || err != nil
}

// compile reads an expression, unless this view or the one before has it.
func (v *view) compile(expression string, before *view) (f *filter.Filter, err error) {
	if f = v.filters[expression]; f == nil && before != nil {
		f = before.filters[expression]
	}
	if f == nil {
		f, err = filter.Compile(expression)
	}
	if err == nil {
		v.filters[expression] = f
	}
	return f, err
}

// with is the policy with a subscription's own settings in place.
func (p policy) with(s store.SubscriptionSettings) policy {
	set := func(d *time.Duration, us int64) {
		if us > 0 {
			*d = time.Duration(us) * time.Microsecond
		}
	}
	set(&p.ackWait, s.AckWait)
	set(&p.retry.min, s.RetryMin)
	set(&p.retry.max, s.RetryMax)
	set(&p.retry.age, s.MaxAge)
	if s.MaxAttempts > 0 {
		p.retry.attempts = int(s.MaxAttempts)
	}
	if s.RetryMax == 0 {
		p.retry.max = max(p.retry.max, p.retry.min) // the one that was set goes before the broker's
	}
	return p
}

// policy is how deliveries of a topic to a group go.
func (v *view) policy(topic string, group int32) policy {
	if p, ok := v.policies[subscriptionKey{topic, group}]; ok {
		return p
	}
	return v.standard
}

// ackWait is the shortest of a group's ack waits.
func (v *view) ackWait(group int32) time.Duration {
	least := time.Duration(0)
	for k, p := range v.policies {
		if k.group == group && (least == 0 || p.ackWait < least) {
			least = p.ackWait
		}
	}
	if least == 0 {
		return v.standard.ackWait
	}
	return least
}

// exchange names the groups that are owed a message: those that subscribe to its topic and whose
// filter is true for it. Groups that it is broadcast to are owed nothing.
func (v *view) exchange(m *message.Message) []int32 {
	to := v.audiences[m.Topic]
	switch {
	case to == nil:
		return nil
	case len(to.choosers) == 0:
		return to.all
	}
	return choose(slices.Clone(to.all), to.choosers, m)
}

// wants reports whether the filter of a group that subscribes to a message's topic lets it through.
func (v *view) wants(group int32, m *message.Message) bool {
	to := v.audiences[m.Topic]
	if to == nil {
		return false
	}
	i := slices.IndexFunc(to.choosers, func(c chooser) bool { return c.group == group })
	return i < 0 || to.choosers[i].wants(filter.NewInput(m.Topic, m.Key, m.Headers))
}

// broadcastTo names the groups of which every instance gets a copy.
func (v *view) broadcastTo(m *message.Message) []int32 {
	to := v.audiences[m.Topic]
	if to == nil || len(to.broadcast) == 0 {
		return nil
	}
	return choose(nil, to.broadcast, m)
}

// choose appends the groups that want a message.
func choose(groups []int32, from []chooser, m *message.Message) []int32 {
	in := filter.NewInput(m.Topic, m.Key, m.Headers)
	for _, c := range from {
		if c.wants(in) {
			groups = append(groups, c.group)
		}
	}
	return groups
}

// topicsOf are the topics that a group gets, sorted.
func (v *view) topicsOf(group int32) []string {
	var out []string
	for _, s := range v.Subscriptions {
		if s.GroupID == group {
			out = append(out, s.Topic)
		}
	}
	slices.Sort(out)
	return out
}

// inForce reports whether the view, or nil, is the version in force at a server. One that was promoted without the latest
// changes may have others under the same version.
func (v *view) inForce(version, server int64) bool {
	return v != nil && v.Version == version && v.Server == server
}

// A registry is the broker's copy of the version that it saw in force last.
type registry struct {
	current atomic.Pointer[view]
	changed chan struct{} // of capacity 1, or nil: there is another one
}

func (r *registry) load() *view { return r.current.Load() }

// take puts a copy in the place of known, which was there before v was read. When another reading has replaced that
// meanwhile, the newer version stays: by an older one a sweep would take a group that was just added for a dropped one, and remove its rows.
func (r *registry) take(known, v *view) {
	for !r.current.CompareAndSwap(known, v) {
		if known = r.load(); known != nil && known.Version >= v.Version {
			return
		}
	}
	wake(r.changed)
}

var _ shard.Exchange = (*view)(nil).exchange
