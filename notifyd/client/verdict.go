package client

import (
	"errors"
	"fmt"
	"time"
)

// maxRetryAfter is the longest delay that a broker takes.
const maxRetryAfter = 24 * time.Hour

// RetryAfter is what a handler returns to have the delivery made again after d
// instead of after the group's backoff; err says why, to the operator. d is rounded
// up to milliseconds and cut to 24 h; not above 0, it is the group's backoff. The
// attempt counts as any other that failed.
func RetryAfter(d time.Duration, err error) error { return &RetryAfterError{Delay: d, Err: err} }

// RetryAfterError is the error of RetryAfter; it is found in a chain by errors.As.
type RetryAfterError struct {
	Delay time.Duration
	Err   error // may be nil
}

// Error tells the reason and the delay.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return fmt.Sprintf("%v (retry after %s)", e.Err, e.Delay)
}

// Unwrap returns the reason.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// Reject is what a handler returns when no further attempt can help, such as for a
// body that it cannot read: the delivery becomes a dead letter at once, which an
// operator can look at and redrive. err says why.
func Reject(err error) error { return &RejectError{Err: err} }

// RejectError is the error of Reject; it is found in a chain by errors.As.
type RejectError struct {
	Err error // may be nil
}

// Error tells the reason.
func (e *RejectError) Error() string {
	if e.Err == nil {
		return "rejected"
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *RejectError) Unwrap() error { return e.Err }

// settlementOf is what a handler's result does to its delivery; false: nothing.
// The gravest result in a chain counts.
func settlementOf(token []byte, err error) (settlement, bool) {
	s := settlement{token: token}
	if err == nil {
		return s, true
	}
	s.nack, s.reason = true, reasonText(err)
	var reject *RejectError
	var retry *RetryAfterError
	switch {
	case errors.As(err, &reject):
		s.reject = true
	case errors.Is(err, ErrUnsettled):
		return settlement{}, false
	case errors.As(err, &retry) && retry.Delay > 0:
		s.delayMS = uint32(millis(min(retry.Delay, maxRetryAfter)))
	}
	return s, true
}
