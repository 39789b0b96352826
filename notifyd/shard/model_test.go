package shard

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"notifymirror/notifyd/message"
)

// The model drives the real Slot and Ledger of two brokers over one shard in a made-up
// store, by random schedules of publishes, deliveries, late acks, commits, crashes, stops,
// cut connections, takeovers, delayed messages, dead letters, redrives, registry
// changes and failovers of the store to a replica that lacks the last commits. A rule taken out
// must show as a loss, an orphan or a repeat.

type rules struct {
	deadSettles  bool // a message with a dead letter counts as settled when paged
	oneSlot      bool // one open insert at a time
	undelayLast  bool // a delayed message's row goes only when it is settled
	oneAtATime   bool // never two transactions at once for one pos
	versionCheck bool // settling compares the registry version
	unpagedDrop  bool // an ack for a message not paged yet is dropped
	together     bool // the dead letters of a message are inserted with its pending rows
	ackDead      bool // an ack completes a dead letter too
	pinned       bool // a purge keeps the message while any row of it is left
	redriveWhole bool // a redrive is one transaction
	fencedAdmin  bool // redrive and purge are fenced by the epoch
	jump         bool // the first epoch at another server is far above the last one known
}

var allRules = rules{true, true, true, true, true, true, true, true, true, true, true, true}

type key struct {
	pos   Pos
	group int32
}

// keys in one order, so that a seed replays.
func keys(set map[key]bool) []key {
	return slices.SortedFunc(maps.Keys(set), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.group, b.group))
	})
}

type txn struct {
	b      *broker
	epoch  int64
	insert bool
	poss   []Pos
	free   bool // not fenced
	apply  func()
	done   func()
	failed func()
}

type broker struct {
	up, stopped bool
	server      int   // where its connections lead to
	epoch       int64 // 0: owns nothing
	slot        *Slot
	ledger      *Ledger
	version     int64
	txns        []*txn
	todo        []Delivery   // exchanged, not delivered
	acks        []Ack        // of settled messages, not written
	deads       []DeadRow    // of pending rows, not written
	busy        map[key]bool // pending rows being delivered or written
	used        map[Pos]bool // positions given (without oneSlot)
}

type model struct {
	r     *rand.Rand
	rules rules
	final bool

	stored
	high    Pos
	owner   *broker
	leased  bool
	server  int // the primary; another one after a failover
	taken   int // where the epoch was raised last
	replica *stored

	brokers []*broker
	// what the outside saw
	owed      map[Pos]map[int32]bool // groups in force from the acknowledgement on
	clientAck map[key]bool
	mirrored  map[Pos]*message.Message // every message that ever was
	inFlight  []key
	published int
	faults    map[string]bool
	log       []string
}

// stored is what the store holds, with what its commits say of the past.
type stored struct {
	epoch, version int64
	groups         []int32
	msgs           map[Pos]*message.Message
	pending        map[key]bool // true: due
	dead           map[key]bool
	settled        Pos
	inserted       map[Pos]bool // ever
	durable        map[key]bool // acks that committed
	completed      map[key]bool // rows that went by an ack
	purged         map[key]bool
	dropped        map[int32]bool
}

func (s stored) clone() *stored {
	s.msgs, s.pending, s.dead, s.inserted = maps.Clone(s.msgs), maps.Clone(s.pending), maps.Clone(s.dead), maps.Clone(s.inserted)
	s.durable, s.completed, s.purged, s.dropped = maps.Clone(s.durable), maps.Clone(s.completed), maps.Clone(s.purged), maps.Clone(s.dropped)
	return &s
}

func newModel(seed uint64, r rules) *model {
	m := &model{r: rand.New(rand.NewPCG(seed, 1)), rules: r, stored: stored{version: 1, groups: []int32{1, 2},
		msgs: map[Pos]*message.Message{}, pending: map[key]bool{}, dead: map[key]bool{}, inserted: map[Pos]bool{},
		durable: map[key]bool{}, completed: map[key]bool{}, purged: map[key]bool{}, dropped: map[int32]bool{}},
		owed: map[Pos]map[int32]bool{}, clientAck: map[key]bool{}, mirrored: map[Pos]*message.Message{}, faults: map[string]bool{}}
	m.brokers = []*broker{{up: true}, {up: true}}
	return m
}

