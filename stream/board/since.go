package board

import (
	"errors"
	"time"
)

// A Since says from when on a board counts: "oldest" (all that Kafka holds), "hour" or
// "day" (the present one; it begins anew at each full hour, or at midnight), or a time such
// as 2026-11-11T00:00:00+08:00. The zero Since is oldest.
type Since struct {
	every time.Duration // time.Hour, or day
	at    time.Time
}

const day = 24 * time.Hour

// ParseSince reads the text of a Since.
func ParseSince(text string) (Since, error) {
	switch text {
	case "", "oldest":
		return Since{}, nil
	case "hour":
		return Since{every: time.Hour}, nil
	case "day":
		return Since{every: day}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Since{}, errors.New("want oldest, hour, day, or a time such as 2026-11-11T00:00:00+08:00")
	}
	return Since{at: at}, nil
}

// UnmarshalText implements encoding.TextUnmarshaler for configurations.
func (s *Since) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSince(string(text))
	return err
}

// start is where the period begins that now lies in, by the clock of now's zone; zero for
// oldest.
func (s Since) start(now time.Time) time.Time {
	y, m, d := now.Date()
	switch s.every {
	case time.Hour:
		return now.Add(-time.Duration(now.Minute())*time.Minute - time.Duration(now.Second())*time.Second - time.Duration(now.Nanosecond()))
	case day:
		return time.Date(y, m, d, 0, 0, 0, 0, now.Location())
	}
	return s.at
}

// String is the text that ParseSince reads.
func (s Since) String() string {
	switch {
	case s.every == time.Hour:
		return "hour"
	case s.every == day:
		return "day"
	case s.at.IsZero():
		return "oldest"
	}
	return s.at.Format(time.RFC3339)
}
