package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// MaxPause is the longest time that a receiver may ask for by Retry-After; more is cut to it.
const MaxPause = time.Hour

// A Verdict is what an attempt came to.
type Verdict struct {
	// Acked: the receiver has taken the message, for good.
	Acked bool
	// Gone: the receiver wants no message any more.
	Gone bool
	// Pause is how long the receiver wants no request; 0: it did not say.
	Pause time.Duration
	// Reason says in words why it is not acked.
	Reason string
	// Kind is the reason as metrics have it.
	Kind string
}

// Judge reads an answer:
//
//	2xx        acked
//	410        failed, and the endpoint is to be disabled
//	429, 503   failed; Retry-After is honoured, at most MaxPause
//	3xx        failed: redirects are not followed
//	any other  failed
//
// The answer's own Date is what a date in Retry-After counts from, so that the receiver's
// clock may be wrong; now stands in for it.
func Judge(status int, h http.Header, now time.Time) Verdict {
	if status >= 200 && status < 300 {
		return Verdict{Acked: true}
	}
	v := Verdict{Reason: strings.TrimSpace(fmt.Sprintf("status %d %s", status, http.StatusText(status))), Kind: fmt.Sprintf("status_%dxx", status/100)}
	switch {
	case status >= 300 && status < 400:
		v.Reason += ": redirects are not followed"
	case status == http.StatusGone:
		v.Gone = true
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		v.Pause = retryAfter(strings.TrimSpace(h.Get("Retry-After")), now)
		if v.Pause > 0 || status == http.StatusTooManyRequests {
			v.Kind = "throttled"
		}
	}
	return v
}

// retryAfter reads seconds or a date. What is neither, or is past, is 0.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	if digits := strings.TrimLeft(text, "0123456789"); digits == "" {
		var d time.Duration
		for _, c := range text {
			if d = d*10 + time.Duration(c-'0')*time.Second; d >= MaxPause {
				return MaxPause
			}
		}
		return d
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(MaxPause, max(0, at.Sub(now)))
}
