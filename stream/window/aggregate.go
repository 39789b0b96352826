package window

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/axiomhq/hyperloglog"
)

// precision of the sketches: 2^12 registers.
const precision = 12

// An Aggregate is what came together in one window for one key.
type Aggregate struct {
	// Count of events.
	Count int64
	// Sum, Min and Max of their amounts, exact.
	Sum, Min, Max int64

	items *hyperloglog.Sketch // nil when nothing is counted by it
}

// Average is Sum / Count, as near as a float64 is; 0 without events.
func (a Aggregate) Average() float64 {
	if a.Count == 0 {
		return 0
	}
	return float64(a.Sum) / float64(a.Count)
}

// Distinct is about how many different items there were: an estimate with a standard
// error of 1.6 %. Show it as approximate. 0 unless Config.Distinct.
func (a Aggregate) Distinct() uint64 {
	if a.items == nil {
		return 0
	}
	return a.items.Estimate()
}

// with is the aggregate and one more amount.
func (a Aggregate) with(amount int64) (Aggregate, error) {
	one := Aggregate{Count: 1, Sum: amount, Min: amount, Max: amount}
	sum, err := a.and(one)
	sum.items = a.items
	return sum, err
}

// and is both together, but for the items.
func (a Aggregate) and(b Aggregate) (Aggregate, error) {
	if b.Sum > 0 && a.Sum > math.MaxInt64-b.Sum || b.Sum < 0 && a.Sum < math.MinInt64-b.Sum {
		return a, fmt.Errorf("%w: %d and %d", ErrOverflow, a.Sum, b.Sum)
	}
	if a.Count == 0 {
		return b, nil
	}
	return Aggregate{Count: a.Count + b.Count, Sum: a.Sum + b.Sum, Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}, nil
}

// A Result is a window and what is in it, by key.
type Result struct {
	Span
	Keys map[string]Aggregate
}

// Total is all keys together. The error wraps ErrOverflow.
func (r Result) Total() (Aggregate, error) {
	var total Aggregate
	for _, a := range r.Keys {
		items := total.items
		next, err := total.and(a)
		if err != nil {
			return Aggregate{}, err
		}
		if total = next; a.items != nil {
			if items == nil {
				items, _ = hyperloglog.NewSketch(precision, true) // the precision is in its range
			}
			if err := items.Merge(a.items); err != nil {
				return Aggregate{}, err
			}
		}
		total.items = items
	}
	return total, nil
}

// Ranked is a key and what came together for it.
type Ranked struct {
	Key string
	Aggregate
}

// Top are the k keys with the greatest value, such as func(a Aggregate) int64 { return
// a.Sum }, the greatest first; equal ones by key.
func (r Result) Top(k int, value func(Aggregate) int64) []Ranked {
	all := make([]Ranked, 0, len(r.Keys))
	for key, a := range r.Keys {
		all = append(all, Ranked{key, a})
	}
	slices.SortFunc(all, func(a, b Ranked) int {
		return cmp.Or(cmp.Compare(value(b.Aggregate), value(a.Aggregate)), strings.Compare(a.Key, b.Key))
	})
	return all[:min(max(k, 0), len(all))]
}
