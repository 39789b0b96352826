package notifyd

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAReadingOfTheStoresClockCountsFromWhenItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Now())
		const store = int64(5e15)
		made := time.Now()
		<-time.After(3 * time.Second) // the transaction takes that long, by the bubble's clock
		c.set(store, made)
		if got := c.now() - store; got != 3e6 {
			t.Errorf("the clock is at %d us behind the reading, want 3 s", got)
		}
		c.set(store+1e6, made.Add(time.Second)) // of a shorter transaction, begun later
		c.set(store+9e6, made)
		if got := c.now() - store; got != 3e6 {
			t.Errorf("an older reading counted: %d us", got)
		}
	})
}
