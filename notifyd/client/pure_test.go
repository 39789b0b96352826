package client

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

func TestWindowAnswersEachMessageOnceInOrderWhateverStreamsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		pushed := 0
		var left []int             // not answered for good, in order
		var onStream, failed []int // what the current stream has carried, unanswered; answered "again"
		number := func(e entry) int { n, _ := strconv.Atoi(e.req.GetMessage().GetId()); return n }
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				w.push(entry{req: &notifyv1.PublishRequest{Message: &notifyv1.Message{Id: strconv.Itoa(pushed), Body: make([]byte, rapid.IntRange(0, 50).Draw(t, "body"))}}})
				left = append(left, pushed)
				pushed++
			case 1:
				waiting := slices.DeleteFunc(slices.Clone(left), func(n int) bool { return slices.Contains(onStream, n) })
				unsent := w.unsent()
				batch := w.next(rapid.IntRange(1, 5).Draw(t, "n"), rapid.IntRange(1, 600).Draw(t, "size"))
				if want := len(waiting) > 0 && len(failed) == 0; unsent != want || want != (len(batch) > 0) {
					t.Fatalf("waiting %v, failed %v: unsent %v, batch of %d", waiting, failed, unsent, len(batch))
				}
				for i, r := range batch {
					if n := number(entry{req: r}); n != waiting[i] {
						t.Fatalf("sent %d, want %d", n, waiting[i])
					} else {
						onStream = append(onStream, n)
					}
				}
			case 2:
				n := rapid.IntRange(0, len(onStream)+1).Draw(t, "answers")
				got, ok := w.answered(n)
				if ok != (n <= len(onStream)) {
					t.Fatalf("%d answers for %d sent: ok %v", n, len(onStream), ok)
				}
				for i, e := range got {
					if number(e) != onStream[i] {
						t.Fatalf("answered %d, want %d", number(e), onStream[i])
					}
					if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
						w.again(e)
						failed = append(failed, number(e))
					} else {
						left = slices.DeleteFunc(left, func(n int) bool { return n == number(e) })
					}
				}
				onStream = onStream[len(got):]
				if w.spent() != (len(failed) > 0 && len(onStream) == 0) {
					t.Fatalf("failed %v, on stream %v: spent %v", failed, onStream, w.spent())
				}
			case 3:
				w.rewind()
				onStream, failed = nil, nil
			}
			if w.empty() != (len(left) == 0) {
				t.Fatalf("left %v: empty %v", left, w.empty())
			}
		}
		for i, e := range w.drop() {
			if number(e) != left[i] {
				t.Fatalf("dropped %d, want %d", number(e), left[i])
			}
		}
	})
}

// TestRerouteReachesTheOwner: brokers come, go and hand the shard around; as long
// as one that owns it stays attached for a while, the settlement reaches it.
func TestRerouteReachesTheOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReroute()
		now := time.Unix(0, 0)
		brokers := []string{"a", "b", "c"}
		nack := settlement{token: []byte("tok"), nack: true, reason: "why", delayMS: 7, reject: true}
		r.sentNack(nack, 1)
		r.refused([]byte("tok"), "a", now)
		taken := 0
		step := func(owner string, attached []string) {
			now = now.Add(time.Duration(rapid.IntRange(200, 700).Draw(t, "ms")) * time.Millisecond)
			for broker, list := range r.due(attached, now) {
				for _, s := range list {
					if !reflect.DeepEqual(s, nack) {
						t.Fatalf("nack came back as %+v", s)
					}
					if broker == owner {
						taken++
					} else {
						r.refused(s.token, broker, now)
					}
				}
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps without an owner") {
			step("", brokers[:rapid.IntRange(0, 3).Draw(t, "attached")])
		}
		if taken != 0 {
			t.Fatal("taken without an owner")
		}
		owner := rapid.SampledFrom(brokers).Draw(t, "owner")
		for range 8 {
			step(owner, brokers)
		}
		if taken != 1 {
			t.Fatalf("the owner got it %d times", taken)
		}
		now = now.Add(r.keep)
		if r.due(brokers, now); !r.idle() {
			t.Fatal("kept for ever")
		}
	})
}

func TestCreditShrinksForASlowHandlerAndGrowsForAFastOne(t *testing.T) {
	c := credit{min: 4, max: 64, now: 8}
	for range 200 {
		c.observe(0, 4*time.Second)
	}
	if c.now != 64 {
		t.Fatalf("fast handler: credit %d, want 64", c.now)
	}
	for range 200 {
		c.observe(2*time.Second, 4*time.Second)
	}
	if c.now != 4 {
		t.Fatalf("slow handler: credit %d, want 4", c.now)
	}
	for range 200 {
		c.observe(500*time.Millisecond, 4*time.Second)
	}
	if c.now != 4 {
		t.Fatalf("handler in between: credit %d, want 4", c.now)
	}
}

