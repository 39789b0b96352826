package mirror

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/notifyd/embedded/dbtest"
	published "notifymirror/notifyd/message"
	"notifymirror/notifyd/outbox"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A random order of everything that brokers and applications do with messages that are none
// yet: prepare, also twice and in two shards, decide, also again and otherwise, insert into the
// outbox, commit late or never, relay, reject, resubmit, lose a shard in the middle. At every
// halt the mirror has exactly the messages whose transaction has committed, each once.
func TestHalvesAndOutboxRowsAreMirroredFromTheirCommitOnAndNotBefore(t *testing.T) {
	u := newUndecided(t)
	c := u.realCopier()
	stop := u.run(c)
	for range 12 * soak() {
		for range 25 {
			u.act()
		}
		if u.r.IntN(4) == 0 {
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			c = u.realCopier()
			stop = u.run(c)
		}
		u.halt()
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages, %d halves, %v acts", len(u.due), len(u.halves), u.acts)
}

// undecided is a store that a broker and an application work on, one step at a time.
type undecided struct {
	*storeBench
	r      *rand.Rand
	broker *store.Store
	shards []*tenure
	halves []*prepared
	open   []*sql.Tx          // an application's transactions, each with an outbox row
	due    map[uuid.UUID]bool // messages whose transaction has committed
	acts   map[string]int
}

// A tenure is the ownership of a shard.
type tenure struct {
	no    int
	epoch int64
	w     *store.Writer
	slot  *shard.Slot
}

type prepared struct {
	id       uuid.UUID
	shards   []int // where it stands
	decision store.Decision
}

func newUndecided(t *testing.T) *undecided {
	t.Helper()
	b := newStoreBench(t, dbtest.Start(t))
	u := &undecided{storeBench: b, r: newRand(t), due: map[uuid.UUID]bool{}, acts: map[string]int{}}
	cfg, err := mysql.ParseDSN(b.config.Stores["a"].DSN)
	if err != nil {
		t.Fatal(err)
	}
	if u.broker, err = store.Open(t.Context(), "a", b.server.DSN(cfg.DBName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.broker.Close)
	for no := range u.broker.Shards {
		u.shards = append(u.shards, u.take(store.Take{Shard: no}))
	}
	t.Cleanup(func() {
		for _, tx := range u.open {
			_ = tx.Rollback()
		}
	})
	return u
}

func (u *undecided) take(ask store.Take) *tenure {
	u.t.Helper()
	w, err := u.broker.NewWriter(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(w.Close)
	ask.Owner, ask.Lease, ask.Connections = "broker", time.Hour, []store.Connection{w.Connection()}
	taken, err := u.broker.Take(u.t.Context(), ask)
	if err != nil {
		u.t.Fatal(err)
	}
	return &tenure{no: ask.Shard, epoch: taken.Epoch, w: w, slot: shard.NewSlot(taken.Epoch)}
}

func (u *undecided) act() {
	u.t.Helper()
	acts := []struct {
		name string
		do   func()
	}{
		{"prepare", u.prepare}, {"prepare", u.prepare}, {"decide", u.decide}, {"decide", u.decide}, {"decide", u.decide},
		{"begin", u.begin}, {"begin", u.begin}, {"end", u.end}, {"relay", u.relay}, {"resubmit", u.resubmit},
		{"take over", u.takeOver}, {"tear", u.tear},
	}
	one := acts[u.r.IntN(len(acts))]
	u.acts[one.name]++
	one.do()
}

func (u *undecided) any() *tenure { return u.shards[u.r.IntN(len(u.shards))] }

// insert runs one item in a shard's transaction.
func (u *undecided) insert(at *tenure, it store.Item) (store.Verdict, error) {
	_, verdicts, err := at.w.Insert(u.t.Context(), &store.Insert{Shard: at.no, Epoch: at.epoch, Items: []store.Item{it}, Batch: store.NewBatch(), Begin: at.slot.Begin})
	if err != nil {
		at.slot.Rollback()
		return store.Verdict{}, err
	}
	at.slot.Commit()
	return verdicts[0], nil
}

func (u *undecided) must(v store.Verdict, err error) store.Verdict {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
	return v
}

func newMessage(body string) *published.Message {
	return &published.Message{ID: uuid.Must(uuid.NewV7()), Topic: "trades", Key: "k", Body: []byte(body), Mirrored: true}
}

// prepare sends a Prepare once, or twice, the second time to any shard.
func (u *undecided) prepare() {
	m := newMessage("half")
	p := &prepared{id: m.ID}
	for range 1 + u.r.IntN(2) {
		at := u.any()
		again := *m
		u.must(u.insert(at, store.Item{Msg: &again, Prepare: &store.Prepare{Group: "shop", CheckAfter: 1}}))
		p.shards = append(p.shards, at.no)
	}
	u.halves = append(u.halves, p)
}

// decide asks any shard for either decision of one of the newest halves, by one of its copies.
// Its turn comes several times, so that the decision is often not the first.
func (u *undecided) decide() {
	if len(u.halves) == 0 {
		return
	}
	p := u.halves[len(u.halves)-1-u.r.IntN(min(len(u.halves), 6))]
	d := []store.Decision{store.Committed, store.RolledBack}[u.r.IntN(2)]
	v := u.must(u.insert(u.any(), decision(p, p.shards[u.r.IntN(len(p.shards))], d)))
	switch {
	case p.decision == store.Undecided && v.Problem == nil:
		p.decision = d
		if d == store.Committed {
			u.due[p.id] = true
		}
	case p.decision == d && v.Problem == nil && v.Repeated:
	case p.decision != d && errors.Is(v.Problem, store.ErrDecidedOtherwise):
	default:
		u.t.Fatalf("%s of a half that is decided by %s: %+v", d, p.decision, v)
	}
}

func decision(p *prepared, at int, d store.Decision) store.Item {
	return store.Item{Decide: &store.Decide{Shard: at, ID: p.id, Group: "shop", Decision: d}}
}

// begin is an application that inserts into the outbox, and for now leaves it at that.
func (u *undecided) begin() {
	tx, err := u.db.Begin()
	if err != nil {
		u.t.Fatal(err)
	}
	m := outbox.Message{Topic: "trades", Body: []byte("outbox")}
	if u.r.IntN(5) == 0 {
		m.Topic = "nowhere"
	}
	if _, err := outbox.Insert(u.t.Context(), tx, m); err != nil {
		u.t.Fatal(err)
	}
	u.open = append(u.open, tx)
	if u.r.IntN(2) == 0 {
		u.end()
	}
}

// end commits or rolls back one of the application's transactions.
func (u *undecided) end() {
	if len(u.open) == 0 {
		return
	}
	i := u.r.IntN(len(u.open))
	end := u.open[i].Commit
	if u.r.IntN(3) == 0 {
		end = u.open[i].Rollback
	}
	if err := end(); err != nil {
		u.t.Fatal(err)
	}
	u.open = slices.Delete(u.open, i, i+1)
}

// relay moves what is visible in the outbox into a shard; rows of an unknown topic are put aside.
func (u *undecided) relay() {
	rows, err := u.broker.OutboxRows(u.t.Context(), 0, 1+u.r.IntN(10))
	if err != nil {
		u.t.Fatal(err)
	}
	at := u.any()
	var good []store.OutboxRow
	for _, row := range rows {
		if row.Msg.Topic == "nowhere" && u.r.IntN(3) > 0 {
			if err := at.w.Reject(u.t.Context(), at.no, at.epoch, row, "no such topic"); err != nil {
				u.t.Fatal(err)
			}
			continue
		}
		row.Msg.Mirrored = true
		good = append(good, row)
	}
	if len(good) == 0 {
		return
	}
	if _, _, err := at.w.Relay(u.t.Context(), at.no, at.epoch, good, at.slot.Begin); err != nil {
		u.t.Fatal(err)
	}
	at.slot.Commit()
	for _, row := range good {
		u.due[row.Msg.ID] = true
	}
}

func (u *undecided) resubmit() {
	rows, err := u.broker.ListRejected(u.t.Context(), 0, 100)
	if err != nil {
		u.t.Fatal(err)
	}
	if len(rows) == 0 {
		return
	}
	if err := u.broker.Resubmit(u.t.Context(), rows[u.r.IntN(len(rows))].Seq); err != nil {
		u.t.Fatal(err)
	}
}

// takeOver gives a shard to its next owner. The one before goes on with what it was about to do.
func (u *undecided) takeOver() {
	zombie := u.any()
	u.shards[zombie.no] = u.take(store.Take{Shard: zombie.no, Retake: zombie.epoch})
	if len(u.halves) > 0 {
		p := u.halves[u.r.IntN(len(u.halves))]
		if _, err := u.insert(zombie, decision(p, p.shards[0], store.Committed)); !errors.Is(err, store.ErrFenced) {
			u.t.Fatalf("a commit of the owner before ended with %v", err)
		}
	}
	rows, err := u.broker.OutboxRows(u.t.Context(), 0, 10)
	if err != nil {
		u.t.Fatal(err)
	}
	if len(rows) > 0 {
		if _, _, err := zombie.w.Relay(u.t.Context(), zombie.no, zombie.epoch, rows, zombie.slot.Begin); !errors.Is(err, store.ErrFenced) {
			u.t.Fatalf("a relay of the owner before ended with %v", err)
		}
	}
}

// tear is a broker that dies between the INSERT of its transaction and the COMMIT.
func (u *undecided) tear() {
	at, m := u.any(), newMessage("torn")
	tx, err := u.db.Begin()
	if err != nil {
		u.t.Fatal(err)
	}
	defer tx.Rollback()
	pos, err := at.slot.Begin(1)
	if err != nil {
		u.t.Fatal(err)
	}
	at.slot.Rollback()
	_, err = tx.Exec("INSERT INTO "+schema.Message(at.no)+" ("+schema.MessageColumnList+") VALUES (?, ?, ?, ?, '', ?, 1, "+schema.NowMicros+")",
		int64(pos), m.ID[:], m.Topic, m.Key, m.Body)
	if err != nil {
		u.t.Fatal(err)
	}
}

// halt publishes a message, waits until the mirror has it, and so everything that is before
// it in the binlog, and looks at what the mirror has.
func (u *undecided) halt() {
	u.t.Helper()
	mark := newMessage("mark")
	u.must(u.insert(u.any(), store.Item{Msg: mark}))
	u.due[mark.ID] = true
	times := map[uuid.UUID]int{}
	eventually(u.t, func() error {
		clear(times)
		for _, m := range u.oracle() {
			times[m.ID]++
		}
		if times[mark.ID] == 0 {
			return fmt.Errorf("the mark is not in the mirror")
		}
		for id := range u.due { // a topic made meanwhile is read the next time
			if times[id] == 0 {
				return fmt.Errorf("message %s is not in the mirror, and its transaction has committed", id)
			}
		}
		return nil
	})
	for id, n := range times {
		if n != 1 || !u.due[id] {
			u.t.Fatalf("message %s is %d times in the mirror; its transaction has committed: %t", id, n, u.due[id])
		}
	}
}
