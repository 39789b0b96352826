package main

import (
	"fmt"
	"strconv"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/stream"
)

// messageLife is one message's life in -o json: the stores' side, and the mirror's.
type messageLife struct {
	ID        string         `json:"id"`
	Why       string         `json:"why"`
	Stored    []storedJSON   `json:"stored,omitempty"`
	Half      *halfJSON      `json:"half,omitempty"`
	Decision  string         `json:"decision,omitempty"`
	DecidedAt *time.Time     `json:"decided_at,omitempty"`
	Outbox    []outboxJSON   `json:"outbox,omitempty"`
	Rejected  []rejectedLife `json:"rejected,omitempty"`
	// RememberedUntil is until when a repeat of the publish is told from another message.
	RememberedUntil *time.Time `json:"remembered_until,omitempty"`
	Unknown         []string   `json:"unknown,omitempty"`
	Mirror          mirrorLife `json:"mirror"`

	found bool
}

type storedJSON struct {
	Topic  string     `json:"topic"`
	Key    string     `json:"key,omitempty"`
	Store  string     `json:"store"`
	Shard  uint32     `json:"shard"`
	Pos    int64      `json:"pos"`
	Owner  string     `json:"owner,omitempty"`
	Asked  bool       `json:"owner_asked"`
	BornAt *time.Time `json:"born_at,omitempty"`
	// DeliverAt and ExpiresAt are there when the message has them.
	DeliverAt   *time.Time  `json:"deliver_at,omitempty"`
	ExpiresAt   *time.Time  `json:"expires_at,omitempty"`
	ExchangedAt *time.Time  `json:"exchanged_at,omitempty"`
	Why         string      `json:"why"`
	Groups      []groupLife `json:"groups"`
	contentJSON
}

type groupLife struct {
	Group       string     `json:"group"`
	State       string     `json:"state"`
	Attempts    uint32     `json:"attempts"`
	MaxAttempts uint32     `json:"max_attempts"`
	NextAt      *time.Time `json:"next_at,omitempty"`
	FirstError  string     `json:"first_error,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	Instance    string     `json:"instance,omitempty"`
	Peer        string     `json:"peer,omitempty"`
	SentAt      *time.Time `json:"sent_at,omitempty"`
	AckBy       *time.Time `json:"ack_by,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	DeadAt      *time.Time `json:"dead_at,omitempty"`
	Why         string     `json:"why"`
}

type outboxJSON struct {
	Store string `json:"store"`
	Seq   int64  `json:"seq"`
	Topic string `json:"topic"`
	Key   string `json:"key,omitempty"`
}

type rejectedLife struct {
	Store      string     `json:"store"`
	Seq        int64      `json:"seq"`
	Topic      string     `json:"topic"`
	Reason     string     `json:"reason"`
	RejectedAt *time.Time `json:"rejected_at,omitempty"`
}

// mirrorLife is the mirror's side of a message's life.
type mirrorLife struct {
	Record *recordLife `json:"record,omitempty"`
	// Searched is what was read to find it.
	Searched    []searched `json:"searched,omitempty"`
	NotSearched string     `json:"not_searched,omitempty"`
}

type recordLife struct {
	Topic       string     `json:"kafka_topic"`
	Partition   int32      `json:"partition"`
	Offset      int64      `json:"offset"`
	BornAt      *time.Time `json:"born_at,omitempty"`
	CommittedAt time.Time  `json:"committed_at"`
	Source      string     `json:"source"`
	Seq         uint64     `json:"seq"`
}

func recordItem(r *stream.Record) *recordLife {
	if r == nil {
		return nil
	}
	out := &recordLife{Topic: r.KafkaTopic, Partition: r.Partition, Offset: r.Offset, CommittedAt: r.CommitTime.UTC(), Source: r.Source.String(), Seq: r.Seq}
	if !r.BornAt.IsZero() {
		born := r.BornAt.UTC()
		out.BornAt = &born
	}
	return out
}

// fill takes the stores' side.
func (l *messageLife) fill(r *notifyv1.ShowMessageResponse) {
	l.Why, l.Unknown = r.GetWhy(), r.GetUnknown()
	for _, s := range r.GetStored() {
		l.Stored = append(l.Stored, storedItem(s))
	}
	if r.GetHalf() != nil {
		h := halfItem(r.GetHalf())
		l.Half = &h
	}
	switch r.GetDecision() {
	case notifyv1.Decision_DECISION_COMMIT:
		l.Decision = "commit"
	case notifyv1.Decision_DECISION_ROLLBACK:
		l.Decision = "rollback"
	}
	l.DecidedAt = timeOrNil(r.GetDecidedAtUs())
	for _, o := range r.GetOutbox() {
		l.Outbox = append(l.Outbox, outboxJSON{o.GetStore(), o.GetSeq(), o.GetTopic(), o.GetKey()})
	}
	for _, x := range r.GetRejected() {
		l.Rejected = append(l.Rejected, rejectedLife{x.GetStore(), x.GetSeq(), x.GetMessage().GetTopic(), x.GetReason(), timeOrNil(x.GetRejectedAtUs())})
	}
	l.RememberedUntil = timeOrNil(r.GetDedup().GetExpiresAtUs())
	l.found = len(l.Stored)+len(l.Outbox)+len(l.Rejected) > 0 || l.Half != nil || l.Decision != "" || r.GetDedup() != nil
}

