package canal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// Against go-mysql's set as an independent implementation.
func TestMySQLSetsAgreeWithAnotherImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (*gtidSet, *gomysql.MysqlGTIDSet) {
			ours := newGTIDSet(MySQL)
			theirs := gomysql.NewMysqlGTIDSet()
			for range rapid.IntRange(0, 30).Draw(t, name) {
				g := gtid{seq: rapid.Uint64Range(1, 12).Draw(t, "seq")}
				g.source.sid[15] = byte(rapid.IntRange(1, 2).Draw(t, "sid"))
				g.source.tag = rapid.SampledFrom([]string{"", "a", "b_1"}).Draw(t, "tag")
				one := newGTIDSet(MySQL)
				one.add(g)
				had := ours.contains(one)
				if ours.add(g) == had {
					t.Fatalf("add of %s to %s reports %t", g.text(MySQL), ours.text(), !had)
				}
				theirs.AddGTIDWithTag(g.source.sid, gomysql.NewTag(g.source.tag), int64(g.seq))
			}
			return ours, &theirs
		}
		a, otherA := draw("a")
		b, otherB := draw("b")
		if a.text() != otherA.String() {
			t.Fatalf("text %q, want %q", a.text(), otherA.String())
		}
		if got, want := a.contains(b), otherA.Contain(otherB); got != want {
			t.Fatalf("%q contains %q: %t, want %t", a.text(), b.text(), got, want)
		}
		lacks, err := parseSet(MySQL, a.missing(b))
		if err != nil || a.contains(b) != (lacks.text() == "") || !b.contains(lacks) {
			t.Fatalf("%q misses %q of %q, %v", a.text(), a.missing(b), b.text(), err)
		}
		both := a.clone()
		for src, list := range lacks.mysql { // what is missing, and no more
			for _, v := range list {
				for seq := v.first; seq <= v.last; seq++ {
					if !both.add(gtid{source: src, seq: seq}) {
						t.Fatalf("%q does not miss %s:%d, says %q", a.text(), src.text(), seq, lacks.text())
					}
				}
			}
		}
		if !both.contains(b) {
			t.Fatalf("%q misses more than %q of %q", a.text(), lacks.text(), b.text())
		}
		again, err := parseSet(MySQL, strings.ReplaceAll(a.text(), ",", " ,\n"))
		if err != nil || again.text() != a.text() {
			t.Fatalf("read again: %v, %v", again, err)
		}
		clone := a.clone()
		clone.add(gtid{source: source{sid: uuid.Max}, seq: 1})
		for src := range clone.mysql {
			clone.mysql[src][0].first = 0
		}
		if a.text() != again.text() {
			t.Fatal("a change of the clone changed the set")
		}
	})
}

func TestAMariaDBPositionIsTheLastOfEachDomain(t *testing.T) {
	s, err := parseSet(MariaDB, "1-7-20, 0-1-5")
	if err != nil {
		t.Fatal(err)
	}
	if s.text() != "0-1-5,1-7-20" {
		t.Errorf("text %q", s.text())
	}
	if !s.add(gtid{domain: 0, server: 2, seq: 6}) || s.add(gtid{domain: 0, server: 1, seq: 6}) || s.add(gtid{domain: 1, server: 7, seq: 1}) {
		t.Error("add does not keep the order of a domain")
	}
	if s.text() != "0-2-6,1-7-20" {
		t.Errorf("text %q", s.text())
	}
	for text, want := range map[string]string{"": "", "0-1-6": "", "0-1-7": "0-1-7", "2-1-1": "2-1-1", "0-9-1,1-9-21": "1-9-21"} {
		o, err := parseSet(MariaDB, text)
		if err != nil || s.missing(o) != want {
			t.Errorf("%q: missing %q, %v", text, s.missing(o), err)
		}
	}
}

func TestPositionsThatAreNoneAreRefused(t *testing.T) {
	id := "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	for f, texts := range map[Flavor][]string{
		MariaDB: {"0-1", "0-1-x", "0-1-2-3", "0-1-5,", ",", "0-1-5,0-2-6", "4294967296-1-1", id + ":1"},
		MySQL:   {id, id + ":", id + ":0", id + ":5-4", id + ":a", id + ":a:b:1", id + ":1:a", "x:1", "0-1-5", id + ":1,", id + ":1-2-3"},
	} {
		for _, text := range texts {
			if s, err := parseSet(f, text); err == nil {
				t.Errorf("%s %q: taken as %q", f, text, s.text())
			}
		}
	}
}

func FuzzParsedPositionsKeepTheirMeaning(f *testing.F) {
	f.Add("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:tag:1,0-1-5")
	f.Add("0-1-5,1-2-3")
	f.Fuzz(func(t *testing.T, text string) {
		for _, flavor := range []Flavor{MySQL, MariaDB} {
			s, err := parseSet(flavor, text)
			if err != nil {
				continue
			}
			again, err := parseSet(flavor, s.text())
			if err != nil || again.text() != s.text() || !again.contains(s) || !s.contains(again) {
				t.Errorf("%s %q: %q, then %v (%v)", flavor, text, s.text(), again, err)
			}
		}
	})
}

