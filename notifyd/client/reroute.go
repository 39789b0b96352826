package client

import (
	"time"
)

// reroute keeps settlements that the broker they were meant for could not take:
// another owns the shard now, or the stream broke. Each is offered to every
// attached broker once. Only refusals are answered, so one that some broker has
// not refused counts as taken; when all have refused, a takeover is under way,
// and after a pause all are asked again. After keep it is given up: the delivery
// will be repeated, as after any lost ack.
//
//	refused -> offered to each broker -> one stays silent: taken -> forgotten
//	              ^                  -> all refuse -> pause -+
//	              +-----------------------------------------+
type reroute struct {
	keep, pause time.Duration
	most        int // settlements kept
	entries     map[string]*rerouted
	nacks       map[string]settlement // recent nacks by token
	nackOrder   []string
}

type rerouted struct {
	settlement
	offered   map[string]bool // broker -> whether it refused
	since     time.Time
	notBefore time.Time
}

func newReroute() *reroute {
	return &reroute{
		keep: 30 * time.Second, pause: 500 * time.Millisecond, most: 100_000,
		entries: map[string]*rerouted{}, nacks: map[string]settlement{},
	}
}

// sentNack remembers a nack, so that its token alone brings it back: a token that
// is not known here is taken for an ack. most is above the number of deliveries
// that brokers may have under way, hence of nacks that they may yet hand back.
func (r *reroute) sentNack(s settlement, most int) {
	key := string(s.token)
	if _, ok := r.nacks[key]; !ok {
		r.nackOrder = append(r.nackOrder, key)
	}
	r.nacks[key] = s
	for len(r.nackOrder) > most {
		delete(r.nacks, r.nackOrder[0])
		r.nackOrder = r.nackOrder[1:]
	}
}

// refused notes that broker handed the token back.
func (r *reroute) refused(token []byte, broker string, now time.Time) {
	s, ok := r.nacks[string(token)]
	if !ok {
		s = settlement{token: token}
	}
	r.entry(s, now).offered[broker] = true
}

// lost notes a settlement that could not be sent to broker.
func (r *reroute) lost(s settlement, broker string, now time.Time) {
	delete(r.entry(s, now).offered, broker)
}

func (r *reroute) entry(s settlement, now time.Time) *rerouted {
	e := r.entries[string(s.token)]
	if e == nil {
		e = &rerouted{settlement: s, offered: map[string]bool{}, since: now}
		if len(r.entries) < r.most {
			r.entries[string(s.token)] = e
		}
	}
	return e
}

// due returns what to send to each of the attached brokers now.
func (r *reroute) due(attached []string, now time.Time) map[string][]settlement {
	out := map[string][]settlement{}
	for key, e := range r.entries {
		if now.Sub(e.since) >= r.keep {
			delete(r.entries, key)
			continue
		}
		if now.Before(e.notBefore) || len(attached) == 0 {
			continue
		}
		offers, refusals := 0, 0
		for _, broker := range attached {
			refused, offered := e.offered[broker]
			switch {
			case !offered:
				e.offered[broker] = false
				out[broker] = append(out[broker], e.settlement)
				offers++
			case refused:
				refusals++
			}
		}
		if offers == 0 && refusals == len(attached) {
			clear(e.offered)
			e.notBefore = now.Add(r.pause)
		}
	}
	return out
}

// idle reports whether nothing is kept.
func (r *reroute) idle() bool { return len(r.entries) == 0 }
