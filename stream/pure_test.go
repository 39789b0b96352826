package stream

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"notifymirror/mirror/record"
)

func TestEachRecordIsHandledOnceAndNoCommitIsPastAnUnhandledOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A log with gaps, given from where it was left off or from before, again and again.
		offsets := rapid.SliceOfNDistinct(rapid.Int64Range(0, 200), 1, 40, rapid.ID[int64]).Draw(t, "offsets")
		present := map[int64]bool{}
		for _, o := range offsets {
			present[o] = true
		}
		start := rapid.Int64Range(0, 100).Draw(t, "start")
		p := progress{next: start}
		handled := map[int64]bool{}
		committed := start
		for range 4 {
			from := rapid.Int64Range(0, p.next).Draw(t, "given again from")
			to := rapid.Int64Range(from, 201).Draw(t, "until")
			for o := from; o < to; o++ {
				if !present[o] || !p.take(o) {
					continue
				}
				if handled[o] || o < start {
					t.Fatalf("offset %d taken again, or before the start %d", o, start)
				}
				handled[o] = true
				next := p.done(o)
				if next < committed {
					t.Fatalf("commit went back from %d to %d", committed, next)
				}
				committed = next
				for q := start; q < next; q++ {
					if present[q] && !handled[q] {
						t.Fatalf("commit %d is past offset %d, which is not handled", next, q)
					}
				}
			}
		}
	})
}

func TestRepeatsOfASourceAreSeenAndOthersAreNot(t *testing.T) {
	a, b := record.Source{Store: "s", Generation: 1}, record.Source{Store: "s", Generation: 2}
	var r repeats
	for i, c := range []struct {
		source record.Source
		seq    uint64
		seen   bool
	}{{a, 1, false}, {a, 3, false}, {a, 3, true}, {a, 1, true}, {b, 1, false}, {a, 4, false}, {b, 1, true}, {b, 2, false}} {
		if got := r.seen(c.source, c.seq); got != c.seen {
			t.Errorf("step %d: seen %v", i, got)
		}
	}
}

func TestPositionsAreReadAsPeopleWriteThem(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, zone)
	for text, want := range map[string]Position{
		"oldest":               Oldest(),
		"newest":               Newest(),
		"0":                    AtOffset(0),
		"42":                   AtOffset(42),
		"15m":                  AtTime(now.Add(-15 * time.Minute)),
		"2026-11-29T10:00:00Z": AtTime(time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)),
		"2026-11-29T10:00:00":  AtTime(time.Date(2026, 11, 29, 10, 0, 0, 0, zone)),
		"2026-11-29":           AtTime(time.Date(2026, 11, 29, 0, 0, 0, 0, zone)),
	} {
		got, err := ParsePosition(text, now)
		if err != nil || got.kind != want.kind || got.offset != want.offset || !got.time.Equal(want.time) {
			t.Errorf("%s: %v, error %v", text, got, err)
		}
		again, err := ParsePosition(got.String(), now)
		if err != nil || again.kind != got.kind || !again.time.Equal(got.time) {
			t.Errorf("%s: written as %s, read back as %v, error %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "earliest", "-1", "-5m", "yesterday", "2026-13-01"} {
		if got, err := ParsePosition(text, now); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// What a store commits whose clock is ahead of ours must not make a consumer look alive that stands.
func TestARecordFromTheFutureIsCaughtUpWithAtPresent(t *testing.T) {
	p := &partition{mark: func(int64) {}}
	before := time.Now()
	p.done(&sarama.ConsumerMessage{Offset: 7, Timestamp: before.Add(time.Hour)})
	if at := time.Unix(0, p.caughtUp.Load()); at.Before(before) || at.After(time.Now()) {
		t.Errorf("caught up with %s, it is %s", at, before)
	}
}
