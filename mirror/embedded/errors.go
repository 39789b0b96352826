package embedded

import "errors"

var (
	// ErrInUse is returned by Start when another process, or this one, has the data
	// directory open.
	ErrInUse = errors.New("in use by another process")
	// ErrNotLoopback is returned by Start for an address that others could reach.
	ErrNotLoopback = errors.New("not a loopback address")
)