func (m *model) logf(f string, a ...any) { m.log = append(m.log, fmt.Sprintf(f, a...)) }
func (m *model) fault(f string)          { m.faults[f] = true; m.logf("FAULT %s", f) }

func (m *model) exchange() Exchange {
	groups := slices.Clone(m.groups)
	return func(*message.Message) []int32 { return groups }
}

func (b *broker) reset() { *b = broker{up: b.up, stopped: b.stopped} }

// fenced is how a broker learns that the shard is not its own any more.
func (m *model) fenced(b *broker) bool {
	if b.server != m.server { // its connections lead to one that is gone
		b.reset()
		return true
	}
	if b.epoch != m.epoch {
		for _, t := range b.txns {
			if t.free { // already on its way
				t.apply()
			}
		}
		b.reset()
		return true
	}
	return false
}

func (m *model) begin(t *txn) {
	t.epoch = t.b.epoch
	t.b.txns = append(t.b.txns, t)
}

func (m *model) commit(t *txn) {
	t.b.txns = slices.DeleteFunc(t.b.txns, func(x *txn) bool { return x == t })
	t.apply()
	t.done()
}

func (m *model) rollback(t *txn) {
	t.b.txns = slices.DeleteFunc(t.b.txns, func(x *txn) bool { return x == t })
	t.failed()
}

// cut ends open transactions of a broker from outside: a COMMIT under way may land.
func (m *model) cut(b *broker) {
	for _, t := range b.txns {
		if m.r.IntN(2) == 0 {
			t.apply()
			m.logf("lands %v", t.poss)
		}
	}
	b.txns = nil
}

type action struct {
	name string
	run  func()
}

func (m *model) step() {
	var acts []action
	add := func(name string, run func()) { acts = append(acts, action{name, run}) }
	rare := func(p float64) bool { return !m.final && m.r.Float64() < p }
	for i, b := range m.brokers {
		switch {
		case !b.up:
			add(fmt.Sprint("start ", i), func() { b.up = true })
			continue
		case b.stopped:
			add(fmt.Sprint("cont ", i), func() { b.stopped = false })
			continue
		}
		if rare(.04) {
			add(fmt.Sprint("crash ", i), func() { m.cut(b); b.up = false; b.reset() })
		}
		if rare(.06) {
			add(fmt.Sprint("stop ", i), func() { b.stopped = true })
		}
		if b.epoch == 0 {
			if !m.leased {
				add(fmt.Sprint("take ", i), func() { m.take(b) })
			}
			continue
		}
		if rare(.03) {
			add(fmt.Sprint("cut ", i), func() { m.cut(b); b.reset(); m.leased = false })
		}
		m.brokerActions(b, func(name string, run func()) { add(fmt.Sprint(name, " ", i), run) })
	}
	if m.owner != nil && (!m.final || !m.owner.up || m.owner.epoch != m.epoch) {
		add("expire", func() { m.leased = false })
	}
	m.storeActions(add, rare)
	a := acts[m.r.IntN(len(acts))]
	m.logf("%s", a.name)
	a.run()
}

