package main

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// contentJSON is the content of a message in -o json.
type contentJSON struct {
	Headers map[string]string `json:"headers,omitempty"`
	// Body is set when it is UTF-8, else BodyBase64.
	Body       *string `json:"body,omitempty"`
	BodyBase64 string  `json:"body_base64,omitempty"`
}

func content(m *notifyv1.Message) contentJSON {
	c := contentJSON{Headers: m.GetHeaders()}
	if utf8.Valid(m.GetBody()) {
		text := string(m.GetBody())
		c.Body = &text
	} else {
		c.BodyBase64 = base64.StdEncoding.EncodeToString(m.GetBody())
	}
	return c
}

// contentPairs are the key, headers and body of a message as lines of text.
func contentPairs(m *notifyv1.Message) []string {
	var pairs []string
	if m.GetKey() != "" {
		pairs = append(pairs, "key", printable([]byte(m.GetKey())))
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetHeaders())) {
		pairs = append(pairs, "header", printable([]byte(name+"="+m.GetHeaders()[name])))
	}
	return append(pairs, "body", printable(m.GetBody()))
}

func (a *app) halfShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a half: its content, the checks made, and why it waits", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.GetHalf(ctx, connect.NewRequest(&notifyv1.GetHalfRequest{Id: args[0]}))
			if err != nil {
				return err
			}
			h := r.Msg.GetHalf()
			item := struct {
				halfJSON
				contentJSON
			}{halfItem(h), content(h.GetMessage())}
			pairs := append(halfPairs(h), contentPairs(h.GetMessage())...)
			return a.printOne(item, append(pairs, "why", h.GetWhy())...)
		}),
	}
}

func halfPairs(h *notifyv1.Half) []string {
	next := micros(h.GetNextCheckAtUs())
	if h.GetParked() {
		next = "parked"
	}
	pairs := []string{"id", h.GetMessage().GetId(), "topic", h.GetMessage().GetTopic(), "producer group", h.GetProducerGroup(),
		"prepared", micros(h.GetPreparedAtUs()), "checks", strconv.Itoa(int(h.GetChecks())), "next check", next}
	if h.GetCheckUrl() != "" {
		pairs = append(pairs, "asked at", h.GetCheckUrl())
	}
	if h.GetLastError() != "" {
		pairs = append(pairs, "last error", printable([]byte(h.GetLastError())))
	}
	return pairs
}

func (a *app) halfCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check ID", Short: "Have a half asked about now; a parked one gets a new budget of checks", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.CheckHalf(ctx, connect.NewRequest(&notifyv1.CheckHalfRequest{Id: args[0]}))
			if err != nil {
				return err
			}
			h := r.Msg.GetHalf()
			item := struct {
				halfJSON
				WasParked bool `json:"was_parked"`
			}{halfItem(h), r.Msg.GetWasParked()}
			return a.printOne(item, "id", args[0], "was parked", strconv.FormatBool(r.Msg.GetWasParked()), "why", h.GetWhy())
		}),
	}
}
