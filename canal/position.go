package canal

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// A gtid names one transaction.
//
//	MySQL    3E11FA47-71CA-11E1-9E33-C80AA9429562:23, with a tag ...:tag:23
//	MariaDB  domain-server-sequence, 0-1-23
type gtid struct {
	source source // MySQL
	domain uint32 // MariaDB
	server uint32 // MariaDB
	seq    uint64
}

// A source is what counts transactions on MySQL: a server, or a tag of it.
type source struct {
	sid uuid.UUID
	tag string
}

func (s source) text() string {
	if s.tag == "" {
		return s.sid.String()
	}
	return s.sid.String() + ":" + s.tag
}

func (g gtid) text(f Flavor) string {
	if f == MariaDB {
		b := make([]byte, 0, 32)
		b = strconv.AppendUint(b, uint64(g.domain), 10)
		b = strconv.AppendUint(append(b, '-'), uint64(g.server), 10)
		b = strconv.AppendUint(append(b, '-'), g.seq, 10)
		return string(b)
	}
	return g.source.text() + ":" + strconv.FormatUint(g.seq, 10)
}

// An interval is first to last, both in it.
type interval struct{ first, last uint64 }

// A gtidSet is the set of transactions executed. On MySQL it is a true set: per source
// disjoint intervals in ascending order, never touching. On MariaDB it is one GTID per
// domain, which stands for all transactions of that domain before it in the log.
type gtidSet struct {
	flavor Flavor
	mysql  map[source][]interval
	maria  map[uint32]gtid
}

func newGTIDSet(f Flavor) *gtidSet {
	return &gtidSet{flavor: f, mysql: map[source][]interval{}, maria: map[uint32]gtid{}}
}

// add puts one transaction in. It reports false, and changes nothing, when the
// transaction is in already, which a server never sends in good order.
func (s *gtidSet) add(g gtid) bool {
	if s.flavor == MariaDB {
		if was, ok := s.maria[g.domain]; ok && g.seq <= was.seq {
			return false
		}
		s.maria[g.domain] = g
		return true
	}
	list := s.mysql[g.source]
	if n := len(list); n > 0 && list[n-1].last+1 == g.seq { // the usual case, in place
		list[n-1].last = g.seq
		return true
	}
	i, found := slices.BinarySearchFunc(list, g.seq, func(v interval, seq uint64) int {
		switch {
		case v.last < seq:
			return -1
		case v.first > seq:
			return 1
		}
		return 0
	})
	if found {
		return false
	}
	s.mysql[g.source] = joined(slices.Insert(list, i, interval{g.seq, g.seq}))
	return true
}

// joined merges intervals, sorted by first, that touch or overlap.
func joined(list []interval) []interval {
	out := list[:0]
	for _, v := range list {
		if n := len(out); n > 0 && v.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, v.last)
			continue
		}
		out = append(out, v)
	}
	return out
}

func (s *gtidSet) clone() *gtidSet {
	c := &gtidSet{flavor: s.flavor, mysql: make(map[source][]interval, len(s.mysql)), maria: maps.Clone(s.maria)}
	for k, v := range s.mysql {
		c.mysql[k] = slices.Clone(v)
	}
	return c
}

// contains reports whether every transaction of o is in s.
func (s *gtidSet) contains(o *gtidSet) bool { return s.missing(o) == "" }

// missing is a text of what o has and s has not; empty when s contains o.
func (s *gtidSet) missing(o *gtidSet) string {
	var out []string
	for _, d := range slices.Sorted(maps.Keys(o.maria)) {
		if mine, ok := s.maria[d]; !ok || mine.seq < o.maria[d].seq {
			out = append(out, o.maria[d].text(MariaDB))
		}
	}
	for _, src := range o.sources() {
		var lacks []string
		for _, v := range without(o.mysql[src], s.mysql[src]) {
			lacks = append(lacks, v.text())
		}
		if lacks != nil {
			out = append(out, src.text()+":"+strings.Join(lacks, ":"))
		}
	}
	return strings.Join(out, ",")
}

// without is what is in the intervals and not in those to take away; both are in order.
func without(list, away []interval) (out []interval) {
	for _, v := range list {
		for _, a := range away {
			if a.last < v.first || a.first > v.last {
				continue
			}
			if a.first > v.first {
				out = append(out, interval{v.first, a.first - 1})
			}
			v.first = a.last + 1
		}
		if v.first <= v.last {
			out = append(out, v)
		}
	}
	return out
}

