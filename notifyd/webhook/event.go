package webhook

import (
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Headers beside those of CloudEvents and Standard Webhooks.
const (
	HeaderGroup   = "Notify-Group"
	HeaderTopic   = "Notify-Topic"
	HeaderAttempt = "Notify-Attempt"
	// HeaderReplayed is "true" when the delivery is of a replay, and not there otherwise.
	HeaderReplayed = "Notify-Replayed"
	// HeaderPrefix begins the name of a header that is the message's own, percent-encoded
	// where HTTP does not take it.
	HeaderPrefix = "Notify-Header-"
)

// DefaultContentType is that of a message whose headers name none.
const DefaultContentType = "application/octet-stream"

// An Event is a delivery as the receiver sees it; its data is the message's body.
type Event struct {
	ID      string
	Topic   string
	Key     string
	Group   string
	Headers map[string]string // the message's own
	BornAt  time.Time
	Attempt int
	// Replayed is true when the group may have had the message long ago.
	Replayed bool
}

// Header makes the headers of the request, without the signature. Attributes of CloudEvents:
//
//	specversion  1.0
//	id           the message's id
//	source       /notify/topics/TOPIC
//	type         TOPIC
//	time         when the store took the message
//	partitionkey the message's key, if it has one
//
// A header ce-NAME of the message takes the place of an attribute, or adds one, but for id and
// specversion. Its content-type is the request's, its traceparent and tracestate are passed on
// as they are, and any other comes behind HeaderPrefix.
func (e Event) Header() http.Header {
	h := http.Header{}
	h.Set("Ce-Specversion", "1.0")
	h.Set("Ce-Id", e.ID)
	h.Set("Ce-Source", "/notify/topics/"+e.Topic)
	h.Set("Ce-Type", e.Topic)
	h.Set("Ce-Time", e.BornAt.UTC().Format(time.RFC3339Nano))
	if e.Key != "" {
		h.Set("Ce-Partitionkey", escape(e.Key, printable))
	}
	h.Set("Content-Type", DefaultContentType)
	h.Set(HeaderGroup, e.Group)
	h.Set(HeaderTopic, e.Topic)
	h.Set(HeaderAttempt, strconv.Itoa(e.Attempt))
	if e.Replayed {
		h.Set(HeaderReplayed, "true")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		value := e.Headers[name]
		switch lower := strings.ToLower(name); {
		case own(lower, value):
			h.Set(lower, value)
		case attribute(lower, value):
			h.Set(lower, escape(value, printable))
		default:
			h.Set(HeaderPrefix+escape(name, tokenByte), escape(value, printable))
		}
	}
	return h
}

// own reports whether a header of the message is one of the request under the same name.
func own(name, value string) bool {
	switch name {
	case "content-type":
		_, _, err := mime.ParseMediaType(value)
		return err == nil && ascii(value)
	case "traceparent", "tracestate":
		return value != "" && ascii(value)
	}
	return false
}

// attribute reports whether a header of the message is a right attribute of the event.
func attribute(name, value string) bool {
	name, ok := strings.CutPrefix(name, "ce-")
	if !ok || name == "" || value == "" || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return false
	}
	switch name {
	case "specversion", "id", "data", "database64", "datacontenttype":
		return false
	case "time":
		_, err := time.Parse(time.RFC3339, value)
		return err == nil
	case "source", "dataschema":
		_, err := url.Parse(value)
		return err == nil
	}
	return true
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// escape writes the bytes that plain does not take as %XX, as CloudEvents asks of header values.
func escape(s string, plain func(byte) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// printable is what the value of a header is written with.
func printable(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' }

// tokenByte is what the name of a header is written with.
func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0
}
