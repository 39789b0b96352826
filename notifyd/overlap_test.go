package notifyd

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// A first attempt may still run when its row is read: by then the row's own attempt decides, whatever the first one
// asks for, and the row is not read a third time.
func TestARowThatIsBeingDeliveredStaysSoWhateverAnEarlierAttemptDoes(t *testing.T) {
	for name, late := range map[string]func(o *owner, first *flight){
		"extended": func(o *owner, first *flight) {
			o.extended(first)
			o.failed(first, failure{err: failedNoAck, kind: kindTimeout})
		},
		"nacked": func(o *owner, first *flight) { o.failed(first, failure{err: "nack"}) },
		"ended":  func(o *owner, first *flight) { o.failed(first, failure{err: failedStreamEnded, kind: kindConnect}) },
	} {
		o := newTestOwner(shard.At(1, 5))
		o.registry.load().standard.retry = retryPolicy{min: 1, max: 1, attempts: 9}
		o.registry.load().policies = nil
		row := store.Due{Pos: shard.At(1, 1), Attempts: 1, Msg: &message.Message{ID: uuid.New(), Topic: "t"}}
		first := o.flight(o.registry.load(), shard.Delivery{Pos: row.Pos, Group: 1, Msg: row.Msg}, 1)
		first.inst = &instance{}
		d := newDrain()
		o.drains[1] = d
		if n := len(o.retries(d, 1, 0, []store.Due{row})); n != 1 {
			t.Fatalf("%s: %d attempts of a due row, want 1", name, n)
		}
		late(o, first)
		if s := o.settlement(settleBatch); s != nil {
			t.Errorf("%s: the settler writes %+v", name, s.Fails)
			o.settled(s)
		}
		o.mu.Lock()
		o.forgetWritten()
		o.mu.Unlock()
		if n := len(o.retries(d, 1, 0, []store.Due{row})); n != 0 {
			t.Errorf("%s: the row was delivered twice at once", name)
		}
	}
}

// By an older copy a sweep would take a group that was just added for a dropped one.
func TestANewerRegistryIsNotReplacedByAReadingThatBeganBeforeIt(t *testing.T) {
	view := func(version int64) *view { return &view{Registry: &store.Registry{Version: version}} }
	r := &registry{}
	one, two, three := view(1), view(2), view(3)
	r.take(nil, one)
	r.take(one, three)
	r.take(one, two) // read while three was
	if got := r.load().Version; got != 3 {
		t.Errorf("version %d is in force here, want 3", got)
	}
	r.take(nil, view(4)) // newer than what was read meanwhile
	if got := r.load().Version; got != 4 {
		t.Errorf("version %d is in force here, want 4", got)
	}
	r.take(r.load(), one) // the store was restored
	if got := r.load().Version; got != 1 {
		t.Errorf("version %d is in force here, want the one that the store has now", got)
	}
}

// What comes in behind the end of an ownership is not in the account of memory, which would stay full for ever.
func TestAnOwnershipThatIsOverTakesNoMemory(t *testing.T) {
	o := newTestOwner(shard.EpochStart(1))
	pos := shard.At(1, 1)
	o.mu.Lock()
	ds := o.ledger.Committed(0, []shard.Stored{{Pos: pos, Msg: &message.Message{ID: uuid.New(), Topic: "t", Body: make([]byte, 1000)}}}, false)
	o.count()
	o.mu.Unlock()
	if o.unsettledBytes.Load() == 0 || len(ds) != 1 {
		t.Fatal("the message is not in the account")
	}
	fs := o.flights(ds)
	o.closeAccount()
	o.deferred(fs)
	if n := o.unsettledBytes.Load(); n != 0 {
		t.Errorf("%d bytes stay in the account", n)
	}
}

