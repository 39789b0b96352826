package stage

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// An API is the brokers' own API over gRPC, without our client's retries.
type API struct {
	s    *Stage
	http *http.Client
}

// API returns the brokers' API.
func (s *Stage) API() *API {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	s.t.Cleanup(transport.CloseIdleConnections)
	return &API{s: s, http: &http.Client{Transport: transport}}
}

// Messaging is the part of a broker's API for producers and consumers.
func (a *API) Messaging(broker *Program) notifyv1connect.MessagingClient {
	return notifyv1connect.NewMessagingClient(a.http, "http://"+broker.Addr, connect.WithGRPC())
}

// Admin is the part of a broker's API that declares and repairs.
func (a *API) Admin(broker *Program) notifyv1connect.AdminClient {
	return notifyv1connect.NewAdminClient(a.http, "http://"+broker.Addr, connect.WithGRPC())
}

// Call calls again until there is an answer that another try would not change, and returns
// its reason, or 0 for success. Only calls that may be repeated may be made so.
func (a *API) Call(limit time.Duration, what string, call func(context.Context) error) (reason notifyv1.Reason) {
	a.s.t.Helper()
	Eventually(a.s.t, limit, what, func() error {
		ctx, cancel := context.WithTimeout(a.s.t.Context(), 5*time.Second)
		defer cancel()
		err := call(ctx)
		if err == nil {
			reason = 0
			return nil
		}
		detail := Detail(err)
		if detail == nil || detail.GetRetryable() || detail.GetReason() == notifyv1.Reason_REASON_RESULT_UNKNOWN {
			return err
		}
		reason = detail.GetReason()
		return nil
	})
	return reason
}

// Detail is what a broker says about an error; nil: it said nothing.
func Detail(err error) *notifyv1.ErrorDetail {
	var e *connect.Error
	if !errors.As(err, &e) {
		return nil
	}
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*notifyv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}
