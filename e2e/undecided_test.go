package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"notifymirror/e2e/stage"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/outbox"
	"notifymirror/notifyd/schema"
)

// Two brokers and a mirror are killed again and again while halves are prepared, also twice at
// two brokers, committed and rolled back at any broker, decided by check-back, parked and
// decided by hand, and applications insert into the outbox, commit late or never, and have
// rows rejected and resubmitted. The mirror has each message once from its commit on, and
// nothing else, ever.
func TestNothingUndecidedIsEverMirroredAndEachCommitIsOnce(t *testing.T) {
	u := newUndecided(t)
	for range 5 * stage.Soak() {
		for range 12 {
			u.act()
		}
		u.kill()
		for range 12 {
			u.act()
		}
		u.look()
	}
	u.finish()
}

const (
	// patience bounds a wait of this story.
	patience = 30 * time.Second
	// undeclared is a topic that is declared only late in the story.
	undeclared = "late"
)

// quickBrokers makes shards change hands soon, and checks come soon and end soon.
const quickBrokers = "lease_time: 2s\ncheck_after: 200ms\ncheck_max: 400ms\ncheck_budget: 2"

// undecided is a store, what is done to it, and what the mirror may and must have of it.
type undecided struct {
	*stage.Stage
	t            *testing.T
	r            *rand.Rand
	api          *stage.API
	client       *client.Client
	brokers      [2]*stage.Program
	canald       *stage.Program
	victims      []*stage.Program // in the order in which they are killed
	db           *sql.DB
	mirror       *stage.Reader
	halves       []*half
	open, relays []outboxRow // not committed; committed
	acts         map[string]int

	mu sync.Mutex // the check listener is another goroutine
	// may holds what the mirror may have from now on, must what it has once all is quiet.
	may, must map[string]bool
}

type half struct {
	id      string
	handles [][]byte // of each copy
	decided notifyv1.Decision
	// checked: the producer group knows what became of it, and says so when it is asked.
	checked bool
}

type outboxRow struct {
	tx    *sql.Tx
	id    string
	topic string
}

func newUndecided(t *testing.T) *undecided {
	t.Helper()
	s := stage.New(t)
	u := &undecided{Stage: s, t: t, r: stage.Random(t), api: s.API(), acts: map[string]int{}, may: map[string]bool{}, must: map[string]bool{}}
	for i, id := range []string{"a", "b"} {
		u.brokers[i] = s.Notifyd(id, quickBrokers).Start()
	}
	s.AwaitShards(time.Minute, u.brokers[0], u.brokers[1])
	u.canald = s.Canald("mirror").Start()
	u.client = s.Client(u.brokers[0], u.brokers[1])
	s.Topic(u.client, "orders")
	u.mirror, u.db = s.Mirror("orders", undeclared), s.Open()
	listener, err := u.client.NewCheckListener(client.CheckListenerConfig{Group: "shop", Refresh: time.Second, Drain: time.Second, Handler: u.check})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- listener.Run(ctx) }()
	t.Cleanup(func() {
		for _, row := range u.open {
			_ = row.tx.Rollback()
		}
		stop()
		if err := <-ran; err != nil {
			t.Errorf("check listener: %v", err)
		}
	})
	return u
}

// check is what the producer group answers: what a half's body says.
func (u *undecided) check(_ context.Context, c client.Check) (client.Decision, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch string(c.Body) {
	case "commit":
		u.may[c.ID] = true
		return client.Commit, nil
	case "rollback":
		return client.Rollback, nil
	}
	return client.Unknown, nil
}

func (u *undecided) act() {
	u.t.Helper()
	acts := []struct {
		name string
		do   func()
	}{
		{"prepare", u.prepare}, {"prepare", u.prepare}, {"prepare", u.prepare}, {"decide", u.decide}, {"decide", u.decide},
		{"begin", u.begin}, {"begin", u.begin}, {"end", u.end}, {"end", u.end}, {"resubmit", u.resubmit},
	}
	one := acts[u.r.IntN(len(acts))]
	u.acts[one.name]++
	one.do()
}

// call repeats a call, each time at any of the brokers, until it is answered.
func (u *undecided) call(what string, call func(context.Context, *stage.Program) error) notifyv1.Reason {
	u.t.Helper()
	return u.api.Call(patience, what, func(ctx context.Context) error { return call(ctx, u.brokers[u.r.IntN(2)]) })
}