func TestBackoffGrowsWithJitterToItsBound(t *testing.T) {
	b := backoff{min: 100 * time.Millisecond, max: time.Second}
	for i, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		most *= time.Millisecond
		d := b.next(float64(i%2) * 0.999)
		if d < most/2 || d > most {
			t.Fatalf("try %d: %s, want between %s and %s", i, d, most/2, most)
		}
	}
	for range 100 {
		b.next(0)
	}
	if d := b.next(1); d != time.Second {
		t.Fatalf("after many tries: %s", d)
	}
}

func TestWhatAHandlerReturnsBecomesAckNackOrNothing(t *testing.T) {
	why := errors.New("why")
	nack := settlement{nack: true, reason: "why"}
	for _, c := range []struct {
		name string
		err  error
		want settlement
		none bool
	}{
		{name: "nil", want: settlement{}},
		{name: "error", err: why, want: nack},
		{name: "unsettled", err: fmt.Errorf("later: %w", ErrUnsettled), none: true},
		{name: "reject", err: Reject(why), want: settlement{nack: true, reason: "why", reject: true}},
		{name: "reject for no reason", err: Reject(nil), want: settlement{nack: true, reason: "rejected", reject: true}},
		{name: "wrapped reject", err: fmt.Errorf("order: %w", Reject(why)), want: settlement{nack: true, reason: "order: why", reject: true}},
		{name: "retry after", err: RetryAfter(1500*time.Microsecond, why), want: settlement{nack: true, reason: "why (retry after 1.5ms)", delayMS: 2}},
		{name: "wrapped retry after", err: fmt.Errorf("order: %w", RetryAfter(time.Second, nil)), want: settlement{nack: true, reason: "order: retry after 1s", delayMS: 1000}},
		{name: "retry after nothing", err: RetryAfter(-1, why), want: settlement{nack: true, reason: "why (retry after -1ns)"}},
		{name: "retry after years", err: RetryAfter(1<<62, nil), want: settlement{nack: true, reason: RetryAfter(1<<62, nil).Error(), delayMS: 24 * 60 * 60 * 1000}},
		{name: "reject beside retry after", err: errors.Join(RetryAfter(time.Second, nil), Reject(why)), want: settlement{nack: true, reason: "retry after 1s\nwhy", reject: true}},
	} {
		c.want.token = []byte("tok")
		got, settled := settlementOf([]byte("tok"), c.err)
		if settled == c.none || settled && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v; want %+v", c.name, got, settled, c.want)
		}
	}
	for _, err := range []error{Reject(why), RetryAfter(1, why)} {
		if !errors.Is(err, why) {
			t.Errorf("%T hides its reason", err)
		}
	}
}

// TestDirectoryBeginsWhereTheLastCallWorkedAndKnowsEveryAddressOnce: whatever calls
// and lists say, an order holds each listed and configured address once.
func TestDirectoryBeginsWhereTheLastCallWorkedAndKnowsEveryAddressOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e"}
		d := &directory{configured: []string{"a", "b"}, refresh: time.Second}
		now := time.Unix(1000, 0)
		if d.take(now) {
			t.Fatal("lists before anything has answered")
		}
		known := []string{"a", "b"}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			addr := rapid.SampledFrom(names).Draw(t, "address")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				d.worked(addr)
				if slices.Contains(known, addr) && d.order()[0] != addr {
					t.Fatalf("%s worked, next call begins at %v", addr, d.order())
				}
				for d.take(now) {
					if d.take(now) {
						t.Fatal("two callers list at once")
					}
				}
			case 1:
				d.failed(addr)
				if d.order()[0] == addr {
					t.Fatalf("%s failed, next call begins at %v", addr, d.order())
				}
			case 2:
				list := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 5, rapid.ID[string]).Draw(t, "list")
				d.set(list, now)
				if len(list) > 0 {
					known = slices.Compact(slices.Sorted(slices.Values(append(list, "a", "b"))))
				}
			}
			if got := slices.Sorted(slices.Values(d.order())); !slices.Equal(got, known) {
				t.Fatalf("order %v, known %v", got, known)
			}
		}
	})
}

func TestMillisecondsAreRoundedUpAndNeverOverflow(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -time.Second: -1000, math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if got := millis(d); got != want {
			t.Errorf("%d ns: %d ms, want %d", d, got, want)
		}
	}
}

func TestWhatAStuckProcessHoldsIsNotExtended(t *testing.T) {
	now := time.Now()
	a := &attachment{out: newOutbox()}
	a.ackWait.Store(int64(time.Second))
	q := newQueue()
	q.push([]received{{Delivery: Delivery{Deadline: now.Add(time.Second)}, token: []byte("x"), from: a, extended: now}})
	extended := func(at, handled time.Time) bool {
		q.extend(at, handled)
		frame, _, _ := a.out.next(1)
		return len(frame.GetExtends()) == 1
	}
	if extended(now.Add(300*time.Millisecond), now) {
		t.Error("extended before a third of the wait is over")
	}
	if !extended(now.Add(400*time.Millisecond), now) || !extended(now.Add(800*time.Millisecond), now) {
		t.Error("not extended while handlers move")
	}
	if extended(now.Add(1200*time.Millisecond), now) {
		t.Error("extended although no handler moved for a whole wait")
	}
}
