package notifyd

import (
	"testing"
	"testing/synctest"
	"time"
)

// A reading is made at some time between its question and its answer.
func TestAReadingMovesTheClockOnlyAsFarAsTheClockContradictsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Now())
		const skew = int64(5e15) // of the store's clock
		read := func(before, behind time.Duration) {
			asked := time.Now()
			<-time.After(before) // the broker is frozen, the pool busy, a lock held
			store := time.Now().UnixMicro() + skew
			<-time.After(behind) // the transaction goes on
			c.set(store, asked)
		}
		ahead := func() int64 { return c.now() - time.Now().UnixMicro() - skew }
		read(0, 10*time.Millisecond)
		if got := ahead(); got != -10_000 {
			t.Errorf("%d us ahead of the store's clock at the first reading, want it behind by what the answer took", got)
		}
		read(0, time.Millisecond)
		if got := ahead(); got != -1_000 {
			t.Errorf("%d us ahead behind a quicker reading, want -1 ms", got)
		}
		read(6*time.Second, 10*time.Millisecond)
		read(0, 6*time.Second)
		if got := ahead(); got != -1_000 {
			t.Errorf("%d us ahead behind readings that took long: they say nothing against it", got)
		}
		late := time.Now().Add(-time.Hour)
		c.set(0, late)
		if got := ahead(); got != -1_000 {
			t.Errorf("%d us ahead: a reading that was asked for before another counted", got)
		}
		c.set(time.Now().UnixMicro()+skew-3e6, time.Now()) // the store's clock was put back
		if got := ahead(); got != -3e6 {
			t.Errorf("%d us ahead, want the clock to follow the store's", got)
		}
	})
}
