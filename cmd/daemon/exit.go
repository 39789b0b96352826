package daemon

import "errors"

// Exit codes of every program of ours.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2 // wrong flags, arguments or configuration
	ExitPartly      = 3 // some items failed, each named
	ExitNotFound    = 4
	ExitDenied      = 5 // credentials or grants
	ExitUnreachable = 6
)

// Coded is an error that knows the exit code of a program it ends.
type Coded interface {
	error
	ExitCode() int
}

// ExitCode returns the code of the first Coded error in err's tree, ExitOK for nil, and
// ExitFailed for any other error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if coded, ok := errors.AsType[Coded](err); ok {
		return coded.ExitCode()
	}
	return ExitFailed
}

// WithExitCode returns an error with err's text and the exit code, or nil for nil.
func WithExitCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return coded{err, code}
}

type coded struct {
	error
	code int
}

func (c coded) ExitCode() int { return c.code }
func (c coded) Unwrap() error { return c.error }
