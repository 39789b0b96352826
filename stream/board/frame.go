package board

import (
	"slices"
	"strconv"
	"time"
)

// A frame is all that a page shows, whole: a page that misses some loses nothing.
// Times are milliseconds since 1970 by the server's clock, amounts whole minor units as
// text, since a browser's numbers end at 2^53.
type frame struct {
	// Page names the version of the page's files; a page of another one loads itself anew.
	Page  string `json:"page"`
	Title string `json:"title"`
	// State is reading (history; no numbers yet) or live.
	State state  `json:"state"`
	Now   int64  `json:"now"`
	AsOf  int64  `json:"as_of"`
	Note  string `json:"note,omitempty"`
	// Read is how many records of the history are read.
	Read int64 `json:"read,omitempty"`

	Since    string `json:"since,omitempty"`
	From     int64  `json:"from,omitempty"`
	Count    int64  `json:"count"`
	Money    bool   `json:"money"`
	Amount   string `json:"amount,omitempty"`
	Decimals int    `json:"decimals,omitempty"`
	Unit     string `json:"unit,omitempty"`
	NoAmount int64  `json:"no_amount,omitempty"`
	// NoAnswer is how many messages are not counted since the filter failed for them.
	NoAnswer int64   `json:"no_answer,omitempty"`
	Rate     float64 `json:"rate"`
	// Delay is the largest time from a message's INSERT to its frame of late; -1: no message.
	Delay   int64       `json:"delay"`
	Curve   frameCurve  `json:"curve"`
	Bars    []shares    `json:"bars,omitempty"`
	Top     []shares    `json:"top,omitempty"`
	Columns []string    `json:"columns,omitempty"`
	Recent  []recentRow `json:"recent,omitempty"`
	// Mirror and Groups are what the optional sources say.
	Mirror []mirrorState `json:"mirror,omitempty"`
	Groups []groupState  `json:"groups,omitempty"`
	// Silent are those of them that do not answer, each with how.
	Silent []string `json:"silent,omitempty"`
}

type state string

const (
	stateReading state = "reading"
	stateLive    state = "live"
)

// frameCurve is messages per step of Step seconds; the first begins at From, Unix time.
type frameCurve struct {
	From   int64   `json:"from"`
	Step   int64   `json:"step"`
	Counts []int64 `json:"counts"`
}

// fill puts what a tally knows into a frame.
func (t *tally) fill(f *frame, now time.Time) {
	t.advance(now)
	b := t.board
	f.Since = b.Since.String()
	if !t.from.IsZero() {
		f.From = t.from.UnixMilli()
	}
	f.Count, f.NoAmount, f.NoAnswer = t.total.count, t.noAmount, t.noAnswer
	if f.Money = b.money(); f.Money {
		f.Amount, f.Decimals, f.Unit = strconv.FormatInt(t.total.amount, 10), b.Decimals, b.Unit
	}
	f.Rate = t.curve.rate(now)
	f.Curve.Step = t.curve.step
	f.Curve.From, f.Curve.Counts = t.curve.points(now)
	for i, r := range t.bars {
		f.Bars = append(f.Bars, r.largest(b.Bars[i].Label, shownBars, t.total))
	}
	for i, r := range t.top {
		f.Top = append(f.Top, r.largest(b.Top[i].Label, shownTop, t.total))
	}
	for _, column := range b.Recent {
		f.Columns = append(f.Columns, column.Label)
	}
	f.Recent = slices.Clone(t.recent[max(0, len(t.recent)-shownRecent):])
	slices.Reverse(f.Recent)
	t.changed, t.waiting = false, time.Time{}
}

// mirrored is the instant up to which all is known to be in Kafka, by what the mirror says of
// each store. The newest record of a store is a sign of life of its mirror too, and the only one
// where no canald is asked: then a board on which nothing comes is not known to be up to date.
func mirrored(stores []mirrorState, newest map[string]time.Time) (at time.Time) {
	if len(stores) == 0 {
		for _, t := range newest {
			at = later(at, t)
		}
		return at
	}
	for i, m := range stores {
		known := newest[m.id]
		if m.AsOf > 0 {
			known = later(known, time.UnixMilli(m.AsOf))
		}
		if i == 0 {
			at = known
		}
		at = earlier(at, known)
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
