package main

import (
	"math"
	"slices"
	"time"
)

// percentile is the nearest-rank percentile of samples, p in (0, 1]; 0 without samples.
func percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the middle of the values, or the mean of the two in the middle; NaN without values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// A pair is one run of ours and one of what it is compared with, in the same unit.
type pair struct{ ours, other float64 }

func (p pair) ratio() float64 { return p.ours / p.other }

// ratios are those of pairs.
func ratios(pairs []pair) []float64 {
	out := make([]float64, len(pairs))
	for i, p := range pairs {
		out[i] = p.ratio()
	}
	return out
}

// column is one field of each value.
func column[T any](values []T, field func(T) float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = field(v)
	}
	return out
}
