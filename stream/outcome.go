package stream

import (
	"errors"
	"fmt"
	"time"
)

// RetryAfter is what a handler returns to be called again with the same record, or the
// same batch, after a while. The partition waits meanwhile and others go on. A stop does
// not wait for it: the record is handled again by whoever reads the partition next.
func RetryAfter(d time.Duration) error { return &retryError{d} }

type retryError struct{ after time.Duration }

func (e *retryError) Error() string { return fmt.Sprintf("to be tried again after %s", e.after) }

// Reject is what a handler returns for a record that no try can handle, or a batch of
// them: it goes to Config.RejectTopic, and then its offset goes on. The reason is the
// text of the whole error, if the handler wraps this one. Without a reject topic the
// consumer stops with an error that wraps ErrNoRejectTopic.
func Reject(reason string) error { return &rejectError{reason} }

type rejectError struct{ reason string }

func (e *rejectError) Error() string { return e.reason }

// At tells which record of a batch an outcome is of: those before it are handled, and
// those behind it come again. It is nil for a nil error. Without At an outcome is that of
// the whole batch.
func At(r Record, err error) error {
	if err == nil {
		return nil
	}
	return &atError{r.Offset, err}
}

type atError struct {
	offset int64
	err    error
}

func (e *atError) Error() string { return fmt.Sprintf("offset %d: %v", e.offset, e.err) }
func (e *atError) Unwrap() error { return e.err }

// outcome is what a handler made of a batch: the first records are handled, and cause,
// if it is not nil, is what came up with the next ones.
type outcome struct {
	handled int
	with    int // how many records cause is of
	cause   error
}

// outcomeOf reads what a handler returned for a batch.
func outcomeOf(batch []Record, err error) outcome {
	if err == nil {
		return outcome{handled: len(batch)}
	}
	at, ok := errors.AsType[*atError](err)
	if !ok {
		return outcome{with: len(batch), cause: err}
	}
	for i, r := range batch {
		if r.Offset == at.offset {
			return outcome{handled: i, with: 1, cause: at.err}
		}
	}
	return outcome{with: len(batch), cause: fmt.Errorf("At: offset %d is not of this batch: %w", at.offset, errNotOfBatch)}
}
