package window

import (
	"fmt"
	"time"
)

// A Span is a window's time: from Start, inclusive, to End, exclusive.
type Span struct {
	Start, End time.Time
}

// String is the span in UTC.
func (s Span) String() string {
	return s.Start.UTC().Format(time.RFC3339Nano) + "/" + s.End.UTC().Format(time.RFC3339Nano)
}

// nanos is a time in nanoseconds since 1970.
func nanos(t time.Time) (int64, error) {
	if y := t.UTC().Year(); y < 1700 || y > 2200 {
		return 0, fmt.Errorf("%w: %s", ErrTime, t.UTC().Format(time.RFC3339))
	}
	return t.UnixNano(), nil
}

// starts appends the starts of the windows that hold a time, in ascending order. Windows
// start at multiples of slide since 1970.
func starts(dst []int64, at, size, slide int64) []int64 {
	last := at - mod(at, slide)
	first := last - (size-1-mod(at, slide))/slide*slide
	for start := first; start <= last; start += slide {
		dst = append(dst, start)
	}
	return dst
}

// mod is the remainder that is never negative.
func mod(a, b int64) int64 {
	if m := a % b; m >= 0 {
		return m
	} else {
		return m + b
	}
}
