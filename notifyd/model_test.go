package notifyd_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// The model runs real brokers on one real store through a random schedule: publishes, delayed ones,
// halves, outbox rows, acknowledgements, failures, rejections, silence and extensions, redrives and purges, groups that come
// and go, one with a filter and one that is broadcast to; and beside it brokers that die without grace, that stop, that freeze
// until others have their shards and then go on with what they had begun, and connections that are cut wherever they are. At the
// end every message that was acknowledged was acknowledged by every group in force, or was its dead letter, and nothing is left
// of it. What was rolled back, or is not wanted by a filter, is never delivered; what is broadcast leaves no row.

const (
	// modelRounds is how many schedules there are, modelAtOnce how many run side by side.
	modelRounds = 3
	modelAtOnce = 3
	// modelTime is for how long things happen in one schedule.
	modelTime = 4 * time.Second
	// modelLease is the brokers' lease time, modelFreeze how long one freezes.
	modelLease  = time.Second
	modelFreeze = 1700 * time.Millisecond
	// modelAckWait is the brokers' ack wait.
	modelAckWait = 300 * time.Millisecond
)

// modelSeeds are those of the schedules to run: NOTIFY_SEED is one, NOTIFY_SOAK as many times more.
func modelSeeds(t *testing.T) (seeds []uint64) {
	if text := os.Getenv("NOTIFY_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	soak, err := strconv.Atoi(os.Getenv("NOTIFY_SOAK"))
	if err != nil {
		soak = 1
	}
	for range modelRounds * max(1, soak) {
		seeds = append(seeds, rand.Uint64())
	}
	return seeds
}

func TestWhateverHappensEveryMessageIsSettledByEveryGroup(t *testing.T) {
	seeds := modelSeeds(t)
	for part := range slices.Chunk(seeds, modelAtOnce) {
		t.Run("schedules", func(t *testing.T) {
			for _, seed := range part {
				t.Run(fmt.Sprintf("NOTIFY_SEED=%d", seed), func(t *testing.T) {
					t.Parallel()
					newModel(t, seed).play()
				})
			}
		})
	}
}

// A model is one schedule.
type model struct {
	*stage
	r       *rand.Rand // of the schedule; the handlers have their own
	seed    uint64
	began   time.Time
	brokers []*modelBroker
	client  *client.Client
	all     sync.WaitGroup // publishes under way

	mu     sync.Mutex
	final  bool                       // every handler acknowledges
	groups map[string]bool            // in force
	owed   map[string]map[string]bool // id: groups
	done   map[modelDelivery]bool     // acknowledged, or perhaps purged
	never  map[string]bool            // ids of what was rolled back
	tries  map[modelDelivery]int
	reject []modelDelivery // rejected
	log    []string
}

type modelDelivery struct{ id, group string }

// A modelBroker is a broker that its clients and its store reach through gates.
type modelBroker struct {
	name        string
	front, back *gate
	stop        func() // nil: it is dead
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{stage: newStage(t), r: rand.New(rand.NewPCG(seed, 0)), seed: seed, began: time.Now(),
		groups: map[string]bool{}, owed: map[string]map[string]bool{}, done: map[modelDelivery]bool{}, never: map[string]bool{}, tries: map[modelDelivery]int{}}
	cfg, err := mysql.ParseDSN(m.dsn)
	if err != nil {
		t.Fatal(err)
	}
	var fronts []string
	for i := range 3 {
		b := &modelBroker{name: fmt.Sprintf("broker-%d", i), front: newGate(t, ""), back: newGate(t, cfg.Addr)}
		m.brokers = append(m.brokers, b)
		fronts = append(fronts, b.front.addr)
		m.start(b)
	}
	m.client = m.stage.client(fronts...)
	t.Cleanup(func() {
		for _, b := range m.brokers {
			m.kill(b)
		}
	})
	return m
}

func (m *model) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf("%5d ms  ", time.Since(m.began).Milliseconds())+fmt.Sprintf(format, args...))
}

// start runs a broker behind its gates.
func (m *model) start(b *modelBroker) {
	cfg, err := mysql.ParseDSN(m.dsn)
	if err != nil {
		m.t.Fatal(err)
	}
	b.back.unfreeze()
	b.front.unfreeze()
	b.back.open(cfg.Addr)
	cfg.Net, cfg.Addr = "tcp", b.back.addr
	broker, err := notifyd.New(notifyd.Config{ID: b.name, Listen: "127.0.0.1:0", Advertise: b.front.addr,
		Stores: map[string]notifyd.StoreConfig{"a": {DSN: cfg.FormatDSN()}}, LeaseTime: notifyd.Duration(modelLease),
		AckWait: notifyd.Duration(modelAckWait), RetryMin: notifyd.Duration(100 * time.Millisecond), RetryMax: notifyd.Duration(400 * time.Millisecond),
		MaxAttempts: 5, RedriveRate: 1000}, notifyd.Deps{})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); broker.Run(ctx) }() // one that is killed ends with an error
	b.stop = func() { cancel(); <-ended }
	m.until(b.name+" is ready", func() bool { return broker.Ready() == nil })
	b.front.open(broker.Addr())
}