// prepare sends a Prepare once or several times, to any broker each time.
func (u *undecided) prepare() {
	body := []string{"commit", "rollback", "not known", "not known"}[u.r.IntN(4)]
	h := &half{id: uuid.Must(uuid.NewV7()).String(), checked: body != "not known"}
	for range 1 + u.r.IntN(3) {
		var handle []byte
		reason := u.call("prepare", func(ctx context.Context, b *stage.Program) error {
			r, err := u.api.Messaging(b).Prepare(ctx, connect.NewRequest(&notifyv1.PrepareRequest{
				ProducerGroup: "shop", Message: &notifyv1.Message{Id: h.id, Topic: "orders", Body: []byte(body)}}))
			if err == nil {
				handle = r.Msg.GetHandle()
			}
			return err
		})
		switch {
		case reason == 0:
			h.handles = append(h.handles, handle)
		case reason == notifyv1.Reason_REASON_DECIDED_OTHERWISE && h.checked: // check-back was faster
		default:
			u.t.Fatalf("prepare of %s: %s", h.id, reason)
		}
	}
	u.halves = append(u.halves, h)
}

// decide asks for either decision of one of the newest halves of which the producer knows, by
// one of its copies; also again, and otherwise.
func (u *undecided) decide() {
	var ours []*half
	for _, h := range u.halves[max(0, len(u.halves)-12):] {
		if !h.checked {
			ours = append(ours, h)
		}
	}
	if len(ours) == 0 {
		return
	}
	h, d := ours[u.r.IntN(len(ours))], notifyv1.Decision(1+u.r.IntN(2))
	handle := h.handles[u.r.IntN(len(h.handles))]
	u.settle(h, d, func(ctx context.Context, b *stage.Program) error {
		req := connect.NewRequest(&notifyv1.DecideRequest{Handle: handle, ProducerGroup: "shop"})
		if d == notifyv1.Decision_DECISION_COMMIT {
			_, err := u.api.Messaging(b).Commit(ctx, req)
			return err
		}
		_, err := u.api.Messaging(b).Rollback(ctx, req)
		return err
	})
}

// settle asks for a decision, of which the first wins.
func (u *undecided) settle(h *half, d notifyv1.Decision, call func(context.Context, *stage.Program) error) {
	u.t.Helper()
	first := h.decided == notifyv1.Decision_DECISION_UNSPECIFIED
	if first && d == notifyv1.Decision_DECISION_COMMIT {
		u.allow(h.id)
	}
	want := notifyv1.Reason(0)
	if !first && d != h.decided {
		want = notifyv1.Reason_REASON_DECIDED_OTHERWISE
	}
	if got := u.call(d.String(), call); got != want {
		u.t.Fatalf("%s of half %s, which is decided by %s: %s", d, h.id, h.decided, got)
	}
	if first {
		h.decided = d
		u.must[h.id] = d == notifyv1.Decision_DECISION_COMMIT
	}
}

func (u *undecided) allow(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.may[id] = true
}

// begin is an application that inserts into the outbox, and has not decided yet.
func (u *undecided) begin() {
	tx, err := u.db.Begin()
	if err != nil {
		u.t.Fatal(err)
	}
	row := outboxRow{tx: tx, topic: "orders"}
	if u.r.IntN(4) == 0 {
		row.topic = undeclared
	}
	id, err := outbox.Insert(u.t.Context(), tx, outbox.Message{Topic: row.topic, Body: []byte("outbox")})
	if err != nil {
		u.t.Fatal(err)
	}
	row.id = id.String()
	u.open = append(u.open, row)
}

// end commits or rolls back one of the application's transactions.
func (u *undecided) end() {
	if len(u.open) == 0 {
		return
	}
	i := u.r.IntN(len(u.open))
	row := u.open[i]
	u.open = slices.Delete(u.open, i, i+1)
	if u.r.IntN(3) == 0 {
		if err := row.tx.Rollback(); err != nil {
			u.t.Fatal(err)
		}
		return
	}
	if row.topic != undeclared {
		u.allow(row.id)
		u.must[row.id] = true
	}
	if err := row.tx.Commit(); err != nil {
		u.t.Fatal(err)
	}
	u.relays = append(u.relays, row)
}

// resubmit puts a rejected row back into the outbox, too early as a rule. It is not called
// again when its answer was lost: the row may be in the outbox again.
func (u *undecided) resubmit() {
	var seq int64
	if err := u.db.QueryRow("SELECT COALESCE(MIN(seq), 0) FROM outbox_rejected").Scan(&seq); err != nil {
		u.t.Fatal(err)
	}
	if seq > 0 {
		ctx, cancel := context.WithTimeout(u.t.Context(), patience)
		defer cancel()
		_, _ = u.api.Admin(u.brokers[u.r.IntN(2)]).ResubmitRejected(ctx, connect.NewRequest(&notifyv1.ResubmitRejectedRequest{Seq: seq}))
	}
}

