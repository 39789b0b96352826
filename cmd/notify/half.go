package main

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// halfJSON is a half message in -o json. Times that are not known are left out.
type halfJSON struct {
	ID            string     `json:"id"`
	Topic         string     `json:"topic"`
	Key           string     `json:"key,omitempty"`
	ProducerGroup string     `json:"producer_group"`
	CheckURL      string     `json:"check_url,omitempty"`
	PreparedAt    *time.Time `json:"prepared_at,omitempty"`
	NextCheckAt   *time.Time `json:"next_check_at,omitempty"`
	Checks        uint32     `json:"checks"`
	Parked        bool       `json:"parked"`
	LastError     string     `json:"last_error,omitempty"`
	Why           string     `json:"why,omitempty"`
}

func halfItem(h *notifyv1.Half) halfJSON {
	m := h.GetMessage()
	return halfJSON{ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(), ProducerGroup: h.GetProducerGroup(), CheckURL: h.GetCheckUrl(),
		PreparedAt: timeOrNil(h.GetPreparedAtUs()), NextCheckAt: timeOrNil(h.GetNextCheckAtUs()), Checks: h.GetChecks(), Parked: h.GetParked(),
		LastError: h.GetLastError(), Why: h.GetWhy()}
}

func (a *app) halfCommand() *cobra.Command {
	return a.parent("half", "Look at half messages and decide those that nobody decides",
		a.halfLs(), a.halfShow(), a.halfCheck(),
		a.halfDecide("commit", "Make a half a message, in place of its producer", notifyv1.Decision_DECISION_COMMIT),
		a.halfDecide("rollback", "Remove a half, in place of its producer", notifyv1.Decision_DECISION_ROLLBACK))
}

func (a *app) halfLs() *cobra.Command {
	var p page
	var parked bool
	cmd := p.flags(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List half messages that are not decided", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListHalves(ctx, connect.NewRequest(&notifyv1.ListHalvesRequest{ParkedOnly: parked, After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "halves", columns: []string{"id", "topic", "producer group", "prepared", "checks", "next check"}, next: r.Msg.GetNext()}
			for _, h := range r.Msg.GetHalves() {
				next := micros(h.GetNextCheckAtUs())
				if h.GetParked() {
					next = "parked"
				}
				m := h.GetMessage()
				l.add(halfItem(h), m.GetId(), m.GetTopic(), h.GetProducerGroup(), micros(h.GetPreparedAtUs()), strconv.Itoa(int(h.GetChecks())), next)
			}
			return a.print(l)
		}),
	})
	cmd.Flags().BoolVar(&parked, "parked", false, "only those out of checks, which wait for a person")
	return cmd
}

func (a *app) halfDecide(name, short string, d notifyv1.Decision) *cobra.Command {
	return &cobra.Command{
		Use: name + " ID", Short: short + "; the first decision wins", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.DecideHalf(ctx, connect.NewRequest(&notifyv1.DecideHalfRequest{Id: args[0], Decision: d}))
			if err != nil {
				return err
			}
			item := struct {
				ID       string `json:"id"`
				Decision string `json:"decision"`
				Repeated bool   `json:"repeated"`
			}{args[0], name, r.Msg.GetRepeated()}
			return a.printOne(item, "id", args[0], "decision", name, "taken before", strconv.FormatBool(r.Msg.GetRepeated()))
		}),
	}
}
