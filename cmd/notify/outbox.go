package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// rejectedJSON is a rejected outbox row in -o json.
type rejectedJSON struct {
	Store      string     `json:"store"`
	Seq        int64      `json:"seq"`
	ID         string     `json:"id"`
	Topic      string     `json:"topic"`
	Key        string     `json:"key,omitempty"`
	RejectedAt *time.Time `json:"rejected_at,omitempty"`
	Reason     string     `json:"reason"`
}

func rejectedItem(r *notifyv1.Rejected) rejectedJSON {
	m := r.GetMessage()
	return rejectedJSON{Store: r.GetStore(), Seq: r.GetSeq(), ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(),
		RejectedAt: timeOrNil(r.GetRejectedAtUs()), Reason: r.GetReason()}
}

func (a *app) outboxCommand() *cobra.Command {
	return a.parent("outbox", "Look after what applications insert in their own transactions",
		a.parent("rejected", "Rows that cannot be messages: look at them, and put them back when the cause is mended",
			a.rejectedLs(), a.rejectedShow(), a.rejectedResubmit()))
}

func (a *app) rejectedLs() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List rejected outbox rows", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListRejected(ctx, connect.NewRequest(&notifyv1.ListRejectedRequest{After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "rejected", columns: []string{"store", "seq", "id", "topic", "rejected", "reason"}, next: r.Msg.GetNext()}
			for _, x := range r.Msg.GetRejected() {
				l.add(rejectedItem(x), x.GetStore(), strconv.FormatInt(x.GetSeq(), 10), x.GetMessage().GetId(), x.GetMessage().GetTopic(),
					micros(x.GetRejectedAtUs()), printable([]byte(x.GetReason())))
			}
			return a.print(l)
		}),
	})
}

func (a *app) rejectedShow() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use: "show SEQ", Short: "Show a rejected outbox row with its content and the reason", Args: cobra.ExactArgs(1),
		RunE: a.rejectedOne(func(cmd *cobra.Command, seq int64) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.GetRejected(ctx, connect.NewRequest(&notifyv1.GetRejectedRequest{Store: store, Seq: seq}))
				if err != nil {
					return err
				}
				x := r.Msg.GetRejected()
				item := struct {
					rejectedJSON
					HeaderText string `json:"header_text,omitempty"`
					contentJSON
				}{rejectedItem(x), string(x.GetHeaderText()), content(x.GetMessage())}
				pairs := []string{"store", x.GetStore(), "seq", strconv.FormatInt(seq, 10), "id", x.GetMessage().GetId(), "topic", x.GetMessage().GetTopic(),
					"rejected", micros(x.GetRejectedAtUs()), "headers", printable(x.GetHeaderText())}
				x.Message.Headers = nil // as the application wrote them, above
				pairs = append(pairs, contentPairs(x.GetMessage())...)
				return a.printOne(item, append(pairs, "reason", printable([]byte(x.GetReason())))...)
			})
		}),
	}
	cmd.Flags().StringVar(&store, "store", "", "store of the row, as ls shows it (default: the main store)")
	return cmd
}

func (a *app) rejectedResubmit() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use: "resubmit SEQ...", Short: "Put rejected rows back into the outbox, as its newest", Args: cobra.MinimumNArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			seqs, err := parseSeqs(args)
			if err != nil {
				return usageError(err)
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				return a.resubmit(ctx, admin, store, seqs)
			})
		}),
	}
	cmd.Flags().StringVar(&store, "store", "", "store of the row, as ls shows it (default: the main store)")
	return cmd
}

// resubmit puts rows back one by one, and says of each what became of it.
func (a *app) resubmit(ctx context.Context, admin notifyv1connect.AdminClient, store string, seqs []int64) error {
	failed := 0
	for _, seq := range seqs {
		_, err := admin.ResubmitRejected(ctx, connect.NewRequest(&notifyv1.ResubmitRejectedRequest{Store: store, Seq: seq}))
		if err != nil && len(seqs) == 1 {
			return err
		}
		item := struct {
			Seq   int64  `json:"seq"`
			Error string `json:"error,omitempty"`
		}{Seq: seq}
		outcome := "back in the outbox"
		if err != nil {
			failed++
			item.Error = shortCause(err)
			outcome = "failed: " + item.Error
		}
		if err := a.printOne(item, strconv.FormatInt(seq, 10), outcome); err != nil {
			return err
		}
	}
	if failed > 0 {
		return partly(failed, len(seqs))
	}
	return nil
}

// rejectedOne makes the function of a command whose argument is a seq.
func (a *app) rejectedOne(f func(*cobra.Command, int64) error) func(*cobra.Command, []string) error {
	return a.action(func(cmd *cobra.Command, args []string) error {
		seqs, err := parseSeqs(args)
		if err != nil {
			return usageError(err)
		}
		return f(cmd, seqs[0])
	})
}

func parseSeqs(args []string) ([]int64, error) {
	out := make([]int64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not the seq of an outbox row; notify outbox rejected ls shows them", arg)
		}
		out[i] = n
	}
	return out, nil
}