// Before is a position from which the transaction of that GTID is sent again: alone on MySQL,
// first on MariaDB. It is false when the position does not hold the transaction.
func (p Position) Before(gtid string) (Position, bool) {
	set, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		return Position{}, false
	}
	one, err := parseSet(p.Flavor, gtid)
	if err != nil || gtid == "" || !set.contains(one) {
		return Position{}, false
	}
	for src, list := range one.mysql {
		set.mysql[src] = without(set.mysql[src], list)
		if len(set.mysql[src]) == 0 {
			delete(set.mysql, src)
		}
	}
	for d, g := range one.maria {
		if g.seq--; g.seq == 0 {
			delete(set.maria, d)
		} else {
			set.maria[d] = g
		}
	}
	return set.position(), true
}

func (s *gtidSet) sources() []source {
	return slices.SortedFunc(maps.Keys(s.mysql), func(a, b source) int {
		return cmp.Or(bytes.Compare(a.sid[:], b.sid[:]), strings.Compare(a.tag, b.tag))
	})
}

func (v interval) text() string {
	if v.first == v.last {
		return strconv.FormatUint(v.first, 10)
	}
	return strconv.FormatUint(v.first, 10) + "-" + strconv.FormatUint(v.last, 10)
}

// text is the server's own form, in a fixed order: equal sets have equal texts.
func (s *gtidSet) text() string {
	var b strings.Builder
	for i, d := range slices.Sorted(maps.Keys(s.maria)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(s.maria[d].text(MariaDB))
	}
	var last uuid.UUID
	for i, src := range s.sources() {
		switch {
		case i > 0 && src.sid == last:
			b.WriteString(":" + src.tag)
		case i > 0:
			b.WriteString("," + src.text())
		default:
			b.WriteString(src.text())
		}
		last = src.sid
		for _, v := range s.mysql[src] {
			b.WriteString(":" + v.text())
		}
	}
	return b.String()
}

func (s *gtidSet) position() Position { return Position{Flavor: s.flavor, GTIDs: s.text()} }

// parseSet reads a set in the server's text form; white space around a comma is allowed.
func parseSet(f Flavor, text string) (*gtidSet, error) {
	s := newGTIDSet(f)
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var err error
		if f == MariaDB {
			err = s.parseMariaDB(strings.TrimSpace(part))
		} else {
			err = s.parseMySQL(strings.TrimSpace(part))
		}
		if err != nil {
			return nil, err
		}
	}
	for src, list := range s.mysql {
		slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
		s.mysql[src] = joined(list)
	}
	return s, nil
}

func (s *gtidSet) parseMariaDB(part string) error {
	var n [3]uint64
	fields := strings.Split(part, "-")
	if len(fields) != 3 {
		return fmt.Errorf("%q is not domain-server-sequence", part)
	}
	for i, bits := range []int{32, 32, 64} {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, bits); err != nil {
			return fmt.Errorf("%q is not domain-server-sequence", part)
		}
	}
	g := gtid{domain: uint32(n[0]), server: uint32(n[1]), seq: n[2]}
	if _, twice := s.maria[g.domain]; twice {
		return fmt.Errorf("domain %d is given twice", g.domain)
	}
	s.maria[g.domain] = g
	return nil
}

func (s *gtidSet) parseMySQL(part string) error {
	fields := strings.Split(part, ":")
	sid, err := uuid.Parse(fields[0])
	if err != nil || len(fields) < 2 {
		return fmt.Errorf("%q is not uuid:interval", part)
	}
	src := source{sid: sid}
	pending := true // a uuid or a tag wants an interval after it
	for _, f := range fields[1:] {
		f = strings.ToLower(strings.TrimSpace(f))
		if isTag(f) {
			if src.tag != "" && pending {
				return fmt.Errorf("tag %q of %q has no interval", src.tag, part)
			}
			src.tag, pending = f, true
			continue
		}
		v, err := parseInterval(f)
		if err != nil {
			return fmt.Errorf("%q of %q is not an interval", f, part)
		}
		s.mysql[src], pending = append(s.mysql[src], v), false
	}
	if pending {
		return fmt.Errorf("%q ends without an interval", part)
	}
	return nil
}

// isTag: a letter or _, then up to 31 letters, digits or _; f is in lower case.
func isTag(f string) bool {
	if f == "" || len(f) > 32 || '0' <= f[0] && f[0] <= '9' {
		return false
	}
	return strings.Trim(f, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func parseInterval(f string) (interval, error) {
	a, b, both := strings.Cut(f, "-")
	first, err := strconv.ParseUint(a, 10, 63)
	if err != nil {
		return interval{}, err
	}
	last := first
	if both {
		if last, err = strconv.ParseUint(b, 10, 63); err != nil {
			return interval{}, err
		}
	}
	if first == 0 || last < first {
		return interval{}, strconv.ErrRange
	}
	return interval{first, last}, nil
}
