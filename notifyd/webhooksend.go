package notifyd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"notifymirror/notifyd/egress"
	"notifymirror/notifyd/webhook"
)

const (
	// answerBytes is how much of an answer's body is read, so that the connection can be used again,
	// and answerPatience for how long. The body means nothing.
	answerBytes    = 16 << 10
	answerPatience = time.Second
)

// A sent is what came of one request.
type sent struct {
	webhook.Verdict
	status int // 0: there was no answer
	took   time.Duration
}

// send makes one signed request. The target's timeout is the deadline of all of it.
func (w *webhooks) send(ctx context.Context, t *target, e webhook.Event, body []byte) sent {
	timeout := time.Duration(t.Timeout) * time.Microsecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	res, err := w.request(ctx, t, e, body, start)
	if err != nil {
		return sent{Verdict: failedRequest(err, timeout), took: time.Since(start)}
	}
	s := sent{Verdict: webhook.Judge(res.StatusCode, res.Header, time.Now()), status: res.StatusCode, took: time.Since(start)}
	enough := time.AfterFunc(answerPatience, cancel)
	defer enough.Stop()
	_, _ = io.CopyN(io.Discard, res.Body, answerBytes) // the status has said all
	_ = res.Body.Close()
	return s
}

func (w *webhooks) request(ctx context.Context, t *target, e webhook.Event, body []byte, now time.Time) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = e.Header()
	req.Header.Set("User-Agent", "notifyd/"+w.b.version)
	webhook.Sign(req.Header, e.ID, now, body, t.signers(w.b.main.clock.now())...)
	return w.http.Do(req)
}

// failedRequest says what became of a request without an answer.
func failedRequest(err error, timeout time.Duration) webhook.Verdict {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which may hold a secret
	}
	v := webhook.Verdict{Reason: err.Error(), Kind: kindConnect}
	op, isOp := errors.AsType[*net.OpError](err)
	_, isName := errors.AsType[*net.DNSError](err)
	timed, isTimed := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, egress.ErrBlocked):
		v.Kind = kindBlocked
	case errors.Is(err, context.DeadlineExceeded), isTimed && timed.Timeout():
		v.Kind, v.Reason = kindTimeout, fmt.Sprintf("no answer within %s", timeout)
	case isTLS(err):
		v.Kind = kindTLS
	case isName, isOp && op.Op == "dial":
	default:
		v.Kind = kindBroken
	}
	return v
}

func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || alert || record
}
