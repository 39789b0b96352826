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
func (s *gtidSet) keep(executed *gtidSet, state string) error {
	for src, list := range s.mysql {
		if s.mysql[src] = without(list, without(list, executed.mysql[src])); len(s.mysql[src]) == 0 {
			delete(s.mysql, src)
		}
	}
	for d, g := range s.maria {
		one := newGTIDSet(MariaDB)
		one.maria[d] = g
		never, err := unlogged(state, one)
		switch last, has := executed.maria[d]; {
		case err != nil:
			return err
		case !has:
			delete(s.maria, d)
		case never != "" || last.seq < g.seq: // nothing tells where the two parted
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
