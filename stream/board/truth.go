package board

import (
	"context"
	"errors"
	"maps"
	"math/big"
	"strconv"
	"sync"
	"time"

	"notifymirror/stream"
)

// A Truth compares a board's total with the log it was made from: every record of the
// period, up to the offsets that the board had taken, is read again and counted anew.
type Truth struct {
	// Board and Log are the two totals; Equal when nothing is different.
	Board TruthTotal `json:"board"`
	Log   TruthTotal `json:"log"`
	Equal bool       `json:"equal"`
	// Offsets are behind the last record that the board had taken, by partition.
	Offsets map[int32]int64 `json:"offsets"`
	// Records is how many were read again, in Seconds.
	Records int64   `json:"records"`
	Seconds float64 `json:"seconds"`
}

// TruthTotal is one of the totals that a Truth compares.
type TruthTotal struct {
	Count int64 `json:"count"`
	// Amount in whole minor units; "0" on a board without amounts.
	Amount string `json:"amount"`
	// NoAmount is how many messages have no amount that can be read.
	NoAmount int64 `json:"no_amount"`
}

var (
	// ErrReading is returned by a check while the board has not read its history.
	ErrReading = errors.New("the board is still reading its history")
	// ErrChecking is returned by a check while another one runs.
	ErrChecking = errors.New("another check of this board is running")
)

// check reads the log again. It takes as long as reading the period does.
func (l *live) check(ctx context.Context) (Truth, error) {
	if !l.checking.TryLock() {
		return Truth{}, ErrChecking
	}
	defer l.checking.Unlock()
	begun := time.Now()
	truth, from, err := l.snapshot()
	if err != nil {
		return truth, err
	}
	var mu sync.Mutex
	sum := new(big.Int)
	cfg := l.config(func(r reading) {
		mu.Lock()
		defer mu.Unlock()
		truth.Records++
		switch {
		case !r.counted || r.at.Before(from):
			return
		case r.noAmount:
			truth.Log.NoAmount++
		default:
			sum.Add(sum, big.NewInt(r.amount))
		}
		truth.Log.Count++
	})
	cfg.Start, cfg.End = start(from), stream.AtOffsets(truth.Offsets, stream.Oldest())
	consumer, err := stream.New(cfg)
	if err != nil {
		return truth, err
	}
	if err := errors.Join(consumer.Run(ctx), ctx.Err()); err != nil {
		return truth, err
	}
	truth.Log.Amount = sum.String()
	truth.Equal = truth.Board == truth.Log
	truth.Seconds = time.Since(begun).Seconds()
	return truth, nil
}

// snapshot is the board's side of a Truth, and from when on it counts.
func (l *live) snapshot() (Truth, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	if t == nil {
		return Truth{}, time.Time{}, ErrReading
	}
	return Truth{
		Board:   TruthTotal{t.total.count, strconv.FormatInt(t.total.amount, 10), t.noAmount},
		Offsets: maps.Clone(t.next),
	}, t.from, nil
}
