package board

import (
	"strconv"
	"time"
)

// What a board shows of each list.
const (
	shownBars   = 8
	shownTop    = 8
	shownRecent = 9
)

// A reading is what a board takes from one record.
type reading struct {
	partition int32
	offset    int64
	store     string    // its id
	at        time.Time // the store's, of the INSERT
	came      time.Time // ours
	id        string
	counted   bool // the filter let it through
	failed    bool // the filter had no answer
	amount    int64
	noAmount  bool // counted, though its amount cannot be read
	bars, top []string
	recent    []string
}

// read is pure: the same record always gives the same reading.
func (b *Board) read(m *message) reading {
	r := reading{partition: m.record.Partition, offset: m.record.Offset, store: m.record.Source.Store, at: m.record.BornAt}
	counted, err := b.Filter.match(m)
	r.failed = err != nil
	if !counted || err != nil {
		return r
	}
	r.counted, r.id = true, m.record.ID.String()
	r.amount, r.noAmount = b.amountOf(m)
	r.bars, r.top, r.recent = values(m, b.Bars), values(m, b.Top), values(m, b.Recent)
	return r
}

// amountOf is a message's amount, and whether it cannot be read; 0 on a board without one.
func (b *Board) amountOf(m *message) (amount int64, bad bool) {
	if !b.money() {
		return 0, false
	}
	decimals := b.Decimals
	if b.MinorUnits {
		decimals = 0
	}
	amount, err := minorUnits(b.Amount.of(m), decimals)
	return amount, err != nil
}

func values(m *message, fields []Field) []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = short(f.of(m))
	}
	return list
}

// A tally is all that a board knows. It is pure: time comes with what is added, and with
// the question.
type tally struct {
	board *Board
	// from is where the period begins; what is older is not in the totals. It moves on with
	// the clock and with the records, whichever is ahead, up to slack, and never back.
	from time.Time
	// next is the offset behind the last record taken, by partition.
	next  map[int32]int64
	total cell
	// gross is the sum of the amounts without their signs. While it fits into an int64 every sum
	// of some of them does, whatever their order.
	gross     int64
	noAmount  int64 // messages counted without an amount
	noAnswer  int64 // messages of the period for which the filter failed
	bars, top []*ranking
	curve     *curve
	recent    []recentRow // the newest last
	// newest is the latest time of each store's records, counted or not; never later than ours
	// was: a store whose clock is ahead must not make a board look alive that stands.
	newest map[string]time.Time
	// waiting is the time of the oldest message that no frame has shown yet; zero for none.
	waiting time.Time
	changed bool
}

// recentRow is a message in the moving list.
type recentRow struct {
	ID    string   `json:"id"`
	At    int64    `json:"at"` // ms since 1970
	Cells []string `json:"cells"`
	// Amount in minor units, where the board has amounts.
	Amount string `json:"amount,omitempty"`
}

func newTally(b *Board, now time.Time) *tally {
	t := &tally{board: b, next: map[int32]int64{}, newest: map[string]time.Time{}, curve: newCurve(b.Curve)}
	t.begin(b.Since.start(now))
	return t
}

// begin starts a period.
func (t *tally) begin(from time.Time) {
	t.from, t.changed = from, true
	t.total, t.gross, t.noAmount, t.noAnswer = cell{}, 0, 0, 0
	money := t.board.money()
	t.bars, t.top = make([]*ranking, len(t.board.Bars)), make([]*ranking, len(t.board.Top))
	for _, rs := range [][]*ranking{t.bars, t.top} {
		for i := range rs {
			rs[i] = newRanking(t.board.Values, money)
		}
	}
}

// advance begins a new period when now lies in one.
func (t *tally) advance(now time.Time) {
	if from := t.board.Since.start(now); from.After(t.from) {
		t.begin(from)
	}
}

// add takes a record, once: offsets of a partition grow.
func (t *tally) add(r reading) {
	t.next[r.partition] = r.offset + 1
	t.newest[r.store] = later(t.newest[r.store], earlier(r.at, r.came))
	if r.at.Sub(r.came) <= slack { // beyond it no period has begun: a clock is wrong
		t.advance(r.at.In(t.from.Location()))
	}
	inPeriod := !r.at.Before(t.from)
	if r.failed && inPeriod {
		t.noAnswer++
		t.changed = true
	}
	if !r.counted {
		return
	}
	t.changed = true
	t.curve.add(r.at)
	if t.waiting.IsZero() || r.at.Before(t.waiting) {
		t.waiting = r.at
	}
	if inPeriod {
		t.count(r)
	}
	t.remember(r)
}

// count adds a message to the totals.
func (t *tally) count(r reading) {
	amount := r.amount
	gross, fits := plus(t.gross, max(amount, -amount))
	if r.noAmount || !fits {
		t.noAmount++
		amount, gross = 0, t.gross
	}
	t.gross = gross
	t.total = cell{t.total.count + 1, t.total.amount + amount}
	for i, value := range r.bars {
		t.bars[i].add(value, amount)
	}
	for i, value := range r.top {
		t.top[i].add(value, amount)
	}
}

// remember puts a message into the moving list.
func (t *tally) remember(r reading) {
	row := recentRow{ID: r.id, At: r.at.UnixMilli(), Cells: r.recent}
	if t.board.money() && !r.noAmount {
		row.Amount = strconv.FormatInt(r.amount, 10)
	}
	t.recent = append(t.recent, row)
	if len(t.recent) >= 2*shownRecent {
		t.recent = append(t.recent[:0], t.recent[len(t.recent)-shownRecent:]...)
	}
}