// kill is a broker's sudden death: nobody hears of it again.
func (m *model) kill(b *modelBroker) {
	if b.stop == nil {
		return
	}
	for _, g := range []*gate{b.front, b.back} {
		g.open("")
		g.cut()
		g.unfreeze()
	}
	b.stop()
	b.stop = nil
}

// admin calls the administration of any broker until one answers.
func (m *model) admin(what string, f func(context.Context, notifyv1connect.AdminClient) error) {
	m.t.Helper()
	var last error
	m.until(what, func() bool {
		ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
		defer cancel()
		last = m.client.Admin(ctx, func(a notifyv1connect.AdminClient) error { return f(ctx, a) })
		if last != nil && connect.CodeOf(last) == connect.CodeAlreadyExists {
			last = nil
		}
		return last == nil
	})
}

func (m *model) addGroup(sub *notifyv1.Subscription) {
	name := sub.Group
	sub.Topic = "t"
	m.admin("group "+name, func(ctx context.Context, a notifyv1connect.AdminClient) error {
		_, err := a.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: sub}))
		return err
	})
	if sub.Mode != notifyv1.Mode_MODE_BROADCAST { // which is owed nothing
		m.mu.Lock()
		m.groups[name] = true
		m.mu.Unlock()
	}
	m.note("group %s is in force", name)
	for i := range 2 {
		m.attachModel(name, i)
	}
}

func (m *model) dropGroup(name string) {
	m.mu.Lock()
	delete(m.groups, name)
	for _, owed := range m.owed {
		delete(owed, name)
	}
	m.mu.Unlock()
	m.note("group %s is dropped", name)
	m.admin("drop of "+name, func(ctx context.Context, a notifyv1connect.AdminClient) error {
		_, err := a.DropGroup(ctx, connect.NewRequest(&notifyv1.DropGroupRequest{Name: name}))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil
		}
		return err
	})
}

// attachModel runs an instance of a group, until the group is dropped.
func (m *model) attachModel(group string, number int) {
	con, err := m.client.NewConsumer(client.ConsumerConfig{Group: group, Instance: fmt.Sprint(group, number), Refresh: 100 * time.Millisecond, Drain: time.Millisecond,
		Handler: func(_ context.Context, d client.Delivery) error { return m.handle(modelDelivery{d.ID, group}, d) }})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); con.Run(ctx) }() // it ends by itself when its group is dropped
	m.t.Cleanup(func() { cancel(); <-ended })
}

// stored notes an acknowledged message, with the groups that were in force before it was sent, are still, and want it.
func (m *model) stored(id, kind string, before map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owed := map[string]bool{}
	for g := range before {
		if m.groups[g] && modelWants(g, kind) {
			owed[g] = true
		}
	}
	m.owed[id] = owed
}

func (m *model) inForce() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.groups)
}

// send does f in the background: the schedule goes on while a broker does not answer.
func (m *model) send(f func(ctx context.Context)) {
	m.all.Go(func() {
		ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
		defer cancel()
		f(ctx)
	})
}

// fault lets something happen to a broker. One that died or froze is well again before the next.
func (m *model) fault() {
	b := m.brokers[m.r.IntN(len(m.brokers))]
	switch n := m.r.IntN(10); {
	case n < 2:
		m.note("%s is killed", b.name)
		m.kill(b)
		m.start(b)
	case n < 3:
		m.note("%s is stopped", b.name)
		b.stop()
		m.start(b)
	case n < 6:
		m.note("%s freezes", b.name)
		m.freeze(b, modelFreeze)
	case n < 8:
		m.note("%s stands still", b.name)
		m.freeze(b, time.Duration(50+m.r.IntN(500))*time.Millisecond)
	default:
		m.note("the connections of %s to its store are cut", b.name)
		b.back.cut()
	}
}

func (m *model) freeze(b *modelBroker, d time.Duration) {
	b.front.freeze()
	b.back.freeze()
	<-time.After(d)
	b.back.unfreeze()
	b.front.unfreeze()
	m.note("%s goes on", b.name)
}

