package mirror

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"notifymirror/mirror/record"
)

// partitionsOf is how many a topic has in Kafka.
func (b *bench) partitionsOf(name string) int {
	b.t.Helper()
	all, err := b.admin().ListTopics(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all[name].Partitions)
}

// A topic grows under load: up to a seq keys are shared out as before, behind it anew, and
// whoever takes over goes on so. A dry run says the same and changes nothing.
func TestATopicGrowsAtASeqAndLosesNothing(t *testing.T) {
	b := newBench(t)
	r := newRand(t)
	name := b.prefix + "trades"
	b.script.random(r, 20, 20, "trades", "news")
	c := b.copier(often)
	stop := b.run(c)
	b.await(c)
	grow := Change{What: Grow, Topic: "trades", Partitions: 7}
	dry := grow
	dry.DryRun = true
	look := b.changed(c, dry)
	if g := look.Grows; g.Topic != name || g.From != 3 || g.To != 7 || g.Kafka != 3 || look.Seq != c.Status().Seq || b.partitionsOf(name) != 3 {
		t.Errorf("dry run %+v, %+v", look, g)
	}
	for _, bad := range []struct {
		what Change
		says string
	}{
		{Change{What: Grow, Topic: "nobody", Partitions: 7}, "has no topic " + b.prefix + "nobody"},
		{Change{What: Grow, Topic: "trades", Partitions: 3}, "writes to 3 partitions"},
		{Change{What: Grow, Topic: "trades", Partitions: 1001}, "at most 1000"},
	} {
		b.refused(c, bad.what, bad.says)
		bad.what.DryRun = true
		b.refused(c, bad.what, bad.says)
	}
	b.script.random(r, 20, 20, "trades", "news")
	out := b.changed(c, grow)
	if out.Generation != 1 || b.partitionsOf(name) != 7 || b.partitionsOf(b.prefix+"news") != 3 {
		t.Errorf("%+v", out)
	}
	b.script.random(r, 40, 20, "trades")
	b.await(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	next := b.copier()
	b.run(next)
	b.script.random(r, 20, 20, "trades")
	b.await(next)
	b.grownOnly(name, out.Seq, 3, 7)
}

// grownOnly proves that the mirror is exact, that the keys of one topic are shared out anew from
// behind a seq on, and those of all others as before.
func (b *bench) grownOnly(name string, seq uint64, before, after int32) {
	b.t.Helper()
	b.check()
	most := int32(0)
	for _, m := range b.oracle() {
		n := after
		if m.topic != name || m.Seq <= seq {
			n = before
		}
		if want := record.Partition(record.KeyOf(m.Key, m.ID), n); m.partition != want {
			b.t.Fatalf("seq %d of %s is in partition %d, want %d", m.Seq, m.topic, m.partition, want)
		}
		most = max(most, m.partition)
	}
	if most < before {
		b.t.Errorf("nothing is in a new partition: the highest is %d", most)
	}
}

// Who dies while a topic grows leaves it grown or not, and nothing between: partitions that
// Kafka has and the mirror does not write to are said, and the same command goes on.
func TestKilledWhileATopicGrowsItIsGrownOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		key   int16
		after bool // the request was sent, and may have been heard
	}{
		"before Kafka makes them":    {apiCreatePartitions, false},
		"once Kafka has made them":   {apiCreatePartitions, true},
		"before the record":          {apiProduce, false},
		"before the record's commit": {apiEndTxn, false},
		"once the record is there":   {apiEndTxn, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := newRand(t)
			topic := b.prefix + "trades"
			b.script.random(r, 10, 20, "trades")
			d := new(faultyDialer)
			var growing, sprung atomic.Bool
			springs := func(key int16) bool {
				if key == apiCreatePartitions {
					growing.Store(true)
				}
				if key != c.key || !growing.Load() || sprung.Swap(true) {
					return false
				}
				d.cut(true)
				return true
			}
			d.before = func(key int16) bool {
				return !c.after && springs(key)
			}
			d.after = func(key int16) bool {
				return c.after && springs(key)
			}
			first := b.copier(func(c *Copier) { c.dialer = d })
			stop := b.run(first)
			b.await(first)
			if out, err := first.Change(t.Context(), Change{What: Grow, Topic: "trades", Partitions: 7}); !errors.Is(err, ErrChange) {
				t.Errorf("%+v, %v", out, err)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			b.evict("")

			next := b.copier(often)
			b.run(next)
			b.script.random(r, 20, 20, "trades")
			b.await(next)
			rec := b.recorded("trades")
			grown := rec.Partitions == 7
			if grown && !c.after || !grown && rec.Partitions != 3 {
				t.Errorf("recorded %+v", rec)
			}
			if made := b.partitionsOf(topic); !grown && made == 7 {
				eventually(t, func() error {
					if notes := next.Status().Notes; len(notes) != 1 || !strings.Contains(notes[0], "notify mirror grow trades --partitions 7 --store a") {
						return fmt.Errorf("notes %q", notes)
					}
					return nil
				})
			}
			if !grown {
				b.changed(next, Change{What: Grow, Topic: "trades", Partitions: 7})
				b.script.random(r, 20, 20, "trades")
				b.await(next)
				rec = b.recorded("trades")
			}
			b.grownOnly(topic, rec.Seq, 3, 7)
			eventually(t, func() error {
				if notes := next.Status().Notes; len(notes) > 0 {
					return fmt.Errorf("notes %q", notes)
				}
				return nil
			})
		})
	}
}