func storedItem(s *notifyv1.StoredMessage) storedJSON {
	m := s.GetMessage()
	out := storedJSON{Topic: m.GetTopic(), Key: m.GetKey(), Store: s.GetStore(), Shard: s.GetShard(), Pos: s.GetPos(), Owner: s.GetOwner(), Asked: s.GetAsked(),
		BornAt: timeOrNil(m.GetBornAtUs()), DeliverAt: timeOrNil(m.GetDeliverAtUs()), ExpiresAt: timeOrNil(m.GetExpiresAtUs()),
		ExchangedAt: timeOrNil(s.GetExchangedAtUs()), Why: s.GetWhy(), Groups: []groupLife{}, contentJSON: content(m)}
	for _, g := range s.GetGroups() {
		out.Groups = append(out.Groups, groupLife{Group: g.GetGroup(), State: g.GetState(), Attempts: g.GetAttempts(), MaxAttempts: g.GetMaxAttempts(),
			NextAt: timeOrNil(g.GetNextAtUs()), FirstError: g.GetFirstError(), LastError: g.GetLastError(), Instance: g.GetInstance(), Peer: g.GetPeer(),
			SentAt: timeOrNil(g.GetSentAtUs()), AckBy: timeOrNil(g.GetAckByUs()), Reason: g.GetReason(), DeadAt: timeOrNil(g.GetDeadAtUs()), Why: g.GetWhy()})
	}
	return out
}

// conclude joins the mirror's side to the stores'.
func (l *messageLife) conclude() {
	if l.Mirror.Record == nil || l.found {
		return
	}
	l.found = true
	if len(l.Unknown) == 0 {
		l.Why = "delivered and deleted: the mirror has it, and no group is owed it any more"
	} else if l.Why == "" {
		l.Why = "the mirror has it; what groups have done about it is not known without the stores"
	}
}

// pairs is the life as lines of text: what it is, each group, the mirror, and why.
func (l *messageLife) pairs() []string {
	pairs := []string{"id", l.ID}
	for _, s := range l.Stored {
		pairs = append(pairs, s.pairs()...)
	}
	if h := l.Half; h != nil {
		pairs = append(pairs, "topic", h.Topic, "half", "prepared "+clockOf(h.PreparedAt)+" by producer group "+h.ProducerGroup)
	}
	if l.Decision != "" {
		pairs = append(pairs, "decision", l.Decision+" at "+clockOf(l.DecidedAt))
	}
	for _, o := range l.Outbox {
		pairs = append(pairs, "topic", o.Topic, "outbox", fmt.Sprintf("store %s, row %d", o.Store, o.Seq))
	}
	for _, x := range l.Rejected {
		pairs = append(pairs, "topic", printable([]byte(x.Topic)), "outbox", fmt.Sprintf("store %s, row %d, rejected at %s", x.Store, x.Seq, clockOf(x.RejectedAt)))
	}
	if l.RememberedUntil != nil {
		pairs = append(pairs, "remembered", "a repeat of its publish is known as one until "+clockOf(l.RememberedUntil))
	}
	pairs = append(pairs, l.Mirror.pairs()...)
	for _, u := range l.Unknown {
		pairs = append(pairs, "not known", u)
	}
	return append(pairs, "why", printable([]byte(l.Why)))
}

func (s storedJSON) pairs() []string {
	pairs := []string{"topic", s.Topic, "key", printable([]byte(s.Key)), "born", clockOf(s.BornAt)}
	if s.DeliverAt != nil {
		pairs = append(pairs, "deliver at", clockOf(s.DeliverAt))
	}
	if s.ExpiresAt != nil {
		pairs = append(pairs, "expires", clockOf(s.ExpiresAt))
	}
	owner := "nobody owns the shard"
	switch {
	case s.Asked:
		owner = "owner " + s.Owner
	case s.Owner != "":
		owner = "owner " + s.Owner + ", which was not asked or did not answer"
	}
	pairs = append(pairs, "stored", fmt.Sprintf("store %s, shard %d, pos %s; %s", s.Store, s.Shard, strconv.FormatInt(s.Pos, 10), owner))
	for _, g := range s.Groups {
		pairs = append(pairs, "group "+g.Group, printable([]byte(g.Why)))
	}
	return pairs
}

func (m mirrorLife) pairs() []string {
	if m.NotSearched != "" {
		return []string{"mirror", m.NotSearched}
	}
	var pairs []string
	if r := m.Record; r != nil {
		pairs = append(pairs, "mirror", fmt.Sprintf("%s, partition %d, offset %d; committed %s, seq %d of %s", r.Topic, r.Partition, r.Offset, commitClock(r.CommittedAt), r.Seq, r.Source))
	} else {
		pairs = append(pairs, "mirror", "no record in what was searched")
	}
	for _, s := range m.Searched {
		pairs = append(pairs, "searched", s.String())
	}
	return pairs
}

// commitClock shows a commit time as exactly as it is known: MariaDB's binlog has whole seconds,
// so that a fraction of .000 would lie before the birth of the same second.
func commitClock(t time.Time) string {
	if t.Nanosecond() == 0 {
		return t.UTC().Format(time.RFC3339)
	}
	return clock(t)
}

// clockOf shows a time that may be missing.
func clockOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return clock(*t)
}
