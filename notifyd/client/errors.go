package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

var (
	// ErrUnreachable is in the chain of an error when a broker could not be
	// connected to, or the connection was lost before it answered.
	ErrUnreachable = errors.New("broker unreachable")
	// ErrClosed is returned by Publisher.Send, CommitAsync and RollbackAsync after
	// Close, and given to the messages that were unanswered when Publisher.Run was
	// cancelled.
	ErrClosed = errors.New("producer closed")
	// ErrUnsettled is what a handler returns to neither ack nor nack: the broker
	// delivers again when the ack wait has passed.
	ErrUnsettled = errors.New("delivery left unsettled")

	// ErrUndecided is in the chain of an error when a decision about a half got no
	// answer: it may have been taken, and if it was not, check-back resolves the half.
	ErrUndecided = errors.New("half message left to check-back")
	// ErrDecidedOtherwise is in the chain of an error when a half was decided the
	// other way before; the first decision stands.
	ErrDecidedOtherwise = errors.New("half message decided otherwise")
	// ErrUnknownHalf is in the chain of an error when a half was never prepared, or
	// was decided more than 24 h ago.
	ErrUnknownHalf = errors.New("no such half message")
	// ErrNotYours is in the chain of an error when a half is another producer group's.
	ErrNotYours = errors.New("half message of another producer group")
)

// Reason tells errors apart. The constants name those of the API.
type Reason = notifyv1.Reason

// The reasons; notify.proto says what each means and whether anything was stored.
const (
	ReasonUnspecified         = notifyv1.Reason_REASON_UNSPECIFIED
	ReasonInvalid             = notifyv1.Reason_REASON_INVALID
	ReasonTooLarge            = notifyv1.Reason_REASON_TOO_LARGE
	ReasonUnknownTopic        = notifyv1.Reason_REASON_UNKNOWN_TOPIC
	ReasonUnknownGroup        = notifyv1.Reason_REASON_UNKNOWN_GROUP
	ReasonOverloaded          = notifyv1.Reason_REASON_OVERLOADED
	ReasonResultUnknown       = notifyv1.Reason_REASON_RESULT_UNKNOWN
	ReasonConflict            = notifyv1.Reason_REASON_CONFLICT
	ReasonStoreAway           = notifyv1.Reason_REASON_STORE_AWAY
	ReasonBehindFailure       = notifyv1.Reason_REASON_BEHIND_FAILURE
	ReasonUnavailable         = notifyv1.Reason_REASON_UNAVAILABLE
	ReasonAlreadyExists       = notifyv1.Reason_REASON_ALREADY_EXISTS
	ReasonInternal            = notifyv1.Reason_REASON_INTERNAL
	ReasonUnknownHalf         = notifyv1.Reason_REASON_UNKNOWN_HALF
	ReasonDecidedOtherwise    = notifyv1.Reason_REASON_DECIDED_OTHERWISE
	ReasonNotYours            = notifyv1.Reason_REASON_NOT_YOURS
	ReasonUnknownSubscription = notifyv1.Reason_REASON_UNKNOWN_SUBSCRIPTION
	ReasonDefinedOtherwise    = notifyv1.Reason_REASON_DEFINED_OTHERWISE
)

// Error is every error that a call to a broker returns; use errors.As.
type Error struct {
	// Addr is the broker that was asked.
	Addr string
	// Reason is ReasonUnspecified when the broker gave none.
	Reason Reason
	// Message is the broker's text: what is wrong, where, and how to mend it.
	Message string
	// Field, Size and Limit are set for ReasonInvalid and ReasonTooLarge.
	Field string
	Size  int64
	Limit int64
	// Retryable is true when the same call may succeed later and nothing was
	// stored by this one.
	Retryable bool

	cause       error
	unreachable bool
}

// Error returns the broker's text, or names the broker and the cause.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("broker %s: %v", e.Addr, e.cause)
}

// Unwrap returns the transport's error, if any.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is work with ErrUnreachable, ErrDecidedOtherwise, ErrUnknownHalf
// and ErrNotYours.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnreachable:
		return e.unreachable
	case ErrDecidedOtherwise:
		return e.Reason == ReasonDecidedOtherwise
	case ErrUnknownHalf:
		return e.Reason == ReasonUnknownHalf
	case ErrNotYours:
		return e.Reason == ReasonNotYours
	}
	return false
}

// Code returns the Connect code of the call, 0 for the result of one message on
// a stream.
func (e *Error) Code() connect.Code {
	var ce *connect.Error
	if errors.As(e.cause, &ce) {
		return ce.Code()
	}
	return 0
}

// permanent reports whether asking again, here or elsewhere, cannot help.
func (e *Error) permanent() bool {
	if e.Retryable || e.Reason == ReasonResultUnknown {
		return false
	}
	if e.Reason != ReasonUnspecified {
		return e.Reason != ReasonInternal
	}
	switch e.Code() {
	case connect.CodeUnimplemented, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeInvalidArgument, connect.CodeNotFound:
		return true
	}
	return false
}

// callError turns what a call to addr returned into an *Error. What is not of
// Connect, such as nil, stays what it is.
func callError(addr string, err error) error {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return err
	}
	for _, d := range ce.Details() {
		v, verr := d.Value()
		if verr != nil {
			continue
		}
		if detail, ok := v.(*notifyv1.ErrorDetail); ok {
			e := detailError(addr, detail)
			e.cause = err
			return e
		}
	}
	e := &Error{Addr: addr, cause: err}
	e.unreachable = dialFailed(err) || ce.Code() == connect.CodeUnavailable && !errors.Is(err, context.Canceled)
	if dialFailed(err) {
		e.Retryable = true
		e.cause = dialCause(err)
	}
	return e
}

// streamEnded makes the end of a stream that should have gone on an error.
func streamEnded(err error) error {
	if errors.Is(err, io.EOF) {
		return connect.NewError(connect.CodeUnavailable, errors.New("broker ended the stream"))
	}
	return err
}

// detailError is the *Error of a result on a stream.
func detailError(addr string, d *notifyv1.ErrorDetail) *Error {
	return &Error{
		Addr: addr, Reason: d.GetReason(), Message: d.GetMessage(),
		Field: d.GetField(), Size: d.GetSize(), Limit: d.GetLimit(), Retryable: d.GetRetryable(),
	}
}

// dialFailed reports whether no connection was made: nothing reached the broker.
func dialFailed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func dialCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return err
}