// play runs the schedule, then lets everything come to rest.
func (m *model) play() {
	defer m.report()
	m.admin("topic", func(ctx context.Context, a notifyv1connect.AdminClient) error {
		_, err := a.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: "t"}}))
		return err
	})
	m.addGroup(&notifyv1.Subscription{Group: "a"})
	m.addGroup(&notifyv1.Subscription{Group: "b"})
	m.addGroup(&notifyv1.Subscription{Group: "chooses", Filter: `headers.kind == "x"`})
	m.addGroup(&notifyv1.Subscription{Group: "all", Mode: notifyv1.Mode_MODE_BROADCAST})
	var faults sync.WaitGroup
	over := time.Now().Add(modelTime)
	r := rand.New(rand.NewPCG(m.r.Uint64(), 1)) // of the traffic: faults take the other, each by its own goroutine
	faults.Go(func() {
		for time.Now().Before(over) {
			m.fault()
			<-time.After(time.Duration(m.r.IntN(200)) * time.Millisecond)
		}
	})
	dropAt, addAt := m.began.Add(modelTime/3+time.Duration(r.Int64N(int64(modelTime/3)))), m.began.Add(time.Duration(r.Int64N(int64(modelTime))))
	for time.Now().Before(over) {
		m.traffic(r)
		if !addAt.IsZero() && time.Now().After(addAt) {
			m.addGroup(&notifyv1.Subscription{Group: "c"})
			addAt = time.Time{}
		}
		if !dropAt.IsZero() && time.Now().After(dropAt) {
			m.dropGroup("b")
			dropAt = time.Time{}
		}
		<-time.After(time.Duration(r.IntN(40)) * time.Millisecond)
	}
	faults.Wait()
	m.all.Wait()
	m.rest()
}

// rest decides the halves that are left, redrives every dead letter, and waits until nothing is left.
func (m *model) rest() {
	m.note("nothing happens any more")
	m.mu.Lock()
	m.final = true
	m.mu.Unlock()
	m.until("nothing is left", func() bool {
		if m.rows("half") > 0 {
			m.decideHalves()
		}
		if m.rows("dead_letter") > 0 {
			m.admin("redrive", func(ctx context.Context, a notifyv1connect.AdminClient) error {
				_, err := a.RedriveDeadLetters(ctx, connect.NewRequest(&notifyv1.ChangeDeadLettersRequest{All: true}))
				return err
			})
		}
		return m.rows("message")+m.rows("pending")+m.rows("dead_letter")+m.rows("half")+m.count("SELECT COUNT(*) FROM outbox") == 0
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, owed := range m.owed {
		for g := range owed {
			if !m.done[modelDelivery{id, g}] {
				m.t.Errorf("message %s was lost to group %s", id, g)
			}
		}
	}
}

func (m *model) decideHalves() {
	m.admin("halves", func(ctx context.Context, a notifyv1connect.AdminClient) error {
		list, err := a.ListHalves(ctx, connect.NewRequest(&notifyv1.ListHalvesRequest{}))
		if err != nil {
			return err
		}
		for i, h := range list.Msg.GetHalves() {
			d := notifyv1.Decision_DECISION_COMMIT
			if i%2 == 0 {
				d = notifyv1.Decision_DECISION_ROLLBACK
			}
			if _, err := a.DecideHalf(ctx, connect.NewRequest(&notifyv1.DecideHalfRequest{Id: h.GetMessage().GetId(), Decision: d})); err != nil && connect.CodeOf(err) != connect.CodeFailedPrecondition {
				return err
			}
		}
		return nil
	})
}

// report tells what happened when the schedule failed, and why what is left waits.
func (m *model) report() {
	if !m.t.Failed() {
		m.t.Logf("%d messages, %d deliveries", len(m.owed), len(m.tries))
		return
	}
	m.mu.Lock()
	lines := slices.Clone(m.log)
	m.mu.Unlock()
	m.t.Log("\n" + strings.Join(lines, "\n"))
	for no := range 8 {
		for _, table := range []string{"pending", "dead_letter"} {
			left := m.column(fmt.Sprintf("SELECT LOWER(HEX(m.id)) FROM message_%02d m JOIN %s_%02d x ON x.pos = m.pos LIMIT 3", no, table, no))
			for _, id := range left {
				m.explain(id)
			}
		}
	}
}

func (m *model) column(query string) (out []string) {
	rows, err := m.db.Query(query)
	if err != nil {
		m.t.Log(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if rows.Scan(&s) == nil {
			out = append(out, s)
		}
	}
	return out
}

// explain asks every broker about a message that is left.
func (m *model) explain(id string) {
	for _, b := range m.brokers {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		res, err := notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+b.front.addr).ShowMessage(ctx, connect.NewRequest(&notifyv1.ShowMessageRequest{Id: id}))
		cancel()
		if err != nil {
			m.t.Logf("%s by %s: %v", id, b.name, err)
			continue
		}
		m.t.Logf("%s by %s: %s", id, b.name, res.Msg.GetWhy())
		for _, s := range res.Msg.GetStored() {
			for _, g := range s.GetGroups() {
				m.t.Logf("    shard %d, owner %s: %s: %s, %d attempts: %s", s.GetShard(), s.GetOwner(), g.GetGroup(), g.GetState(), g.GetAttempts(), g.GetWhy())
			}
		}
	}
}
