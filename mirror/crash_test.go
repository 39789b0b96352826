package mirror

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A trap springs at the n-th request of one kind, before it is sent or after.
type trap struct {
	key   int16
	nth   int
	after bool
	once  sync.Once
	seen  int
	mu    sync.Mutex
	do    func()
}

func (p *trap) set(d *faultyDialer) {
	if p.after {
		d.after = p.springs
	} else {
		d.before = p.springs
	}
}

func (p *trap) springs(key int16) bool {
	if key != p.key {
		return false
	}
	p.mu.Lock()
	p.seen++
	spring := p.seen == p.nth
	p.mu.Unlock()
	if spring {
		p.once.Do(p.do)
	}
	return spring
}

func randomTrap(r *rand.Rand) *trap {
	keys := []int16{apiProduce, apiAddPartitions, apiEndTxn}
	return &trap{key: keys[r.IntN(len(keys))], nth: 1 + r.IntN(6), after: r.IntN(2) == 0}
}

// A killed canald leaves its Kafka transaction open, or its commit unanswered. Each next
// one must go on exactly where Kafka says that the last one came.
func TestKilledAtAnyRequestNothingIsLostOrRepeated(t *testing.T) {
	r := newRand(t)
	b := newBench(t)
	b.config.BatchRecords, b.config.Linger = 40, time.Millisecond
	b.script.random(r, 60, 100, "trades", "news")
	kills := 0
	rounds := 15 * soak()
	for range rounds {
		d, p := new(faultyDialer), randomTrap(r)
		dead := make(chan struct{})
		p.do = func() { d.cut(true); close(dead) }
		p.set(d)
		c := b.copier(func(c *Copier) { c.dialer = d })
		stop := b.run(c)
		eventually(t, func() error {
			select {
			case <-dead:
				return nil
			default:
				return b.behind(c)
			}
		})
		select {
		case <-dead:
			kills++
			b.script.random(r, 5, 100, "trades", "late")
		default:
		}
		if err := stop(); err != nil {
			t.Fatalf("kill %d at %+v: %v", kills, p.key, err)
		}
		b.evict("")
	}
	if kills < rounds/3 {
		t.Fatalf("only %d kills in %d rounds", kills, rounds)
	}
	c := b.copier()
	stop := b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// The same process goes on when its connections break: it reads the checkpoint again.
func TestConnectionsCutAtAnyRequestNothingIsLostOrRepeated(t *testing.T) {
	r := newRand(t)
	b := newBench(t)
	b.config.BatchRecords, b.config.Linger = 40, time.Millisecond
	b.script.random(r, 100*soak(), 60, "trades", "news")
	d := new(faultyDialer)
	var mu sync.Mutex
	cuts := 0
	hook := func(key int16) bool {
		mu.Lock()
		defer mu.Unlock()
		if (key == apiProduce || key == apiAddPartitions || key == apiEndTxn) && cuts < 30*soak() && r.IntN(4) == 0 {
			cuts++
			d.cut(false)
			return true
		}
		return false
	}
	d.before, d.after = hook, hook
	c := b.copier(func(c *Copier) { c.dialer = d })
	stop := b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if cuts < 10 {
		t.Fatalf("only %d cuts", cuts)
	}
	if got := testutil.ToFloat64(c.metrics.buffered); got != 0 {
		t.Fatalf("%f bytes are still counted as buffered", got)
	}
	b.check()
}

// A canald that was stopped while another took over must not write when it goes on. It says
// what happened to it, and stands by; when the other one ends, it is its turn again.
func TestZombieIsFencedSaysSoAndStandsBy(t *testing.T) {
	b := newBench(t)
	b.quick()
	b.config.Linger = time.Millisecond
	b.script.random(newRand(t), 50, 20, "trades")
	d := new(faultyDialer)
	var asleep atomic.Bool
	reached := make(chan struct{})
	var once sync.Once
	d.before = func(key int16) bool {
		if key == apiEndTxn && asleep.Load() {
			once.Do(func() { d.freeze(); close(reached) })
		}
		return false
	}
	zombie := b.named("zombie", func(c *Copier) { c.dialer = d })
	stopZombie := b.run(zombie)
	b.await(zombie)
	heir := b.named("heir")
	stopHeir := b.run(heir)
	b.awaitState(heir, Standby, "zombie")
	asleep.Store(true)
	b.script.random(newRand(t), 50, 20, "trades")
	<-reached

	b.await(heir)
	before := d.takeovers()
	d.thaw()
	b.awaitState(zombie, Standby, "heir")
	if n := d.takeovers() - before; n > 0 {
		t.Errorf("the zombie tried to take over %d times", n)
	}
	if s := zombie.Status(); !strings.Contains(s.LastError, "this canald was stopped, or cut off from Kafka") {
		t.Errorf("the zombie says %q", s.LastError)
	}
	if err := zombie.Ready(); err != nil {
		t.Error(err)
	}
	b.script.random(newRand(t), 10, 20, "trades")
	b.await(heir)
	if err := stopHeir(); err != nil {
		t.Fatal(err)
	}
	b.script.random(newRand(t), 10, 20, "trades")
	b.await(zombie)
	if err := stopZombie(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// Kafka fences a producer whose transaction lasted too long, with no rival about.
func TestTransactionTimedOutByKafkaIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	b.config.TransactionTimeout, b.config.Linger = time.Second, time.Millisecond
	d := new(faultyDialer)
	var held atomic.Int32
	d.before = func(key int16) bool {
		if key == apiEndTxn && held.Add(1) == 3 {
			awaitAborted(b)
		}
		return false
	}
	c := b.copier(func(c *Copier) { c.dialer = d })
	stop := b.run(c)
	for range 5 {
		b.script.random(newRand(t), 5, 20, "trades")
		b.await(c)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// awaitAborted waits until Kafka gave up the bench's open transaction.
func awaitAborted(b *bench) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Error(err)
		return
	}
	defer cl.Close()
	id := b.config.Cluster + "/" + b.storeID
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		txns, err := kadm.NewClient(cl).DescribeTransactions(b.t.Context(), id)
		if err != nil {
			b.t.Error(err)
			return
		}
		if s := txns[id].State; s != "Ongoing" && !strings.HasPrefix(s, "Prepare") {
			return
		}
	}
	b.t.Error("Kafka did not time the transaction out")
}

// A first start that was killed before its first commit leaves aborted records behind;
// that is still a first start.
func TestFirstStartKilledBeforeItsFirstCommitIsAFirstStart(t *testing.T) {
	b := newBench(t)
	b.script.random(newRand(t), 20, 20, "trades")
	d := new(faultyDialer)
	dead := make(chan struct{})
	p := &trap{key: apiEndTxn, nth: 1, do: func() { d.cut(true); close(dead) }}
	p.set(d)
	stop := b.run(b.copier(func(c *Copier) { c.dialer = d }))
	<-dead
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.evict("")
	c := b.copier()
	stop = b.run(c)
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// While Kafka is away the mirror waits, and says so once.
func TestKafkaAwayIsWaitedForAndShown(t *testing.T) {
	b := newBench(t)
	d := new(faultyDialer)
	d.cut(true)
	c := b.copier(func(c *Copier) { c.dialer = d })
	stop := b.run(c)
	eventually(t, func() error {
		if s := c.Status(); s.State != Waiting || s.LastError == "" || c.Ready() == nil {
			return fmt.Errorf("status %+v, ready %v", s, c.Ready())
		}
		return nil
	})
	b.script.random(newRand(t), 20, 20, "trades")
	d.revive()
	b.await(c)
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// Kafka is stopped and started under load; the mirror stays up.
func TestKafkaRestartedNothingIsLostOrRepeated(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	k := startProcess(t, dir, "")
	b.brokers = []string{k.addr}
	b.config.Kafka.Brokers = b.brokers
	b.config.BatchRecords, b.config.Linger = 40, time.Millisecond
	r := newRand(t)
	c := b.copier()
	stop := b.run(c)
	for range 3 {
		b.script.random(r, 30, 60, "trades", "news")
		k.stop()
		b.script.random(r, 10, 60, "trades", "news")
		k = startProcess(t, dir, k.addr)
		b.await(c)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.check()
}
