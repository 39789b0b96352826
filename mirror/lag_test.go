package mirror

import (
	"math"
	"testing"
	"time"

	"notifymirror/canal"
)

// A lagBench is a lag and the clocks beside it.
type lagBench struct {
	t *testing.T
	lag
	clock time.Duration // the server's, ahead
}

// at is a time of our clock, committed one of the server's at the same moment.
func (*lagBench) at(s int) time.Time          { return time.Unix(int64(10_000+s), 0) }
func (b *lagBench) committed(s int) time.Time { return b.at(s).Add(b.clock) }

func (b *lagBench) want(when string, now int, seconds float64) {
	b.t.Helper()
	if got := b.lag.at(b.at(now)).behind.Seconds(); got != seconds {
		b.t.Errorf("%s, with the server's clock ahead by %s: %f s at %d, want %f", when, b.clock, got, now, seconds)
	}
}

func place(offset int64) canal.Place { return canal.Place{File: "binlog.000002", Offset: offset} }

// eachClock runs a test with the server's clock behind ours, equal and ahead.
func eachClock(t *testing.T, test func(b *lagBench)) {
	for _, clock := range []time.Duration{-time.Hour, 0, time.Hour} {
		b := &lagBench{t: t, clock: clock}
		b.surveyed(canal.Survey{Clock: clock})
		test(b)
	}
}

func TestLagIsTheAgeOfWhatIsWhollyCopied(t *testing.T) {
	eachClock(t, func(b *lagBench) {
		b.want("nothing known", 5, 0)
		b.start(b.committed(0), b.at(3))
		b.want("taken over", 5, 5)
		b.read(b.committed(4), place(100))
		b.want("all before the first one read is in Kafka", 5, 1)
		b.read(b.committed(6), place(200))
		b.settled(b.committed(4), place(100))
		b.want("busy, with more read already", 7, 3)
		b.read(b.committed(7), place(300))
		b.settled(b.committed(6), place(200))
		b.want("catching up shows", 8, 2)
		b.settled(b.committed(7), place(300))
		b.want("cut off", 60, 53)
		b.settled(b.beat(b.at(59)), place(300))
		b.want("idle: heartbeat", 60, 1)
		b.settled(b.committed(50), place(300))
		b.want("it does not go back", 60, 1)
		b.start(b.committed(40), b.at(70))
		b.want("begun again", 70, 11)
	})
}

// At the first start nothing is known of the store; under load it may be long before the
// mirror catches up.
func TestLagIsNotZeroBeforeTheFirstIsCopied(t *testing.T) {
	eachClock(t, func(b *lagBench) {
		b.start(time.Time{}, b.at(10))
		b.want("nothing comes", 13, 3)
		b.read(b.committed(2), place(100))
		for i := 3; i < 20; i++ {
			b.read(b.committed(i), place(int64(100*i)))
		}
		b.want("it reads and reads", 20, 18)
	})
}

func TestLagOfBytesIsCountedOverFiles(t *testing.T) {
	b := &lagBench{t: t}
	logs := []canal.LogFile{{Name: "binlog.000001", Bytes: 1000}, {Name: "binlog.000002", Bytes: 2000}, {Name: "binlog.000003", Bytes: 300}}
	want := func(when string, bytes, files float64) {
		t.Helper()
		if got := b.lag.at(b.at(9)); got.bytes != bytes && !(math.IsNaN(bytes) && math.IsNaN(got.bytes)) || got.files != files && !math.IsNaN(files) {
			t.Errorf("%s: %f bytes, %f files before, want %f and %f", when, got.bytes, got.files, bytes, files)
		}
	}
	b.surveyed(canal.Survey{Logs: logs})
	b.start(b.at(0), b.at(0))
	want("nothing read", math.NaN(), math.NaN())
	b.read(b.at(1), place(500))
	want("at the first", 1500+300, 1)
	b.read(b.at(2), place(1500))
	b.settled(b.at(1), place(700))
	want("behind by a file", 1300+300, 1)
	b.settled(b.at(2), canal.Place{})
	want("a piece of a transaction does not move it", 1300+300, 1)
	b.read(b.at(3), canal.Place{File: "binlog.000004", Offset: 50})
	want("read in a file newer than the list", 1300+300+50, 1)
	b.settled(b.at(3), canal.Place{File: "binlog.000004", Offset: 50})
	want("caught up", 0, 3)
	b.surveyed(canal.Survey{Logs: append(logs[1:], canal.LogFile{Name: "binlog.000004", Bytes: 80})})
	want("the server has written more, and dropped a file", 30, 2)
	b.surveyed(canal.Survey{Logs: []canal.LogFile{{Name: "binlog.000005", Bytes: 70}}})
	want("what comes next is purged", 70, 0)
	b.surveyed(canal.Survey{})
	want("the account may not list the files", math.NaN(), math.NaN())
}

func TestHeadroomShrinksWithTheLag(t *testing.T) {
	b := &lagBench{t: t}
	b.start(b.at(0), b.at(0))
	if got := b.lag.at(b.at(60)).headroom; !math.IsInf(got, 1) {
		t.Errorf("headroom of a server that never drops binlog: %f", got)
	}
	b.expires(time.Hour)
	if got := b.lag.at(b.at(60)).headroom; got != 3540 {
		t.Errorf("headroom %f", got)
	}
}