func (m *model) brokerActions(b *broker, add func(string, func())) {
	inserting, writing := 0, 0
	for _, t := range b.txns {
		if t.insert {
			inserting++
		} else {
			writing++
		}
		if t.free && m.r.IntN(4) > 0 {
			continue
		}
		add(fmt.Sprint("commit ", t.poss), func() {
			if !t.free && m.fenced(b) {
				return
			}
			m.commit(t)
		})
		if !m.final && m.r.IntN(8) == 0 {
			add("rollback", func() { m.rollback(t) })
		}
	}
	most := 1
	if !m.rules.oneSlot {
		most = 2
	}
	if !m.final && m.published < 8 && inserting < most {
		add("publish", func() { m.publish(b, false) })
		add("publish delayed", func() { m.publish(b, true) })
	}
	for i := range b.todo {
		add("deliver", func() { m.deliver(b, i) })
	}
	if writing == 0 || !m.rules.oneAtATime {
		add("settle", func() { m.settle(b) })
		add("acks", func() { m.writeAcks(b) })
		add("deads", func() { m.writeDeads(b) })
		add("retry", func() { m.retry(b) })
		if !m.final && len(m.dead) > 0 {
			add("redrive", func() { m.redrive(b) })
			if m.r.IntN(3) == 0 {
				add("purge", func() { m.purge(b) })
			}
		}
		if !m.rules.fencedAdmin && b.epoch != m.epoch { // else it seldom acts before it notices
			for range 8 {
				add("redrive late", func() { m.redrive(b) })
				add("purge late", func() { m.purge(b) })
			}
		}
	}
	add("page", func() { m.page(b) })
	add("due", func() { m.due(b) })
	if len(m.inFlight) > 0 {
		add("late ack", func() { m.lateAck(b) })
	}
}

// failOver makes the replica the primary, with what it had received. What was acknowledged since is
// lost, and its positions are in the mirror.
func (m *model) failOver() {
	for pos := range m.owed {
		if !m.replica.inserted[pos] {
			delete(m.owed, pos)
		}
	}
	m.stored, m.replica = *m.replica, nil
	m.server++
	m.owner, m.leased = nil, false
	for _, b := range m.brokers {
		b.txns = nil
	}
}

func (m *model) storeActions(add func(string, func()), rare func(float64) bool) {
	if rare(.3) {
		add("replicate", func() { m.replica = m.clone() })
	}
	if rare(.1) && m.replica != nil {
		add("fail over", m.failOver)
	}
	busy := false // a registry change waits for writers, which hold the epoch row shared
	for _, b := range m.brokers {
		busy = busy || b.epoch == m.epoch && len(b.txns) > 0
	}
	if rare(.06) && !busy && !slices.Contains(m.groups, 3) {
		add("create group 3", func() { m.groups = append(slices.Clone(m.groups), 3); m.version++ })
	}
	if rare(.04) && !busy && !m.dropped[2] {
		add("drop group 2", func() {
			m.groups = slices.DeleteFunc(slices.Clone(m.groups), func(g int32) bool { return g == 2 })
			m.version++
			m.dropped[2] = true
		})
	}
	owner := m.owner
	if owner == nil || !owner.up || owner.stopped || owner.epoch != m.epoch {
		return
	}
	free := func(k key) bool { return !m.rules.oneAtATime || !m.touched(owner, k.pos) }
	for _, k := range keys(m.dead) {
		if !free(k) {
			continue
		}
		if m.dropped[k.group] {
			add("sweep", func() { delete(m.dead, k); m.dropIfLast(k.pos) })
		}
	}
	for _, k := range keys(m.pending) {
		if m.dropped[k.group] && free(k) {
			add("sweep", func() { delete(m.pending, k); m.dropIfLast(k.pos) })
		}
	}
}

func (m *model) touched(b *broker, pos Pos) bool {
	for _, t := range b.txns {
		if slices.Contains(t.poss, pos) {
			return true
		}
	}
	return false
}

func (m *model) rows(pos Pos) (pending, dead int) {
	for k := range m.pending {
		if k.pos == pos {
			pending++
		}
	}
	for k := range m.dead {
		if k.pos == pos {
			dead++
		}
	}
	return
}

func (m *model) dropIfLast(pos Pos) {
	if p, d := m.rows(pos); p+d == 0 {
		delete(m.msgs, pos)
	}
}

func (m *model) take(b *broker) {
	for _, o := range m.brokers { // killed by the taker, or landing first
		m.cut(o)
	}
	if m.server != m.taken {
		// The next failover is to a replica that has this: otherwise only a broker's memory, which is not
		// in the model, knows better than to jump to the same epoch again.
		m.replica = nil
	}
	m.epoch = NextEpoch(m.epoch, 0, m.server != m.taken && m.rules.jump)
	m.taken = m.server
	m.leased, m.owner = true, b
	b.reset()
	b.server = m.server
	b.epoch, b.version = m.epoch, m.version
	b.slot = NewSlot(m.epoch)
	b.ledger = NewLedger(m.settled, EpochStart(m.epoch), 5, m.version, m.exchange())
	b.busy, b.used = map[key]bool{}, map[Pos]bool{}
}

