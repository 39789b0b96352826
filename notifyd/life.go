package notifyd

import (
	"fmt"
	"slices"
	"strings"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// States of a delivery, as ShowMessage tells them.
const (
	stateAcked   = "acknowledged"
	stateFlying  = "in_flight"
	stateWaiting = "waiting"
	stateDead    = "dead_letter"
	stateNotOwed = "not_owed"
)

// A life is all that is known of one stored message: what its store holds, and what the owner of its
// shard has in memory.
type life struct {
	id    string
	now   int64 // by the store's clock
	store store.Life
	sight *sight // nil: the owner was not asked
	owner string // empty: no broker owns the shard
	view  *view
	hooks map[int32]store.Endpoint
}

// groups are those that may be owed the message: by the registry, by rows, by the ledger.
func (l *life) groups() []int32 {
	var out []int32
	add := func(id int32) {
		if id != shard.Delayed && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, s := range l.view.Subscriptions {
		if s.Topic == l.store.Stored.Msg.Topic {
			add(s.GroupID)
		}
	}
	if l.sight != nil {
		for _, t := range l.sight.look.Targets {
			add(t.Group)
		}
	}
	for _, p := range l.store.Pending {
		add(p.Group)
	}
	for _, d := range l.store.Dead {
		add(d.Group)
	}
	return out
}

// A groupLife is what is known of one group's delivery of a message.
type groupLife struct {
	*life
	id         int32
	name       string
	declared   bool
	subscribed *store.Subscription
	most       int // attempts
	target     *shard.TargetLook
	row        *store.PendingLook
	dead       *store.DeadLetter
	sight      *groupSight
}

func (l *life) group(id int32) *groupLife {
	m := l.store.Stored.Msg
	g := &groupLife{life: l, id: id, name: fmt.Sprintf("#%d", id), most: l.view.policy(m.Topic, id).retry.attempts}
	if name, ok := l.view.GroupNames[id]; ok {
		g.name, g.declared = name, true
	}
	for i, s := range l.view.Subscriptions {
		if s.GroupID == id && s.Topic == m.Topic {
			g.subscribed = &l.view.Subscriptions[i]
		}
	}
	if l.sight != nil {
		for i, t := range l.sight.look.Targets {
			if t.Group == id {
				g.target = &l.sight.look.Targets[i]
			}
		}
		if s, ok := l.sight.groups[id]; ok {
			g.sight = &s
		}
	}
	for i, p := range l.store.Pending {
		if p.Group == id {
			g.row = &l.store.Pending[i]
		}
	}
	for i, d := range l.store.Dead {
		if d.Group == id {
			g.dead = &l.store.Dead[i]
		}
	}
	return g
}

// proto says what the group has done about the message, or why it waits.
func (g *groupLife) proto() *notifyv1.GroupState {
	out := &notifyv1.GroupState{Group: g.name, MaxAttempts: uint32(g.most)}
	if g.row != nil {
		out.Attempts, out.FirstError, out.LastError = uint32(g.row.Attempts), g.row.FirstErr, g.row.Err
	}
	if t := g.target; t != nil {
		out.Attempts, out.LastError = uint32(t.Attempts), t.Err
	}
	switch {
	case g.dead != nil:
		out.Attempts, out.FirstError, out.LastError = uint32(g.dead.Attempts), g.dead.FirstError, g.dead.LastError
		out.State, out.Reason, out.DeadAtUs = stateDead, g.dead.Reason, g.dead.DeadAt
		out.Why = g.deadWords()
	case g.sight != nil && g.sight.flight != nil:
		f := g.sight.flight
		out.State, out.Attempts = stateFlying, uint32(f.attempt)
		out.Instance, out.Peer, out.SentAtUs, out.AckByUs = f.instance, f.peer, f.sentAt, f.ackBy
		out.Why = g.flightWords(f)
	default:
		out.State, out.NextAtUs, out.Why = g.settled()
	}
	return out
}

func (g *groupLife) deadWords() string {
	return fmt.Sprintf("dead letter since %s, %s after %s%s; deliver it again: notify dead redrive %s --group %s",
		utc(g.dead.DeadAt), g.dead.Reason, count(g.dead.Attempts, "attempt"), because(g.dead.LastError), g.life.id, g.name)
}

func (g *groupLife) flightWords(f *flightSight) string {
	to := fmt.Sprintf("%s at %s", f.instance, f.peer)
	if f.transport == transportWebhook {
		to = f.peer
	}
	if !f.taken {
		return fmt.Sprintf("waits in the line of %s: the instance does not read", to)
	}
	return fmt.Sprintf("in flight to %s since %s, attempt %d of %d; it has until %s to answer", to, utc(f.sentAt), f.attempt, g.most, utc(f.ackBy))
}

// settled is the state of a delivery that is neither dead nor in flight.
func (g *groupLife) settled() (state string, nextAt int64, why string) {
	var s settlerSight
	if g.sight != nil {
		s = g.sight.settler
	}
	switch t := g.target; {
	case s.acked || t != nil && t.State == shard.Acked:
		return stateAcked, 0, "acknowledged"
	case s.dying || t != nil && t.State == shard.Dead:
		return stateDead, 0, "becomes a dead letter in a moment"
	case t != nil && t.State == shard.Failed:
		return g.retry(t.Attempts, t.At, t.Err)
	case s.fail != nil:
		return g.retry(s.fail.Attempts, s.fail.NextAt, s.fail.Err)
	case t != nil:
		return stateWaiting, 0, "waits: " + g.due(t.Attempts, t.Err)
	case g.row == nil:
		return g.absent()
	case !g.declared:
		return stateWaiting, 0, "the group was dropped: its row is removed in a moment"
	case s.busy:
		return stateWaiting, 0, "waits: its outcome is being written"
	}
	return g.retry(g.row.Attempts, g.row.NextAt, g.row.Err)
}

// retry is the state of a delivery that is due again at next.
func (g *groupLife) retry(attempts int, next int64, err string) (state string, nextAt int64, why string) {
	switch {
	case next <= g.now:
		return stateWaiting, 0, "waits: " + g.due(attempts, err)
	case attempts == 0:
		return stateWaiting, next, fmt.Sprintf("waits: redriven, and due at %s", utc(next))
	}
	return stateWaiting, next, fmt.Sprintf("waits: attempt %d of %d at %s%s", attempts+1, g.most, utc(next), because(err))
}

// due says why a delivery whose time has come was not pushed yet.
func (g *groupLife) due(attempts int, err string) string {
	s := g.sight
	last := ""
	if attempts > 0 {
		last = fmt.Sprintf("; attempt %d of %d is due%s", attempts+1, g.most, because(err))
	}
	switch {
	case g.owner == "":
		return "no broker owns its shard now" + last
	case s == nil:
		return fmt.Sprintf("it is due; broker %s, which knows more, was not asked or did not answer", g.owner) + last
	case s.instances == 0 && g.hooks[g.id].Disabled:
		e := g.hooks[g.id]
		return fmt.Sprintf("the group's webhook is disabled since %s: %s", utc(e.DisabledAt), e.Reason) + last
	case s.instances == 0 && s.aloneAt == 0:
		return fmt.Sprintf("no instance of group %s is attached to broker %s", g.name, g.owner) + last
	case s.instances == 0:
		return fmt.Sprintf("no instance of group %s is attached (since %s)", g.name, utc(s.aloneAt)) + last
	case s.down:
		return fmt.Sprintf("the group's breaker is open since %s, after %s in a row; a probe at %s tells whether it is back",
			utc(s.downAt), count(s.failures, "failure"), utc(max(s.probeAt, g.now))) + last
	case s.line > 0:
		return fmt.Sprintf("number %d in line for credit: %d of %d are in flight", s.line, s.inFlight, s.credit) + last
	case s.inFlight >= s.credit:
		return fmt.Sprintf("the credit of %s is used up: %d of %d are in flight", count(s.instances, "instance"), s.inFlight, s.credit) + last
	}
	return "it is read when what is before it was: the group catches up in order" + last
}

// absent is the state of a group that has neither a row nor a place in memory.
func (g *groupLife) absent() (state string, nextAt int64, why string) {
	m := g.store.Stored.Msg
	switch s := g.subscribed; {
	case s == nil:
		return stateNotOwed, 0, "not subscribed"
	case s.Settings.Broadcast:
		return stateNotOwed, 0, "broadcast: it went to whoever was attached, and nothing is kept"
	case !g.exchanged() && g.life.sight == nil:
		return stateWaiting, 0, "not known without the owner of its shard"
	case !g.exchanged():
		return stateWaiting, 0, "waits for its exchange"
	case !slices.Contains(g.view.exchange(m), g.id):
		return stateNotOwed, 0, "not owed: the subscription's filter does not want it"
	case s.CreatedAt > m.BornAt:
		return stateNotOwed, 0, fmt.Sprintf("acknowledged, or not owed: the group subscribed after it, at %s", utc(s.CreatedAt))
	}
	return stateAcked, 0, "acknowledged"
}

// exchanged reports whether groups were told what they are owed: the message is in its owner's memory, or
// has rows of groups.
func (l *life) exchanged() bool {
	for _, p := range l.store.Pending {
		if p.Group != shard.Delayed {
			return true
		}
	}
	return len(l.store.Dead) > 0 || l.sight != nil && l.sight.place == shard.InMemory
}

// why says why the message is still there.
func (l *life) why(groups []*notifyv1.GroupState) string {
	var waits []string
	dead := 0
	for _, g := range groups {
		switch g.State {
		case stateWaiting, stateFlying:
			waits = append(waits, g.Group)
		case stateDead:
			dead++
		}
	}
	if !l.exchanged() {
		return l.unexchanged()
	}
	var parts []string
	if len(waits) > 0 {
		parts = append(parts, fmt.Sprintf("waits for %d of %s: %s", len(waits), count(len(groups), "group"), strings.Join(waits, ", ")))
	}
	if dead > 0 {
		parts = append(parts, fmt.Sprintf("kept for %s", count(dead, "dead letter")))
	}
	if len(parts) == 0 {
		return "nobody waits for it: it is deleted in a moment"
	}
	return strings.Join(parts, "; ")
}

// unexchanged says why no group has been told of the message.
func (l *life) unexchanged() string {
	for _, p := range l.store.Pending {
		if p.NextAt > l.now { // the row of the delay
			return fmt.Sprintf("waits: its first delivery is at %s", utc(p.NextAt))
		}
	}
	switch {
	case l.owner == "":
		return "waits: no broker owns its shard now"
	case l.sight == nil:
		return fmt.Sprintf("waits for its exchange, or is delivered and not settled: broker %s, which knows, was not asked or did not answer", l.owner)
	case l.sight.place == shard.Unpaged:
		return fmt.Sprintf("waits: broker %s has not read it yet; it took the shard a moment ago, or its delivery memory is full", l.owner)
	case len(l.store.Pending) > 0:
		return "waits: its time has come, and its exchange is next"
	}
	return "it is being settled at this moment: ask again"
}

// proto tells the life of the stored message.
func (l *life) proto(k *keeper, at store.Place) *notifyv1.StoredMessage {
	m := messageProto(l.store.Stored.Msg)
	m.Key = validText(m.Key)
	out := &notifyv1.StoredMessage{Message: m, Store: k.st.Name, StoreId: k.st.StoreID, Shard: uint32(at.Shard), Pos: int64(at.Pos),
		Owner: l.owner, Asked: l.sight != nil}
	if l.sight != nil {
		out.ExchangedAtUs = l.sight.look.ExchangedAt
	}
	for _, id := range l.groups() {
		out.Groups = append(out.Groups, l.group(id).proto())
	}
	out.Why = l.why(out.Groups)
	return out
}

// because is ": cause", or nothing.
func because(err string) string {
	if err == "" {
		return ""
	}
	return ", after: " + err
}

// count is "1 thing" or "n things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// elsewhere says what became of an id that is no message of a store.
func elsewhere(r *notifyv1.ShowMessageResponse) string {
	switch {
	case r.Half != nil:
		return "waits as a half: " + r.Half.Why
	case len(r.Outbox) > 0:
		return fmt.Sprintf("waits in the outbox of store %s, as row %d: the relay takes it within a second unless it has a backlog", r.Outbox[0].Store, r.Outbox[0].Seq)
	case len(r.Rejected) > 0:
		x := r.Rejected[0]
		return fmt.Sprintf("rejected from the outbox of store %s at %s: %s; put it back with notify outbox rejected resubmit %d", x.Store, utc(x.RejectedAtUs), x.Reason, x.Seq)
	case r.Decision == notifyv1.Decision_DECISION_ROLLBACK:
		return fmt.Sprintf("never a message: the half was rolled back at %s", utc(r.DecidedAtUs))
	case r.Decision == notifyv1.Decision_DECISION_COMMIT:
		return fmt.Sprintf("delivered and deleted: the half was committed at %s, and no group is owed it any more", utc(r.DecidedAtUs))
	case r.Dedup != nil:
		return fmt.Sprintf("delivered and deleted: topic %s took it, and no group is owed it any more", r.Dedup.Topic)
	}
	return "delivered and deleted, or never stored here"
}

// validText is text that protobuf takes: a key may be any bytes.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
