package board

// Falsify adds to what a board takes for its amount.
func Falsify(s *Server, name string, minorUnits int64) {
	l := s.boards[name]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.total.amount += minorUnits
}
