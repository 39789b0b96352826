package canal

import (
	"fmt"
	"slices"
)

// GoOn is the nearest position to from at which the server can be read on: without what the
// server does not have, and with what it has dropped. What that leaves out or takes in again
// is what Minus tells. The error says why there is none.
func (i *ServerInfo) GoOn(from Position) (Position, error) {
	if i.Flavor == MariaDB && i.Logs == nil {
		return Position{}, &StopError{
			Reason: ErrGrant, What: "the server does not say what it has dropped",
			Mend: "GRANT REPLICATION CLIENT ON *.* TO the account that reads the binlog",
		}
	}
	var sets [3]*gtidSet
	for n, p := range []Position{from, i.Position, i.Purged} {
		var err error
		if sets[n], err = parseSet(i.Flavor, p.GTIDs); err != nil {
			return Position{}, &StopError{Reason: ErrPosition, Cause: err}
		}
	}
	set, executed, purged := sets[0], sets[1], sets[2]
	if err := set.keep(executed, i.logged); err != nil {
		return Position{}, err
	}
	set.merge(purged)
	return set.position(), nil
}

// keep takes out of s what executed does not have; state is a MariaDB server's binlog state.
// On MariaDB it goes back to the last transaction that the server has of the one that gave the
// position's GTID: behind it the two have parted, as after the promotion of a replica that had
// not got everything. When it has none of that one, nothing tells where, and s ends with the server.
func (s *gtidSet) keep(executed *gtidSet, state string) error {
	for src, list := range s.mysql {
		if s.mysql[src] = without(list, without(list, executed.mysql[src])); len(s.mysql[src]) == 0 {
			delete(s.mysql, src)
		}
	}
	logged, err := originsOf(state)
	if err != nil {
		return err
	}
	for d, g := range s.maria {
		last, has := executed.maria[d]
		switch shared := logged[origin{d, g.server}]; {
		case !has:
			delete(s.maria, d)
		case last.seq >= g.seq && (len(logged) == 0 || shared >= g.seq):
		case shared > 0:
			s.maria[d] = gtid{domain: d, server: g.server, seq: min(shared, g.seq)}
		default:
			s.maria[d] = last
		}
	}
	return nil
}

// merge puts all of o in.
func (s *gtidSet) merge(o *gtidSet) {
	for src, list := range o.mysql {
		all := append(slices.Clone(s.mysql[src]), list...)
		slices.SortFunc(all, func(a, b interval) int {
			if a.first < b.first {
				return -1
			}
			return min(1, int(a.first-b.first))
		})
		s.mysql[src] = joined(all)
	}
	for d, g := range o.maria {
		if mine, has := s.maria[d]; !has || mine.seq < g.seq {
			s.maria[d] = g
		}
	}
}

// Back is a position up to n transactions before p, of everyone who has counted one in it.
func (p Position) Back(n uint64) (Position, error) {
	set, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		return Position{}, err
	}
	for src, list := range set.mysql {
		last := list[len(list)-1].last
		if set.mysql[src] = without(list, []interval{{last - min(last, n) + 1, last}}); len(set.mysql[src]) == 0 {
			delete(set.mysql, src)
		}
	}
	for d, g := range set.maria {
		if g.seq <= n {
			delete(set.maria, d)
			continue
		}
		g.seq -= n
		set.maria[d] = g
	}
	return set.position(), nil
}

// With is p with the transaction of a GTID as its last.
func (p Position) With(gtid string) (Position, error) {
	set, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		return Position{}, err
	}
	one, err := parseSet(p.Flavor, gtid)
	if err != nil {
		return Position{}, err
	}
	set.merge(one)
	return set.position(), nil
}

// Minus is a text of what p holds and o does not; empty when there is nothing. On MariaDB it
// names the range of each domain.
func (p Position) Minus(o Position) (string, error) {
	mine, err := parseSet(p.Flavor, p.GTIDs)
	if err != nil {
		return "", err
	}
	if o.Flavor != p.Flavor {
		return mine.text(), nil
	}
	other, err := parseSet(o.Flavor, o.GTIDs)
	if err != nil {
		return "", err
	}
	more := other.missing(mine)
	if more != "" && p.Flavor == MariaDB {
		more = fmt.Sprintf("all behind %s, up to %s", other.textOr("the beginning"), more)
	}
	return more, nil
}

// textOr is the text, or another for the empty set.
func (s *gtidSet) textOr(empty string) string {
	if t := s.text(); t != "" {
		return t
	}
	return empty
}
