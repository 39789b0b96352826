package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Verdict is what Verify has found.
type Verdict struct {
	Store   string `json:"store"`
	StoreID string `json:"store_id"`
	// Since and Until are what was compared. Since is later than was asked for where binlog or
	// records are gone; Until is zero when the checkpoint was the end.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
	// Position is that of the checkpoint: nothing behind it was compared.
	Position string `json:"position"`
	// Messages counts what was committed for the mirror, Records what the mirror has of it.
	Messages uint64 `json:"messages"`
	Records  uint64 `json:"records"`
	// Moved counts messages that the mirror has under another time than that of their commit,
	// as a backfill copies them. They are not a difference.
	Moved int `json:"moved,omitempty"`
	// Minutes counts those with a message or a record.
	Minutes int `json:"minutes"`
	// Differing are the minutes that are not equal.
	Differing []DifferingMinute `json:"differing,omitempty"`
	// Named are the differences, mostNamed at most; More tells that there are others.
	Named []Difference `json:"named,omitempty"`
	More  bool         `json:"more,omitempty"`
	// Notes say what could not be compared, and why.
	Notes []string `json:"notes,omitempty"`
}

// Equal tells that nothing is missing, repeated, foreign or out of order.
func (v *Verdict) Equal() bool { return len(v.Differing) == 0 && len(v.Named) == 0 }

// A DifferingMinute has the counts of both sides, and the sums of their ids modulo 2^128 in hex.
type DifferingMinute struct {
	Minute       time.Time `json:"minute"`
	Messages     uint64    `json:"messages"`
	MessagesHash string    `json:"messages_hash"`
	Records      uint64    `json:"records"`
	RecordsHash  string    `json:"records_hash"`
}

// A Difference is one message that is not once, and in its place, in the mirror.
type Difference struct {
	What Fault  `json:"what"`
	ID   string `json:"id,omitempty"`
	// Minute is that of the commit, as binlog or record tell.
	Minute time.Time `json:"minute"`
	// Topic is in Kafka; partition and offset are the record's, -1 for one that is missing.
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// Generation and Seq are the record's.
	Generation uint64 `json:"generation,omitempty"`
	Seq        uint64 `json:"seq,omitempty"`
}

// A Fault is what is wrong with a message or record.
type Fault string

// The faults.
const (
	// Missing: committed, and not in the mirror.
	Missing Fault = "missing"
	// Repeated: a second record in the same generation.
	Repeated Fault = "repeated"
	// Foreign: a record of this store that was never committed.
	Foreign Fault = "foreign"
	// Disordered: a record behind one with a higher seq in its partition.
	Disordered Fault = "disordered"
	// Unreadable: a record in a mirror topic that no canald wrote.
	Unreadable Fault = "unreadable"
)

// conclude looks into the minutes that differ.
func (v *verification) conclude() (out Verdict, err error) {
	if err := v.compared(); err != nil {
		return Verdict{}, err
	}
	out = Verdict{
		Store: v.copier.name, StoreID: v.at.Store, Since: timeOf(v.since), Position: v.at.GTIDs, Minutes: len(v.minutes), Notes: v.notes,
	}
	if v.until != 0 {
		out.Until = timeOf(v.until)
	}
	for _, m := range v.minutes {
		out.Messages += m.committed.n
		out.Records += m.all().n
	}
	differing := v.minutes.differing()
	var found findings
	looked := map[int64]bool{}
	for left := differing; len(left) > 0 && found.len() <= mostNamed; {
		var some map[int64]bool
		some, left = v.some(left)
		f, err := v.look(some)
		if err != nil {
			return out, err
		}
		found.add(f)
		maps.Copy(looked, some)
	}
	out.Moved = found.unmoved()
	v.name(&out, found)
	differs := map[int64]bool{}
	for _, s := range slices.Concat(found.missing, found.repeated, found.foreign) {
		differs[s.minute] = true
	}
	for _, minute := range differing {
		if looked[minute] && !differs[minute] {
			continue
		}
		m := v.minutes[minute]
		all := m.all()
		out.Differing = append(out.Differing, DifferingMinute{timeOf(minute), m.committed.n, m.committed.hash(), all.n, all.hash()})
		out.More = out.More || !looked[minute]
	}
	return out, nil
}

// compared returns an error when there was nothing to compare: that is not an equal mirror.
func (v *verification) compared() error {
	why := strings.Join(v.notes, "; ")
	last := v.at.Last.CommittedAt
	switch {
	case v.until != 0 && v.since >= v.until:
		if why == "" {
			why = "there is none before " + timeOf(v.since).Format(time.RFC3339)
		}
		return fmt.Errorf("no minute is left before %s: %s; choose a later end", timeOf(v.until).Format(time.RFC3339), why)
	case len(v.minutes)+len(v.wrong) > 0 || last > 0 && v.since <= minuteOf(time.UnixMicro(last)):
		return nil
	case last == 0:
		return errors.New("the mirror has copied nothing yet")
	}
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Errorf("the last message of the mirror was committed at %s, before %s, from when on it was to be compared%s; begin earlier, or wait until it has copied more",
		time.UnixMicro(last).UTC().Format(time.RFC3339), timeOf(v.since).Format(time.RFC3339), why)
}

// some takes as many minutes off the list as may be looked into at a time.
func (v *verification) some(left []int64) (some map[int64]bool, rest []int64) {
	some = map[int64]bool{}
	var n uint64
	for len(left) > 0 {
		m := v.minutes[left[0]]
		if n += m.committed.n + m.all().n; len(some) > 0 && n > mostLooked {
			break
		}
		some[left[0]] = true
		left = left[1:]
	}
	return some, left
}

func (v *verification) look(minutes map[int64]bool) (findings, error) {
	committed, err := v.committed.of(minutes)
	if err != nil {
		return findings{}, err
	}
	mirrored, err := v.mirrored.of(minutes)
	if err != nil {
		return findings{}, err
	}
	return look(committed, mirrored), nil
}

// name fills in what differs. A repeated or foreign record is not named a second time for
// being out of order as well.
func (v *verification) name(out *Verdict, f findings) {
	type spot struct {
		topic     string
		partition int32
		offset    int64
	}
	named := map[spot]bool{}
	add := func(d Difference) {
		if at := (spot{d.Topic, d.Partition, d.Offset}); d.What != Missing {
			if named[at] {
				return
			}
			named[at] = true
		}
		if len(out.Named) == mostNamed {
			out.More = true
			return
		}
		out.Named = append(out.Named, d)
	}
	out.More = v.more
	for _, all := range []struct {
		what Fault
		list []sighting
	}{{Missing, f.missing}, {Repeated, f.repeated}, {Foreign, f.foreign}} {
		for _, s := range all.list {
			add(v.difference(all.what, s))
		}
	}
	for _, d := range v.wrong {
		add(d)
	}
	slices.SortStableFunc(out.Named, func(a, b Difference) int { return a.Minute.Compare(b.Minute) })
}
