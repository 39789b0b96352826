package webhook

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEachStatusHasItsMeaning(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status     int
		retryAfter string
		want       Verdict
	}{
		{200, "", Verdict{Acked: true}},
		{204, "60", Verdict{Acked: true}},
		{299, "", Verdict{Acked: true}},
		{301, "", Verdict{Reason: "status 301 Moved Permanently: redirects are not followed", Kind: "status_3xx"}},
		{304, "", Verdict{Reason: "status 304 Not Modified: redirects are not followed", Kind: "status_3xx"}},
		{400, "60", Verdict{Reason: "status 400 Bad Request", Kind: "status_4xx"}},
		{410, "", Verdict{Gone: true, Reason: "status 410 Gone", Kind: "status_4xx"}},
		{429, "", Verdict{Reason: "status 429 Too Many Requests", Kind: "throttled"}},
		{429, "7", Verdict{Pause: 7 * time.Second, Reason: "status 429 Too Many Requests", Kind: "throttled"}},
		{500, "60", Verdict{Reason: "status 500 Internal Server Error", Kind: "status_5xx"}},
		{503, "", Verdict{Reason: "status 503 Service Unavailable", Kind: "status_5xx"}},
		{503, "120", Verdict{Pause: 2 * time.Minute, Reason: "status 503 Service Unavailable", Kind: "throttled"}},
		{599, "", Verdict{Reason: "status 599", Kind: "status_5xx"}},
		{101, "", Verdict{Reason: "status 101 Switching Protocols", Kind: "status_1xx"}},
	} {
		h := http.Header{}
		if c.retryAfter != "" {
			h.Set("Retry-After", c.retryAfter)
		}
		if got := Judge(c.status, h, now); got != c.want {
			t.Errorf("%d, Retry-After %q: %+v, want %+v", c.status, c.retryAfter, got, c.want)
		}
	}
}

func TestRetryAfterIsReadAndBounded(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "3599": 3599 * time.Second, "3600": MaxPause, "3601": MaxPause, "99999999999999999999999999": MaxPause,
		"-1": 0, "1.5": 0, "soon": 0, "": 0, "0x10": 0, " 5 ": 5 * time.Second,
		"Sun, 29 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sun, 29 Nov 2026 11:59:30 GMT": 0,
		"Fri, 31 Dec 9999 23:59:59 GMT": MaxPause, "Sunday, 29-Nov-26 12:00:30 GMT": 30 * time.Second,
	} {
		if got := Judge(503, http.Header{"Retry-After": {text}}, now).Pause; got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	wrong := http.Header{"Retry-After": {"Sun, 29 Nov 2020 12:00:30 GMT"}, "Date": {"Sun, 29 Nov 2020 12:00:00 GMT"}}
	if got := Judge(503, wrong, now).Pause; got != 30*time.Second {
		t.Errorf("by a receiver whose clock is years late: %s, want 30s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := http.Header{"Retry-After": {rapid.String().Draw(t, "retry-after")}, "Date": {rapid.String().Draw(t, "date")}}
		if d := Judge(rapid.IntRange(100, 999).Draw(t, "status"), h, now).Pause; d < 0 || d > MaxPause {
			t.Errorf("pause %s", d)
		}
	})
}
