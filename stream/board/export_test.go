package board

import (
	"encoding/json"
	"fmt"
	"time"
)

// Falsify adds to what a board takes for its amount.
func Falsify(s *Server, name string, minorUnits int64) {
	l := s.boards[name]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.total.amount += minorUnits
}

// Day are the frames, as JSON, that a board shows over a day from an instant on, n of them.
func Day(s *Server, name string, from time.Time, n int) ([]string, error) {
	l := s.boards[name]
	t := newTally(&l.board, from)
	var frames []string
	for i := range n {
		now := from.Add(time.Duration(i) * 24 * time.Hour / time.Duration(n))
		for j := range 5 {
			k := 5*i + j
			t.add(reading{offset: int64(k), at: now.Add(-time.Duration(j) * time.Second), id: fmt.Sprint("id-", k), counted: true, amount: int64(k),
				bars: []string{fmt.Sprint("bar ", k%11)}, top: []string{fmt.Sprint("value ", k)}, recent: []string{fmt.Sprint("row ", k)}})
		}
		f := &frame{Page: l.page, Title: l.board.Title, State: stateLive, Now: now.UnixMilli(), AsOf: now.UnixMilli()}
		t.fill(f, now)
		text, err := json.Marshal(f)
		if err != nil {
			return nil, err
		}
		frames = append(frames, string(text))
	}
	return frames, nil
}

// Show makes a frame a board's latest.
func Show(s *Server, name, frame string) { s.boards[name].feed.set([]byte(frame)) }