func (m *model) publish(b *broker, delayed bool) {
	if m.fenced(b) {
		return
	}
	var pos Pos
	if m.rules.oneSlot {
		pos, _ = b.slot.Begin(1)
	} else {
		pos = At(b.epoch, 1)
		for b.used[pos] {
			pos++
		}
		b.used[pos] = true
	}
	m.published++
	msg := &message.Message{Topic: "t"}
	t := &txn{b: b, insert: true, poss: []Pos{pos}}
	t.apply = func() {
		if pos < m.high {
			m.fault("pos not growing")
		}
		if m.mirrored[pos] != nil {
			m.fault("pos given twice")
		}
		m.high = max(m.high, pos)
		m.msgs[pos], m.mirrored[pos], m.inserted[pos] = msg, msg, true
		if delayed {
			m.pending[key{pos, Delayed}] = true
		}
	}
	t.done = func() {
		m.owed[pos] = map[int32]bool{}
		for _, g := range m.groups {
			m.owed[pos][g] = true
		}
		if m.rules.oneSlot {
			b.slot.Commit()
		}
		b.todo = append(b.todo, b.ledger.Committed(0, []Stored{{pos, msg, delayed}}, m.r.IntN(4) == 0)...)
	}
	t.failed = func() {
		if m.rules.oneSlot {
			b.slot.Rollback()
		} else {
			delete(b.used, pos)
		}
	}
	m.begin(t)
}

// seen notes a delivery. One by a broker that lost the shard without knowing it yet may
// repeat; one by the owner may not repeat what a commit has acknowledged.
func (m *model) seen(b *broker, k key) {
	if m.durable[k] && b.epoch == m.epoch && b.server == m.server {
		m.fault("repeat after a durable ack")
	}
}

// deliver plays the group: it acknowledges at once or later, or fails, or is away.
func (m *model) deliver(b *broker, i int) {
	d := b.todo[i]
	b.todo = slices.Delete(slices.Clone(b.todo), i, i+1)
	k := key{d.Pos, d.Group}
	what := m.r.IntN(6)
	if what == 3 && !m.final {
		b.ledger.Defer(d.Pos, d.Group)
		return
	}
	if !m.final && m.r.IntN(8) == 0 { // its life is over before it was sent
		m.reject(b, k)
		return
	}
	if !b.ledger.Sent(d.Pos, d.Group, 1) {
		return
	}
	m.seen(b, k)
	switch {
	case what == 0 || m.final:
		m.clientAck[k] = true
		m.takeAck(b, k)
	case what == 1:
		b.ledger.Fail(d.Pos, d.Group, 1, "no")
	case what == 4:
		m.reject(b, k)
	case what == 5:
		b.ledger.Defer(d.Pos, d.Group)
	default:
		m.clientAck[k] = true
		m.inFlight = append(m.inFlight, k)
	}
}

// reject ends a first delivery for good, sent or not.
func (m *model) reject(b *broker, k key) {
	if b.ledger.Dead(k.pos, k.group, "rejected", "no") == Settled {
		b.deads = append(b.deads, DeadRow{Pos: k.pos, Group: k.group})
	}
	m.ackAnyway(k)
	if m.rules.together {
		return
	}
	t := &txn{b: b, poss: []Pos{k.pos}, done: func() {}, failed: func() {}}
	t.apply = func() {
		if m.msgs[k.pos] != nil {
			m.dead[k] = true
		}
	}
	m.begin(t)
}

// ackAnyway lets an instance acknowledge late what another one, or itself, rejected.
func (m *model) ackAnyway(k key) {
	if m.r.IntN(2) == 0 {
		m.clientAck[k] = true
		m.inFlight = append(m.inFlight, k)
	}
}

func (m *model) takeAck(b *broker, k key) {
	place := b.ledger.Ack(k.pos, k.group)
	if place == Settled || place == Unpaged && !m.rules.unpagedDrop {
		b.acks = append(b.acks, Ack{k.pos, k.group})
	}
}

