package window

import "errors"

var (
	// ErrTooManyKeys is returned by Add when the event needs a new cell and there are
	// Config.MaxCells already: choose a key with fewer values, shorter windows, or a
	// greater limit.
	ErrTooManyKeys = errors.New("too many keys in the open windows")
	// ErrOverflow is returned by Add, and by Result.Total, when a sum does not fit into
	// 64 bits.
	ErrOverflow = errors.New("sum does not fit into 64 bits")
	// ErrTime is returned by Add and Advance for a time before 1700 or after 2200.
	ErrTime = errors.New("time is not between the years 1700 and 2200")
	// ErrSnapshot is returned by Restore for bytes that Snapshot did not write, or wrote
	// for windows of another kind.
	ErrSnapshot = errors.New("not a snapshot of such windows")
)
