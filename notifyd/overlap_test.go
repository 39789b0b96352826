package notifyd

import (
	"testing"

	"github.com/google/uuid"

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