// An owner that took over, or a policy that allows fewer, finds rows of which the last attempt was made.
func TestARowThatIsOutOfAttemptsIsNotDeliveredOnceMore(t *testing.T) {
	o := newTestOwner(shard.At(1, 5))
	o.registry.load().standard.retry.attempts = 2
	o.registry.load().policies = nil
	due := []store.Due{{Pos: shard.At(1, 1), Attempts: 2, Msg: &message.Message{ID: uuid.New(), Topic: "t"}}, {Pos: shard.At(1, 2), Attempts: 1, Msg: &message.Message{ID: uuid.New(), Topic: "t"}}}
	if fs := o.retries(newDrain(), 1, 0, due); len(fs) != 1 || fs[0].attempt != 2 {
		t.Errorf("%d attempts, want the second of the other", len(fs))
	}
	if want := []shard.DeadRow{{Pos: shard.At(1, 1), Group: 1, Reason: deadMaxAttempts, Attempts: 2}}; !slices.Equal(o.deads, want) {
		t.Errorf("dead letters %+v, want %+v", o.deads, want)
	}
}

// settledRunning is an owner with a first attempt under way whose message was settled meanwhile.
func settledRunning(t *testing.T) (*owner, *flight) {
	t.Helper()
	o := newTestOwner(shard.EpochStart(1))
	o.renewed(time.Now(), time.Minute)
	o.hub.group(1).attach("a", "", 10)
	o.exchanged(t.Context(), store.Fence{Version: 1}, o.committed(store.Fence{}, []shard.Stored{{Pos: shard.At(1, 1), Msg: &message.Message{ID: uuid.New(), Topic: "t"}}}))
	s := o.everything()
	if s == nil || len(s.Plan.Pending) != 1 || s.Plan.Pending[0].Attempts != 1 {
		t.Fatalf("settlement %+v, want the row of a running attempt", s)
	}
	o.settled(s)
	for _, f := range o.hub.group(1).flights {
		return o, f
	}
	t.Fatal("nothing is in flight")
	return nil, nil
}

func TestAnAttemptThatDidNotLeaveIsTakenBackFromTheRowThatCountsIt(t *testing.T) {
	want := []shard.PendingRow{{Pos: shard.At(1, 1), Group: 1}}
	o, f := settledRunning(t)
	o.hub.group(1).finish(f.key(), 0)
	if o.deferred([]*flight{f}); !slices.Equal(o.fails, want) {
		t.Errorf("deferred: %+v, want %+v", o.fails, want)
	}
	o, _ = settledRunning(t)
	if o.park(o.hub.drop(o)); !slices.Equal(o.fails, want) {
		t.Errorf("handed over: %+v, want %+v", o.fails, want)
	}
	o, f = settledRunning(t)
	o.hub.group(1).take(f.inst, 1, 1)
	if o.park(o.hub.drop(o)); len(o.fails) != 0 {
		t.Errorf("handed over, and the stream has it: %+v", o.fails)
	}
}

// An extension and an outcome may come by two ways at once. Nobody would ever free a row that is busy for what is over.
func TestADeliveryThatIsOverIsNotExtended(t *testing.T) {
	o, f := settledRunning(t)
	o.hub.group(1).finish(f.key(), 0)
	o.failed(f, failure{err: "nack"})
	o.settled(o.settlement(settleBatch))
	o.mu.Lock()
	o.forgetWritten()
	o.mu.Unlock()
	if o.extended(f); len(o.busy) != 0 {
		t.Error("its row is busy for ever")
	}
}

func TestTheReasonOfANackIsCutBetweenCharacters(t *testing.T) {
	if x := failureOf(&notifyv1.Nack{Reason: strings.Repeat("x", maxNackReason-1) + "ü"}); !utf8.ValidString(x.err) || len(x.err) < maxNackReason-1 {
		t.Errorf("%q", x.err[len(x.err)-5:])
	}
}

// Each store says by its own clock when a delivery died.
func TestWhatDiedBeforeATimeIsChosenByTheClockOfItsStore(t *testing.T) {
	main, other := &keeper{side: newTestSide()}, &keeper{side: newTestSide()}
	b := &Broker{core: main.core, main: main}
	asked := time.Now()
	before := main.clock.now()
	other.clock.set(before-3600e6, asked)
	if got := b.beforeIn(main, before); got != before {
		t.Errorf("%d us off in the main store", got-before)
	}
	if off := b.beforeIn(other, before) - (before - 3600e6); off < -30e6 || off > 30e6 {
		t.Errorf("%d us off in a store whose clock is an hour behind", off)
	}
}
