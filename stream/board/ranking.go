package board

import (
	"cmp"
	"slices"
)

// cell is what is known of one value of a field: how many messages, and the sum of their
// amounts.
type cell struct{ count, amount int64 }

// A ranking counts messages by the value of a field, in bounded memory. While a field has no
// more than 2*limit values it is exact. When one more comes, the smallest are forgotten until
// limit are left: values that are large in the end are shown, with what was counted since they
// were last forgotten, which is then a lower bound.
type ranking struct {
	limit  int
	cells  map[string]*cell
	folded bool
	money  bool // by amount, not by count
}

func newRanking(limit int, money bool) *ranking {
	return &ranking{limit: limit, cells: map[string]*cell{}, money: money}
}

// add counts one message.
func (r *ranking) add(value string, amount int64) {
	c := r.cells[value]
	if c == nil {
		if len(r.cells) >= 2*r.limit {
			r.forget()
		}
		c = &cell{}
		r.cells[value] = c
	}
	c.count++
	c.amount += amount
}

// forget leaves the limit largest.
func (r *ranking) forget() {
	for _, e := range r.ordered()[r.limit:] {
		delete(r.cells, e.Value)
	}
	r.folded = true
}

// An entry is a value and what is counted for it.
type entry struct {
	Value  string `json:"value"`
	Count  int64  `json:"count"`
	Amount int64  `json:"amount,string"`
}

// ordered are all values, the largest first.
func (r *ranking) ordered() []entry {
	list := make([]entry, 0, len(r.cells))
	for value, c := range r.cells {
		list = append(list, entry{value, c.count, c.amount})
	}
	slices.SortFunc(list, r.compare)
	return list
}

// first are the n largest values: ten times a second there is no time to order all of them.
func (r *ranking) first(n int) []entry {
	list := make([]entry, 0, n+1)
	for value, c := range r.cells {
		e := entry{value, c.count, c.amount}
		i, _ := slices.BinarySearchFunc(list, e, r.compare)
		if i == n {
			continue
		}
		list = slices.Insert(list, i, e)
		list = list[:min(n, len(list))]
	}
	return list
}

// compare orders the larger before the smaller.
func (r *ranking) compare(a, b entry) int {
	if r.money && a.Amount != b.Amount {
		return cmp.Compare(b.Amount, a.Amount)
	}
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value))
}

// A shares is a field's largest values and the rest, which add up to the total.
type shares struct {
	Label   string  `json:"label"`
	Entries []entry `json:"entries"`
	// Other is all that is not among the entries.
	Other entry `json:"other"`
	// OtherValues is how many values that is, at least when Bounded: then there are more
	// than are counted apart, and the entries are lower bounds.
	OtherValues int  `json:"other_values"`
	Bounded     bool `json:"bounded"`
}

// largest are the n largest values of what adds up to a total.
func (r *ranking) largest(label string, n int, total cell) shares {
	s := shares{Label: label, Entries: r.first(n), Bounded: r.folded}
	s.OtherValues = len(r.cells) - len(s.Entries)
	s.Other = entry{Count: total.count, Amount: total.amount}
	for i := range s.Entries {
		s.Other.Count -= s.Entries[i].Count
		s.Other.Amount -= s.Entries[i].Amount
	}
	return s
}