func (m *model) lateAck(b *broker) {
	i := m.r.IntN(len(m.inFlight))
	k := m.inFlight[i]
	m.inFlight = slices.Delete(m.inFlight, i, i+1)
	m.takeAck(b, k)
}

func (m *model) settle(b *broker) {
	if m.fenced(b) {
		return
	}
	p := b.ledger.Plan(int64(m.r.IntN(8)), 3)
	if m.rules.versionCheck && p.Version != m.version {
		b.todo = append(b.todo, b.ledger.SettleFailed(p)...)
		b.todo = append(b.todo, b.ledger.SetRegistry(m.version, m.exchange())...)
		return
	}
	t := &txn{b: b, poss: slices.Clone(p.Delete)}
	for _, r := range p.Pending {
		t.poss = append(t.poss, r.Pos)
	}
	for _, r := range p.Dead {
		t.poss = append(t.poss, r.Pos)
	}
	t.poss = append(t.poss, p.Undelay...)
	ackedNow := map[key]bool{}
	for _, e := range p.entries {
		for _, x := range e.targets {
			if x.state == acked {
				ackedNow[key{e.pos, x.group}] = true
			}
		}
	}
	t.apply = func() {
		for _, pos := range p.Delete {
			delete(m.msgs, pos)
		}
		for _, pos := range p.Undelay {
			delete(m.pending, key{pos, Delayed})
		}
		for _, r := range p.Pending {
			m.pending[key{r.Pos, r.Group}] = true
		}
		for _, r := range p.Dead {
			m.dead[key{r.Pos, r.Group}] = true
		}
		for k := range ackedNow {
			m.durable[k] = true
		}
		m.settled = max(m.settled, p.Settled)
	}
	t.done = func() {
		late := b.ledger.SettleDone(p)
		b.acks = append(b.acks, late.Acks...)
		b.deads = append(b.deads, late.Dead...)
	}
	t.failed = func() { b.todo = append(b.todo, b.ledger.SettleFailed(p)...) }
	m.begin(t)
}

// writeAcks deletes rows that were acknowledged; the last one takes the message along.
func (m *model) writeAcks(b *broker) {
	if m.fenced(b) || len(b.acks) == 0 {
		return
	}
	acks := b.acks
	b.acks = nil
	t := &txn{b: b}
	for _, a := range acks {
		t.poss = append(t.poss, a.Pos)
	}
	t.apply = func() {
		for _, a := range acks {
			k := key{a.Pos, a.Group}
			pending, dead := m.pending[k], m.dead[k]
			if !pending && !dead && m.rules.unpagedDrop {
				continue
			}
			delete(m.pending, k)
			if m.rules.ackDead {
				delete(m.dead, k)
			}
			m.completed[k] = pending || dead
			m.durable[k] = true
			m.dropIfLast(a.Pos)
		}
	}
	t.done = func() {}
	t.failed = func() { b.acks = append(b.acks, acks...) }
	m.begin(t)
}

// writeDeads makes dead letters of pending rows that are still there.
func (m *model) writeDeads(b *broker) {
	if m.fenced(b) || len(b.deads) == 0 {
		return
	}
	deads := b.deads
	b.deads = nil
	t := &txn{b: b, done: func() {}}
	for _, d := range deads {
		t.poss = append(t.poss, d.Pos)
	}
	t.apply = func() {
		for _, d := range deads {
			if k := (key{d.Pos, d.Group}); m.pending[k] {
				delete(m.pending, k)
				m.dead[k] = true
			}
		}
	}
	t.failed = func() { b.deads = append(b.deads, deads...) }
	m.begin(t)
}

