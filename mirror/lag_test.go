package mirror

import (
	"math"
	"testing"
	"time"
)

func TestLagIsTheAgeOfWhatIsWhollyCopied(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	var l lag
	want := func(when string, now, seconds int) {
		t.Helper()
		if got := l.behind(at(now)); got != time.Duration(seconds)*time.Second {
			t.Errorf("%s: %s at %d, want %d s", when, got, now, seconds)
		}
	}
	want("nothing known", 5, 0)
	l.start(at(0))
	want("taken over", 5, 5)
	l.read()
	first := l.number()
	l.read()
	second := l.number()
	l.settled(first, at(4))
	want("busy: more was read already", 6, 6)
	l.settled(second, at(6))
	want("caught up", 7, 1)
	want("cut off", 60, 54)
	l.settled(second, at(59))
	want("idle: heartbeat", 60, 1)
	l.read()
	l.settled(second, at(70))
	want("heartbeat from before the last transaction", 70, 11)
}

func TestHeadroomShrinksWithTheLag(t *testing.T) {
	if got := headroom(time.Hour, time.Minute); got != 3540 {
		t.Errorf("headroom %f", got)
	}
	if got := headroom(0, time.Minute); !math.IsInf(got, 1) {
		t.Errorf("headroom of a server that never drops binlog: %f", got)
	}
}
