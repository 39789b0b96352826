package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// At a planned stop the standby takes over at once, and not only when the group has waited
// for a session.
func TestStandbyTakesOverAtAPlannedStop(t *testing.T) {
	b := newBench(t)
	r := newRand(t)
	b.script.random(r, 20, 20, "trades")
	first := b.named("first")
	stopFirst := b.run(first)
	b.await(first)
	second := b.named("second")
	stopSecond := b.run(second)
	b.awaitState(second, Standby, "first")
	if err := second.Ready(); err != nil {
		t.Errorf("a standby is not ready: %v", err)
	}
	if err := stopFirst(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	b.script.random(r, 20, 20, "trades")
	b.await(second)
	if took := time.Since(stopped); took > Session {
		t.Errorf("it took %s, so nobody was told", took)
	}
	if s := second.Status(); s.Active != "second" {
		t.Errorf("status %+v", s)
	}
	if err := stopSecond(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// Those who join and leave beside the active one do not interrupt it: it initialises its
// transactional id once, and nobody else does.
func TestStandbysComeAndGoWithoutDisturbingTheActiveOne(t *testing.T) {
	b := newBench(t)
	r := newRand(t)
	b.script.random(r, 20, 20, "trades")
	own, others := new(faultyDialer), new(faultyDialer)
	active := b.named("active", func(c *Copier) { c.dialer = own })
	stop := b.run(active)
	b.await(active)
	for i := range 6 {
		standby := b.named(fmt.Sprintf("standby-%d", i), func(c *Copier) { c.dialer = others })
		leave := b.run(standby)
		b.awaitState(standby, Standby, "active")
		b.script.random(r, 5, 20, "trades")
		if i%2 == 0 {
			if err := leave(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.await(active)
	if s := active.Status(); own.takeovers() != 1 || others.takeovers() != 0 || s.LastError != "" || s.State != Copying {
		t.Errorf("the active one initialised %d times, the others %d times; status %+v", own.takeovers(), others.takeovers(), s)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// A canald that was stopped between being given its turn and using it must not fence the
// one that took over meanwhile, even if it has not heard from the group since.
func TestATurnThatIsOverIsNotUsed(t *testing.T) {
	b := newBench(t)
	b.quick()
	b.script.random(newRand(t), 20, 20, "trades")
	slow, own := new(faultyDialer), new(faultyDialer)
	var asked atomic.Int32
	reached, goOn, hears := make(chan struct{}), make(chan struct{}), make(chan struct{})
	slow.before = func(key int16) bool {
		select {
		case <-reached:
			if key == apiHeartbeat {
				<-hears
			}
		default:
		}
		return false
	}
	late := b.named("late", func(c *Copier) {
		c.dialer = slow
		read := c.readStore
		c.readStore = func(ctx context.Context) (storeInfo, error) {
			if asked.Add(1) == 2 { // the first is before it joins
				close(reached)
				<-goOn
			}
			return read(ctx)
		}
	})
	stopLate := b.run(late)
	<-reached
	heir := b.named("heir", func(c *Copier) { c.dialer = own })
	stopHeir := b.run(heir)
	b.await(heir)
	close(goOn)
	eventually(t, func() error {
		if slow.requests(apiDescribeConfigs) == 0 { // the last one before it takes over
			return errors.New("late has not gone on")
		}
		return nil
	})
	for range 20 {
		b.script.random(newRand(t), 20, 20, "trades")
		b.await(heir)
	}
	close(hears)
	b.awaitState(late, Standby, "heir")
	if slow.takeovers() != 0 || own.takeovers() != 1 {
		t.Errorf("the late one initialised %d times, the heir %d times", slow.takeovers(), own.takeovers())
	}
	if err := errors.Join(stopLate(), stopHeir()); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// A logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Whoever wakes up after a long time may meet any fault before it hears from the group. What
// it says in the end is that it was away, not the fault.
func TestACanaldThatWasFrozenSaysSoWhateverItMeetsFirst(t *testing.T) {
	b := newBench(t)
	b.quick()
	b.script.random(newRand(t), 20, 20, "trades")
	d, log := new(faultyDialer), new(logBook)
	froze, hears := make(chan struct{}), make(chan struct{})
	d.before = func(key int16) bool {
		select {
		case <-froze:
			if key == apiHeartbeat {
				<-hears
			}
		default:
		}
		return false
	}
	sleeper := b.named("sleeper", func(c *Copier) { c.dialer, c.log = d, slog.New(slog.NewTextHandler(log, nil)) })
	stopSleeper := b.run(sleeper)
	b.t.Cleanup(d.thaw)
	b.await(sleeper)
	heir := b.named("heir")
	stopHeir := b.run(heir)
	b.awaitState(heir, Standby, "sleeper")
	d.freeze()
	close(froze)
	b.script.end(errors.New("stream lost"))
	eventually(t, func() error {
		if s := heir.Status(); s.Active != "heir" {
			return fmt.Errorf("the heir: %+v", s)
		}
		return nil
	})
	b.script.end(nil)
	d.thaw()
	eventually(t, func() error {
		if s := sleeper.Status(); s.LastError != "stream lost" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	close(hears)
	b.awaitState(sleeper, Standby, "heir")
	const away = "this canald was stopped, or cut off from Kafka"
	if s := sleeper.Status(); !strings.Contains(s.LastError, away) || !strings.Contains(log.String(), away) {
		t.Errorf("it says %q, and in its log:\n%s", s.LastError, log)
	}
	if err := errors.Join(stopSleeper(), stopHeir()); err != nil {
		t.Fatal(err)
	}
}

// A canald that cannot reach the store is not in the group, so that one that can is active.
func TestACanaldWithoutTheStoreLeavesTheTurnToAnother(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	var cut atomic.Bool
	first := b.named("first", func(c *Copier) {
		read := c.readStore
		c.readStore = func(ctx context.Context) (storeInfo, error) {
			if cut.Load() {
				return storeInfo{}, errors.New("no route to the store")
			}
			return read(ctx)
		}
	})
	stopFirst := b.run(first)
	b.await(first)
	second := b.named("second")
	stopSecond := b.run(second)
	b.awaitState(second, Standby, "first")
	cut.Store(true)
	b.script.end(errors.New("stream lost")) // the next run begins with a question to the store
	b.awaitState(first, Waiting, "")
	b.script.end(nil)
	b.script.random(newRand(t), 20, 20, "trades")
	b.await(second)
	cut.Store(false)
	b.awaitState(first, Standby, "second")
	if err := errors.Join(stopFirst(), stopSecond()); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// A program of another kind in the group, and sessions that the brokers do not allow, are
// for an operator to mend.
func TestWhatTheGroupRefusesHaltsWithTheRepair(t *testing.T) {
	b := newBench(t)
	b.createTopic(b.prefix+"other", 1, nil)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumerGroup(b.config.Cluster+"/"+b.storeID), kgo.ConsumeTopics(b.prefix+"other"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	eventually(t, func() error {
		if _, generation := cl.GroupMetadata(); generation < 1 {
			return errors.New("not joined yet")
		}
		return nil
	})
	b.mustHalt(b.copier(), ErrConfig, ReasonConfig, "another program is in the consumer group")

	other := newBench(t)
	other.session = 100 * time.Millisecond
	other.mustHalt(other.copier(), ErrConfig, ReasonConfig, "group.min.session.timeout.ms")
}

// A pair is two canalds of one store, which get into trouble.
type pair struct {
	b         *bench
	r         *rand.Rand
	nodes     [2]*node
	started   int
	takeovers int // of nodes that are gone
}

type node struct {
	client string // its name for Kafka
	dialer *faultyDialer
	copier *Copier
	stop   func() error
	armed  atomic.Pointer[trap]
}

func (p *pair) start(i int) {
	p.started++
	n := &node{dialer: new(faultyDialer), client: fmt.Sprintf("canald-%d-%d", i, p.started)}
	hook := func(after bool) func(int16) bool {
		return func(key int16) bool {
			trap := n.armed.Load()
			return trap != nil && trap.after == after && trap.springs(key) && !n.dialer.isFrozen()
		}
	}
	n.dialer.before, n.dialer.after = hook(false), hook(true)
	n.copier = p.b.named(fmt.Sprintf("canald-%d", i), func(c *Copier) {
		c.dialer, c.config.Kafka.ClientID = n.dialer, n.client
	})
	n.stop = p.b.run(n.copier)
	p.b.t.Cleanup(n.dialer.thaw)
	p.nodes[i] = n
}

func (p *pair) end(n *node) {
	p.b.t.Helper()
	n.dialer.thaw()
	if err := n.stop(); err != nil {
		p.b.t.Fatal(err)
	}
	p.takeovers += n.dialer.takeovers()
}

// bury makes sure that the group forgets a dead canald. kfake counts no session of a member whose connection was cut
// while it waited for others to join.
func (p *pair) bury(n *node) {
	p.b.t.Helper()
	select {
	case <-time.After(2 * p.b.session):
	case <-p.b.t.Context().Done():
	}
	if p.b.evict(n.client) > 0 {
		p.b.t.Logf("%s did not leave the group by itself", n.client)
	}
}

// caughtUp tells whether one of the two has copied everything.
func (p *pair) caughtUp() bool {
	return p.b.behind(p.nodes[0].copier) == nil || p.b.behind(p.nodes[1].copier) == nil
}

func (p *pair) awaitCaughtUp() {
	p.b.t.Helper()
	eventually(p.b.t, func() error {
		if p.caughtUp() {
			return nil
		}
		return fmt.Errorf("%+v and %+v", p.nodes[0].copier.Status(), p.nodes[1].copier.Status())
	})
}

// atAnyRequest does something when the node makes one of its next requests that write, or
// when all is copied.
func (p *pair) atAnyRequest(n *node, do func()) {
	p.b.t.Helper()
	sprung := make(chan struct{})
	trap := randomTrap(p.r)
	trap.do = func() { do(); close(sprung) }
	n.armed.Store(trap)
	p.b.script.random(p.r, 20, 60, "trades", "news")
	eventually(p.b.t, func() error {
		select {
		case <-sprung:
			return nil
		default:
		}
		if !p.caughtUp() {
			return errors.New("neither sprung nor caught up")
		}
		return nil
	})
	n.armed.Store(nil)
	trap.once.Do(trap.do)
}

// trouble gets one of the two, mostly the active one, into trouble of some kind and out again.
func (p *pair) trouble() (kind string) {
	p.b.t.Helper()
	i := p.r.IntN(2)
	if p.nodes[1-i].copier.Status().State == Copying && p.r.IntN(4) > 0 {
		i = 1 - i
	}
	n, other := p.nodes[i], p.nodes[1-i]
	switch p.r.IntN(5) {
	case 0:
		p.atAnyRequest(n, func() { n.dialer.cut(true) })
		p.end(n)
		p.start(i)
		p.bury(n)
		return "killed"
	case 1:
		p.end(n)
		p.start(i)
		return "ended"
	case 2:
		p.atAnyRequest(n, n.dialer.freeze)
		p.b.script.random(p.r, 20, 60, "trades", "news")
		eventually(p.b.t, func() error { return p.b.behind(other.copier) })
		n.dialer.thaw()
		return "stopped until the other one had taken over"
	case 3:
		p.atAnyRequest(n, n.dialer.freeze)
		p.b.script.random(p.r, 20, 60, "trades", "news")
		n.dialer.thaw()
		return "stopped for a moment"
	}
	p.atAnyRequest(n, func() { n.dialer.cut(false) })
	return "cut off for a moment"
}

// Two canalds are killed, ended, and stopped for shorter and longer than the group waits, at
// any request and in any order. What is in Kafka stays exact, and one of them always goes on.
func TestTwoCanaldsInAnyTroubleNothingIsLostOrRepeated(t *testing.T) {
	b := newBench(t)
	b.quick()
	b.config.BatchRecords, b.config.Linger = 40, time.Millisecond
	b.config.TransactionTimeout = patience // so that nothing but fencing ends a transaction
	p := &pair{b: b, r: newRand(t)}
	p.start(0)
	p.start(1)
	rounds := 12 * soak()
	for range rounds {
		t.Log(p.trouble())
		b.script.random(p.r, 20, 60, "trades", "news")
		p.awaitCaughtUp()
	}
	for _, n := range p.nodes {
		p.end(n)
	}
	if p.takeovers < rounds/6 {
		t.Errorf("only %d takeovers in %d rounds", p.takeovers, rounds)
	}
	b.check()
}