// admin begins a redrive or a purge of one dead letter. What the transaction finds, it found at its begin.
func (m *model) admin(b *broker, apply func(k key, last bool), done func(k key)) {
	if m.rules.fencedAdmin && m.fenced(b) {
		return
	}
	var free []key
	for _, k := range keys(m.dead) {
		if !m.rules.oneAtATime || !m.touched(b, k.pos) {
			free = append(free, k)
		}
	}
	if len(free) == 0 {
		return
	}
	k := free[m.r.IntN(len(free))]
	pending, dead := m.rows(k.pos)
	if !m.rules.pinned {
		pending = 0
	}
	m.begin(&txn{b: b, poss: []Pos{k.pos}, free: !m.rules.fencedAdmin,
		apply: func() { apply(k, pending+dead == 1) }, done: func() { done(k) }, failed: func() {}})
}

// redrive makes a dead letter a pending row again.
func (m *model) redrive(b *broker) {
	m.admin(b, func(k key, _ bool) {
		delete(m.dead, k)
		if m.rules.redriveWhole {
			m.pending[k] = true
		}
	}, func(k key) {
		if m.rules.redriveWhole {
			return
		}
		m.begin(&txn{b: b, poss: []Pos{k.pos}, apply: func() { m.pending[k] = true }, done: func() {}, failed: func() {}})
	})
}

// purge deletes a dead letter, and the message with its last row.
func (m *model) purge(b *broker) {
	m.admin(b, func(k key, last bool) {
		delete(m.dead, k)
		m.purged[k] = true
		if last {
			delete(m.msgs, k.pos)
		}
	}, func(key) {})
}

// retry delivers one due pending row; the answer is acknowledge, fail or reject.
func (m *model) retry(b *broker) {
	if m.fenced(b) {
		return
	}
	var due []key
	for _, k := range keys(m.pending) {
		if k.group != Delayed && !b.busy[k] && !m.dropped[k.group] && !(m.rules.oneAtATime && m.touched(b, k.pos)) {
			due = append(due, k)
		}
	}
	if len(due) == 0 {
		return
	}
	k := due[m.r.IntN(len(due))]
	if m.msgs[k.pos] == nil {
		m.fault("pending row without its message")
		return
	}
	m.seen(b, k)
	what := m.r.IntN(3)
	if !m.rules.fencedAdmin && m.r.IntN(2) == 0 {
		what = 2
	}
	if m.final || m.clientAck[k] {
		what = 0
	}
	if what == 1 {
		return
	}
	b.busy[k] = true
	switch what {
	case 0:
		m.clientAck[k] = true
	case 2:
		m.ackAnyway(k)
	}
	_, otherDead := m.rows(k.pos)
	otherPending, _ := m.rows(k.pos)
	last := otherPending == 1 && otherDead == 0
	t := &txn{b: b, poss: []Pos{k.pos}}
	t.apply = func() {
		delete(m.pending, k)
		if what == 2 {
			m.dead[k] = true
			return
		}
		m.durable[k] = true
		if m.rules.oneAtATime {
			m.dropIfLast(k.pos)
		} else if last { // decided by a read before another writer's commit
			delete(m.msgs, k.pos)
		}
	}
	t.done = func() { delete(b.busy, k) }
	t.failed = func() { delete(b.busy, k) }
	m.begin(t)
}

func (m *model) page(b *broker) {
	if m.fenced(b) {
		return
	}
	from, to, need := b.ledger.Page()
	if !need {
		return
	}
	var all []Pos
	for pos := range m.msgs {
		if pos > from && pos <= to {
			all = append(all, pos)
		}
	}
	slices.Sort(all)
	var rows []Stored
	for i, pos := range all {
		if i == 2 {
			to = all[1]
			break
		}
		pending, dead := m.rows(pos)
		if pending == 0 && (dead == 0 || !m.rules.deadSettles) {
			rows = append(rows, Stored{Pos: pos, Msg: m.msgs[pos]})
		}
	}
	b.todo = append(b.todo, b.ledger.Paged(0, rows, to)...)
}

func (m *model) due(b *broker) {
	if m.fenced(b) {
		return
	}
	for _, k := range keys(m.pending) {
		if k.group == Delayed && !(m.rules.oneAtATime && m.touched(b, k.pos)) {
			if !m.rules.undelayLast {
				delete(m.pending, k)
			}
			b.todo = append(b.todo, b.ledger.Due(0, Stored{Pos: k.pos, Msg: m.msgs[k.pos]})...)
			return
		}
	}
}

