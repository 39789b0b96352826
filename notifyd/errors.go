package notifyd

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// An apiError is an error as callers of the API see it: one sentence and an ErrorDetail.
type apiError struct {
	detail *notifyv1.ErrorDetail
	code   connect.Code
}

func (e *apiError) Error() string { return e.detail.Message }

// traits of a reason: the code of the error, and whether SDKs may send the call again.
func traits(reason notifyv1.Reason) (code connect.Code, retryable bool) {
	switch reason {
	case notifyv1.Reason_REASON_INVALID, notifyv1.Reason_REASON_TOO_LARGE:
		return connect.CodeInvalidArgument, false
	case notifyv1.Reason_REASON_UNKNOWN_TOPIC, notifyv1.Reason_REASON_UNKNOWN_GROUP, notifyv1.Reason_REASON_UNKNOWN_HALF,
		notifyv1.Reason_REASON_UNKNOWN_WEBHOOK, notifyv1.Reason_REASON_UNKNOWN_SUBSCRIPTION:
		return connect.CodeNotFound, false
	case notifyv1.Reason_REASON_NOT_YOURS:
		return connect.CodePermissionDenied, false
	case notifyv1.Reason_REASON_DECIDED_OTHERWISE, notifyv1.Reason_REASON_DEFINED_OTHERWISE:
		return connect.CodeFailedPrecondition, false
	case notifyv1.Reason_REASON_CONFLICT, notifyv1.Reason_REASON_ALREADY_EXISTS:
		return connect.CodeAlreadyExists, false
	case notifyv1.Reason_REASON_OVERLOADED:
		return connect.CodeResourceExhausted, true
	case notifyv1.Reason_REASON_RESULT_UNKNOWN:
		return connect.CodeUnknown, false // only under an idempotency key
	case notifyv1.Reason_REASON_STORE_AWAY, notifyv1.Reason_REASON_BEHIND_FAILURE, notifyv1.Reason_REASON_UNAVAILABLE:
		return connect.CodeUnavailable, true
	}
	return connect.CodeInternal, false
}

func newError(reason notifyv1.Reason, format string, args ...any) *apiError {
	code, retryable := traits(reason)
	return &apiError{code: code, detail: &notifyv1.ErrorDetail{
		Reason: reason, Message: fmt.Sprintf(format, args...), Retryable: retryable}}
}

func unknownTopic(name string) *apiError {
	return newError(notifyv1.Reason_REASON_UNKNOWN_TOPIC, "topic %q is not declared: notify topic create %s", name, name)
}

func unknownGroup(name string) *apiError {
	return newError(notifyv1.Reason_REASON_UNKNOWN_GROUP,
		"group %q is not declared: notify sub add --group %s --topic TOPIC", name, name)
}

func unknownSubscription(group, topic string) *apiError {
	return newError(notifyv1.Reason_REASON_UNKNOWN_SUBSCRIPTION,
		"group %q does not subscribe to topic %q: notify sub add --group %s --topic %s", group, topic, group, topic)
}

// asAPIError turns any error into what a caller may see.
func asAPIError(err error) *apiError {
	var api *apiError
	var field *message.FieldError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &field):
		reason := notifyv1.Reason_REASON_INVALID
		if field.TooLarge() {
			reason = notifyv1.Reason_REASON_TOO_LARGE
		}
		e := newError(reason, "%s", field.Error())
		e.detail.Field, e.detail.Size, e.detail.Limit = field.Field, int64(field.Size), int64(field.Limit)
		return e
	case errors.Is(err, store.ErrCollides):
		e := newError(notifyv1.Reason_REASON_INVALID, "%s", err)
		e.detail.Field = "topic"
		return e
	case errors.Is(err, store.ErrExists):
		return newError(notifyv1.Reason_REASON_ALREADY_EXISTS, "%s", err)
	case errors.Is(err, store.ErrBusy):
		return newError(notifyv1.Reason_REASON_UNAVAILABLE, "%s", err)
	case store.IsAway(err):
		return newError(notifyv1.Reason_REASON_STORE_AWAY, "store away: %s", err)
	}
	return newError(notifyv1.Reason_REASON_INTERNAL, "%s", err)
}

// rpcError is the error that a handler returns.
func rpcError(err error) *connect.Error {
	api := asAPIError(err)
	out := connect.NewError(api.code, errors.New(api.detail.Message))
	if d, err := connect.NewErrorDetail(api.detail); err == nil {
		out.AddDetail(d)
	}
	return out
}

// halfProblem explains why a half was not decided or prepared.
func halfProblem(err error) *apiError {
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, store.ErrUnknownHalf):
		return newError(notifyv1.Reason_REASON_UNKNOWN_HALF, "%s: it was never prepared, or it was decided more than 24 h ago", err)
	case errors.Is(err, store.ErrDecidedOtherwise):
		return newError(notifyv1.Reason_REASON_DECIDED_OTHERWISE, "%s was taken first, and stays", err)
	case errors.Is(err, store.ErrNotYours):
		return newError(notifyv1.Reason_REASON_NOT_YOURS, "%s, which alone may decide it", err)
	}
	return newError(notifyv1.Reason_REASON_INTERNAL, "%s", err)
}

func conflict(p *publish, first uuid.UUID) *apiError {
	if p.item.Prepare != nil {
		return newError(notifyv1.Reason_REASON_CONFLICT, "a half with id %s was prepared with another content or producer group", first)
	}
	return newError(notifyv1.Reason_REASON_CONFLICT,
		"idempotency key %q of topic %q was used with another content by message %s", p.item.IdempotencyKey, p.item.Msg.Topic, first)
}

func storeRefused(name string, err error) *apiError {
	return newError(notifyv1.Reason_REASON_STORE_AWAY, "store %s refused the batch, nothing was stored: %s", name, err)
}