// kill kills one of the programs, each in its turn, and starts it again at once or after the
// others have gone on for a while.
func (u *undecided) kill() {
	if len(u.victims) == 0 {
		u.victims = []*stage.Program{u.brokers[0], u.brokers[1], u.canald}
		u.r.Shuffle(len(u.victims), func(i, j int) { u.victims[i], u.victims[j] = u.victims[j], u.victims[i] })
	}
	victim := u.victims[0]
	u.victims = u.victims[1:]
	u.acts["kill "+victim.ID]++
	victim.Kill()
	if u.r.IntN(2) == 0 {
		for range 6 {
			u.act()
		}
	}
	victim.Launch()
}

// look publishes a message and waits until the mirror has it, and so all that was committed
// before. The mirror must have what it must, and may not have what it may not.
func (u *undecided) look() {
	u.t.Helper()
	u.relayed()
	id := uuid.Must(uuid.NewV7()).String()
	u.allow(id)
	u.must[id] = true
	if _, err := u.client.Publish(u.t.Context(), client.Message{ID: id, Topic: "orders"}, client.PublishOptions{}); err != nil {
		u.t.Fatal(err)
	}
	u.mirror.AwaitID(id, patience)
	u.mirror.Rest()
	times := map[string]int{}
	for _, rec := range u.mirror.Records {
		times[stage.Header(rec, "notify-id")]++
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	faults := complaints{t: u.t}
	for id, n := range times {
		if n != 1 || !u.may[id] {
			faults.say("message %s is %d times in the mirror; its commit has been asked for: %t", id, n, u.may[id])
		}
	}
	for id, due := range u.must {
		if due && times[id] == 0 {
			faults.say("message %s is not in the mirror, and was committed", id)
		}
	}
	if u.t.Failed() {
		u.t.FailNow()
	}
}

// relayed waits until no committed row is in the outbox.
func (u *undecided) relayed() {
	u.t.Helper()
	stage.Eventually(u.t, patience, "outbox relayed", func() error {
		var n int
		if err := u.db.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d rows, error %v", n, err)
		}
		return nil
	})
}

// finish lets check-back come to its end, declares the topic that was missing, and decides
// half of what is left by hand. What is left then stays out of the mirror.
func (u *undecided) finish() {
	u.t.Helper()
	for len(u.open) > 0 {
		u.end()
	}
	u.look()
	u.Topic(u.client, undeclared)
	for _, row := range u.relays {
		if row.topic == undeclared {
			u.allow(row.id)
			u.must[row.id] = true
		}
	}
	// In one read, since a row can be rejected once more by a broker that has not heard of the topic.
	stage.Eventually(u.t, patience, "all rejected rows resubmitted and relayed", func() error {
		u.resubmit()
		var n int
		err := u.db.QueryRow("SELECT (SELECT COUNT(*) FROM outbox_rejected) + (SELECT COUNT(*) FROM outbox)").Scan(&n)
		if err != nil || n > 0 {
			return fmt.Errorf("%d rows, error %v", n, err)
		}
		return nil
	})
	stage.Eventually(u.t, patience, "all halves decided or parked", func() error {
		if n := u.count("SELECT COUNT(*) FROM half_%02d WHERE parked = 0"); n > 0 {
			return fmt.Errorf("%d halves are neither", n)
		}
		return nil
	})
	parked := u.count("SELECT COUNT(*) FROM half_%02d")
	left := 0
	for _, h := range u.halves {
		switch {
		case h.checked:
			u.mu.Lock()
			u.must[h.id] = u.may[h.id]
			u.mu.Unlock()
		case h.decided == notifyv1.Decision_DECISION_UNSPECIFIED && u.r.IntN(2) == 0:
			u.settle(h, notifyv1.Decision_DECISION_COMMIT, func(ctx context.Context, b *stage.Program) error {
				_, err := u.api.Admin(b).DecideHalf(ctx, connect.NewRequest(&notifyv1.DecideHalfRequest{Id: h.id, Decision: notifyv1.Decision_DECISION_COMMIT}))
				return err
			})
		case h.decided == notifyv1.Decision_DECISION_UNSPECIFIED:
			left++
		}
	}
	u.look()
	u.AwaitEmpty(patience)
	u.t.Logf("%d records; %d halves, of which %d copies were parked and %d halves stay so; %d outbox rows committed; %v", len(u.mirror.Records), len(u.halves), parked, left, len(u.relays), u.acts)
}

// count adds a count over the store's shards.
func (u *undecided) count(query string) (sum int) {
	u.t.Helper()
	for shard := range schema.DefaultShards {
		var n int
		if err := u.db.QueryRow(fmt.Sprintf(query, shard)).Scan(&n); err != nil {
			u.t.Fatal(err)
		}
		sum += n
	}
	return sum
}
