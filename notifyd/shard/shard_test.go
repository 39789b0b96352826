package shard

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"notifymirror/notifyd/message"
)

func TestSlotGivesEachNumberOnceWithoutAGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSlot(7)
		want := int64(1)
		for range rapid.IntRange(0, 50).Draw(t, "inserts") {
			rows := rapid.IntRange(1, 500).Draw(t, "rows")
			first, err := s.Begin(rows)
			if err != nil || first != At(7, want) {
				t.Fatalf("Begin = %v, %v; want 7:%d", first, err, want)
			}
			if _, err := s.Begin(1); !errors.Is(err, ErrSlotOpen) {
				t.Fatalf("second Begin = %v, want ErrSlotOpen", err)
			}
			if rapid.Bool().Draw(t, "commit") {
				s.Commit()
				want += int64(rows)
			} else {
				s.Rollback()
			}
			if s.Last() != At(7, want-1) {
				t.Fatalf("Last = %v, want 7:%d", s.Last(), want-1)
			}
		}
	})
}

func TestPosKeepsEpochAndNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Int64Range(0, 1<<22).Draw(t, "epoch")
		n := rapid.Int64Range(0, 1<<40-1).Draw(t, "n")
		if p := At(epoch, n); p.Epoch() != epoch || p.Number() != n || p >= EpochStart(epoch+1) {
			t.Fatalf("At(%d, %d) = %v", epoch, n, p)
		}
	})
}

// Brokers that follow Balance, whoever moves first and whoever leaves, end with every
// shard owned and no two of them more than one share apart.
func TestBalanceSpreadsEveryShardEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 16).Draw(t, "shards")
		leases := make([]Lease, shards)
		for i := range leases {
			leases[i].Shard = i
		}
		names := []string{"a", "b", "c", "d", "e"}
		live := names[:rapid.IntRange(1, 5).Draw(t, "live")]
		for i := range leases { // whoever held them before, some of them dead
			if owner := rapid.IntRange(-1, 4).Draw(t, "owner"); owner >= 0 && owner < len(live) {
				leases[i].Owner, leases[i].ExpiresAt = names[owner], 10
			}
		}
		held := func(who string) (h []int) {
			for _, l := range leases {
				if l.Owner == who && !l.Free(1) {
					h = append(h, l.Shard)
				}
			}
			return h
		}
		for range 4 * shards * len(live) {
			who := rapid.SampledFrom(live).Draw(t, "who")
			move(leases, who, Balance(who, leases, live, held(who), 1))
		}
		for range 2 * shards {
			for _, who := range live {
				move(leases, who, Balance(who, leases, live, held(who), 1))
			}
		}
		share := (shards + len(live) - 1) / len(live)
		for _, l := range leases {
			if l.Free(1) || !slices.Contains(live, l.Owner) {
				t.Fatalf("shard %d has no live owner: %+v", l.Shard, leases)
			}
		}
		for _, who := range live {
			if n := len(held(who)); n > share {
				t.Fatalf("%s holds %d of %d, share %d", who, n, shards, share)
			}
		}
	})
}

func move(leases []Lease, who string, m Moves) {
	for _, s := range m.Take {
		leases[s].Owner, leases[s].ExpiresAt = who, 10
	}
	if m.Release >= 0 {
		leases[m.Release].ExpiresAt = 0
	}
}

func TestTheFirstBrokerTakesEverythingAtOnce(t *testing.T) {
	leases := []Lease{{Shard: 0}, {Shard: 1}, {Shard: 2}}
	if m := Balance("a", leases, nil, nil, 1); !slices.Equal(m.Take, []int{0, 1, 2}) {
		t.Errorf("takes %v, want all: no other broker lives", m.Take)
	}
}

// What happens to a delivery while the transaction that settles its message runs must
// change the rows that it wrote.
func TestOutcomesDuringSettlingChangeTheRowsJustWritten(t *testing.T) {
	groups := []int32{1, 2, 3, 4, 5, 6}
	l := NewLedger(0, 0, 5, 1, func(*message.Message) []int32 { return groups })
	pos := At(1, 1)
	l.Committed(0, []Stored{{Pos: pos, Msg: &message.Message{Topic: "t"}}}, false)
	for _, g := range groups {
		if !l.Sent(pos, g, 9) {
			t.Fatalf("group %d: not sent", g)
		}
	}
	l.Dead(pos, 1, "rejected", "bad address")
	p := l.Plan(5, 10)
	if want := []DeadRow{{pos, 1, "rejected", 1, "bad address"}}; !slices.Equal(p.Dead, want) {
		t.Errorf("dead letters %+v, want %+v", p.Dead, want)
	}
	if want := []PendingRow{{pos, 2, 9, 1, NoAck}, {pos, 3, 9, 1, NoAck}, {pos, 4, 9, 1, NoAck}, {pos, 5, 9, 1, NoAck}, {pos, 6, 9, 1, NoAck}}; !slices.Equal(p.Pending, want) {
		t.Errorf("pending rows %+v, want %+v", p.Pending, want)
	}
	l.Ack(pos, 1)
	l.Dead(pos, 2, "rejected", "no such user")
	l.Fail(pos, 3, 7, "busy")
	if got := l.Extend(pos, 5, 14); got != Settled {
		t.Errorf("extended in place %d: its row is written already", got)
	}
	l.Defer(pos, 6)
	late := l.SettleDone(p)
	if want := []Ack{{pos, 1}}; !slices.Equal(late.Acks, want) {
		t.Errorf("acks %+v, want %+v", late.Acks, want)
	}
	if want := []DeadRow{{pos, 2, "rejected", 1, "no such user"}}; !slices.Equal(late.Dead, want) {
		t.Errorf("late dead letters %+v, want %+v", late.Dead, want)
	}
	if want := []PendingRow{{pos, 3, 7, 1, "busy"}, {Pos: pos, Group: 6}}; !slices.Equal(late.Fails, want) {
		t.Errorf("fails %+v, want %+v", late.Fails, want)
	}
}

func TestADeliveryThatNeverLeftWasNoAttempt(t *testing.T) {
	l := NewLedger(0, 0, 5, 1, func(*message.Message) []int32 { return []int32{1} })
	pos := At(1, 1)
	l.Committed(0, []Stored{{Pos: pos, Msg: &message.Message{Topic: "t"}}}, false)
	l.Sent(pos, 1, 9)
	l.Defer(pos, 1)
	p := l.Plan(0, 10)
	if want := []PendingRow{{Pos: pos, Group: 1}}; !slices.Equal(p.Pending, want) {
		t.Errorf("pending rows %+v, want %+v: due at once, no attempt", p.Pending, want)
	}
}

func TestAnEpochIsNeverGivenAgain(t *testing.T) {
	for _, c := range []struct {
		stored, known, want int64
		moved               bool
	}{
		{5, 0, 6, false}, {5, 5, 6, false}, {5, 0, 1029, true}, {5, 7, 1031, true},
		{5, 7, 1031, false}, // it went back although the server is the same
	} {
		if got := NextEpoch(c.stored, c.known, c.moved); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