func (m *model) quiet() bool {
	b := m.owner
	if b == nil || !b.up || b.server != m.server || b.epoch != m.epoch || len(b.txns)+len(b.todo)+len(b.acks)+len(b.deads)+len(m.inFlight) > 0 || b.ledger.Len() > 0 {
		return false
	}
	if _, _, need := b.ledger.Page(); need {
		return false
	}
	if len(m.pending) > 0 {
		return false
	}
	for k := range m.dead {
		if m.dropped[k.group] {
			return false
		}
	}
	return m.settled >= m.high
}

func (m *model) run(steps int) (faults map[string]bool) {
	defer func() {
		if p := recover(); p != nil {
			m.fault(fmt.Sprint("panic: ", p))
			faults = m.faults
		}
	}()
	for range steps {
		m.step()
	}
	m.final = true
	for i := 0; i < 4000 && !m.quiet(); i++ {
		m.step()
	}
	for pos, groups := range m.owed {
		for g := range groups {
			k := key{pos, g}
			if !m.clientAck[k] && !m.dead[k] && !m.purged[k] && !m.dropped[g] {
				m.fault(fmt.Sprintf("lost %v", k))
			}
		}
	}
	for pos := range m.msgs {
		if p, d := m.rows(pos); p+d == 0 {
			m.fault("orphan message")
		}
	}
	for k := range m.pending {
		m.fault(fmt.Sprintf("pending row left %v", k))
	}
	for k := range m.dead {
		if m.msgs[k.pos] == nil {
			m.fault("dead letter without its message")
		}
		if m.completed[k] {
			m.fault("dead letter of an acknowledged delivery")
		}
	}
	return m.faults
}

// schedules runs n of them from a seed. NOTIFY_SEED overrides the seed, NOTIFY_SOAK multiplies n.
func schedules(t *testing.T, n int, r rules) (faults int, first *model) {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("NOTIFY_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("NOTIFY_SOAK"); s != "" {
		times, _ := strconv.Atoi(s)
		n *= max(1, times)
	}
	t.Logf("NOTIFY_SEED=%d", seed)
	for i := range n {
		m := newModel(seed+uint64(i), r)
		if len(m.run(70)) > 0 {
			faults++
			if first == nil || len(m.log) < len(first.log) {
				first = m
			}
		}
	}
	return faults, first
}

func TestRandomSchedulesLoseRepeatAndOrphanNothing(t *testing.T) {
	faults, m := schedules(t, 8000, allRules)
	if faults > 0 {
		t.Fatalf("%d schedules went wrong; the shortest: %v\n%q", faults, m.faults, m.log)
	}
}

func TestEachRuleIsLoadBearing(t *testing.T) {
	for name, take := range map[string]func(*rules){
		"dead letters settle a message":              func(r *rules) { r.deadSettles = false },
		"one insert at a time":                       func(r *rules) { r.oneSlot = false },
		"a delayed row goes with its settling":       func(r *rules) { r.undelayLast = false },
		"one transaction at a time for one position": func(r *rules) { r.oneAtATime = false },
		"settling compares the registry version":     func(r *rules) { r.versionCheck = false },
		"acks of messages not paged yet are dropped": func(r *rules) { r.unpagedDrop = false },
		"dead letters go with the settling":          func(r *rules) { r.together = false },
		"an ack completes a dead letter":             func(r *rules) { r.ackDead = false },
		"pending rows pin a message against a purge": func(r *rules) { r.pinned = false },
		"a redrive is one transaction":               func(r *rules) { r.redriveWhole = false },
		"redrive and purge are fenced":               func(r *rules) { r.fencedAdmin = false },
		"a promoted replica begins far above":        func(r *rules) { r.jump = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := allRules
			take(&r)
			n := 2000
			if !r.fencedAdmin {
				n = 6000 // two brokers must meet at one dead letter
			}
			faults, m := schedules(t, n, r)
			if faults == 0 {
				t.Fatal("without this rule no schedule went wrong: the model does not see it")
			}
			t.Logf("%d schedules went wrong, such as %v", faults, m.faults)
		})
	}
}