func TestAddingInOrderKeepsOneInterval(t *testing.T) {
	s := newGTIDSet(MySQL)
	for i := range 1000 {
		s.add(gtid{seq: uint64(i + 1)})
	}
	if got := s.mysql[source{}]; !slices.Equal(got, []interval{{1, 1000}}) {
		t.Errorf("intervals %v", got)
	}
	if got := fmt.Sprint(s.position()); got != "{mysql 00000000-0000-0000-0000-000000000000:1-1000}" {
		t.Error(got)
	}
}

func TestAPositionBeforeATransactionLacksThatOne(t *testing.T) {
	const sid = "00000000-0000-0000-0000-000000000001"
	for _, c := range []struct {
		flavor             Flavor
		gtids, gtid, wants string
		no                 bool
	}{
		{flavor: MySQL, gtids: sid + ":1-9", gtid: sid + ":4", wants: sid + ":1-3:5-9"},
		{flavor: MySQL, gtids: sid + ":1-9:a:1", gtid: sid + ":a:1", wants: sid + ":1-9"},
		{flavor: MySQL, gtids: sid + ":1-9", gtid: sid + ":10", no: true},
		{flavor: MariaDB, gtids: "0-1-9,1-1-5", gtid: "0-2-7", wants: "0-2-6,1-1-5"},
		{flavor: MariaDB, gtids: "0-1-9", gtid: "0-1-1", wants: ""},
		{flavor: MariaDB, gtids: "0-1-9", gtid: "1-1-1", no: true},
		{flavor: MariaDB, gtids: "0-1-9", gtid: "", no: true},
	} {
		p, ok := Position{c.flavor, c.gtids}.Before(c.gtid)
		if ok == c.no || ok && p != (Position{c.flavor, c.wants}) {
			t.Errorf("%q before %q: %q, %t", c.gtids, c.gtid, p.GTIDs, ok)
		}
	}
}

// Two servers of one domain count on from the same number: only the binlog's state tells
// that what the position names was logged by neither of the two that this server followed.
func TestAPositionThatTheServerPassedWithoutLoggingItIsAhead(t *testing.T) {
	i := ServerInfo{Flavor: MariaDB, Position: Position{MariaDB, "0-2-150"}, logged: "0-1-90,0-2-150"}
	for gtids, want := range map[string]error{"0-1-90": nil, "0-2-120": nil, "0-1-100": ErrAheadOfServer, "0-3-10": ErrAheadOfServer} {
		if err := i.Covers(Position{MariaDB, gtids}); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), gtids) {
			t.Errorf("%s: %v", gtids, err)
		}
	}
}

// What a promoted replica lacks of a position is behind the place where the two servers parted.
func TestAPositionGoesBackToWhereTheServersParted(t *testing.T) {
	for _, c := range []struct {
		flavor                 Flavor
		from, executed, logged string
		purged, want           string
	}{
		{MariaDB, "0-1-103", "0-2-110", "0-1-100,0-2-110", "", "0-1-100"},
		{MariaDB, "0-1-103,7-1-5", "0-2-101,7-1-9", "0-1-100,0-2-101,7-1-9", "", "0-1-100,7-1-5"},
		{MariaDB, "0-1-103", "0-2-110", "0-2-110", "", "0-2-110"},
		{MariaDB, "0-1-103", "0-1-50", "0-1-50", "", "0-1-50"},
		{MariaDB, "0-1-103", "0-1-200", "0-1-200", "0-1-120", "0-1-120"},
		{MySQL, setA + ":1-103", setA + ":1-100," + setB + ":1-10", "", "", setA + ":1-100"},
		{MySQL, setA + ":1-103", setA + ":1-99:101", "", "", setA + ":1-99:101"},
	} {
		i := ServerInfo{Flavor: c.flavor, Position: Position{c.flavor, c.executed}, Purged: Position{c.flavor, c.purged}, logged: c.logged}
		i.Logs = []LogFile{{Name: "binlog.000001"}}
		got, err := i.GoOn(Position{c.flavor, c.from})
		if err != nil || got.GTIDs != c.want {
			t.Errorf("%+v: %s, %v", c, got.GTIDs, err)
		}
	}
}

const (
	setA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	setB = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func TestAPositionBeforeAndBehind(t *testing.T) {
	for _, c := range []struct {
		at         Position
		n          uint64
		back, with string
	}{
		{Position{MariaDB, "0-1-100,7-2-3"}, 4, "0-1-96", "0-9-101,7-2-3"},
		{Position{MySQL, setA + ":1-50:60-61," + setB + ":1-3"}, 4, setA + ":1-50", setA + ":1-50:60-61," + setB + ":1-4"},
		{Position{MySQL, setA + ":1-50"}, 50, "", setA + ":1-50," + setB + ":4"},
		{Position{MySQL, ""}, 5, "", setB + ":4"},
	} {
		next := setB + ":4"
		if c.at.Flavor == MariaDB {
			next = "0-9-101"
		}
		back, err := c.at.Back(c.n)
		if err != nil || back.GTIDs != c.back {
			t.Errorf("%s back %d: %s, %v", c.at.GTIDs, c.n, back.GTIDs, err)
		}
		with, err := c.at.With(next)
		if err != nil || with.GTIDs != c.with {
			t.Errorf("%s with %s: %s, %v", c.at.GTIDs, next, with.GTIDs, err)
		}
	}
}
