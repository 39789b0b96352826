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

// subJSON is a subscription in -o json.
type subJSON struct {
	Group        string     `json:"group"`
	Topic        string     `json:"topic"`
	CreatedAt    *time.Time `json:"created_at,omitempty"`
	GroupCreated *bool      `json:"group_created,omitempty"`
}

func (a *app) subCommand() *cobra.Command {
	return a.parent("sub", "Subscribe groups to topics", a.subAdd(), a.subLs())
}

func (a *app) subAdd() *cobra.Command {
	var group, topic string
	cmd := &cobra.Command{
		Use: "add --group G --topic T", Short: "Subscribe a group to a topic; creates the group when it is new", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := subscribe(ctx, admin, group, topic)
				if err != nil {
					return err
				}
				created := r.GetGroupCreated()
				item := subJSON{Group: group, Topic: topic, CreatedAt: timeOrNil(r.GetSubscription().GetCreatedAtUs()), GroupCreated: &created}
				a.sayAway(r.GetStoresAway())
				return a.printOne(item, "group", group, "topic", topic, "group created", strconv.FormatBool(created))
			})
		}),
	}
	cmd.Flags().StringVar(&group, "group", "", "consumer group")
	cmd.Flags().StringVar(&topic, "topic", "", "topic")
	required(cmd, "group", "topic")
	return cmd
}

func subscribe(ctx context.Context, admin notifyv1connect.AdminClient, group, topic string) (*notifyv1.AddSubscriptionResponse, error) {
	r, err := admin.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: group, Topic: topic}}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

func (a *app) subLs() *cobra.Command {
	var p page
	var group, topic string
	cmd := p.flags(&cobra.Command{
		Use: "ls", Short: "List subscriptions", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.ListSubscriptions(ctx, connect.NewRequest(&notifyv1.ListSubscriptionsRequest{Group: group, Topic: topic, After: p.after, Limit: p.limit}))
				if err != nil {
					return err
				}
				l := list{name: "subscriptions", columns: []string{"group", "topic", "created"}, next: r.Msg.GetNext()}
				for _, s := range r.Msg.GetSubscriptions() {
					l.add(subJSON{Group: s.GetGroup(), Topic: s.GetTopic(), CreatedAt: timeOrNil(s.GetCreatedAtUs())}, s.GetGroup(), s.GetTopic(), micros(s.GetCreatedAtUs()))
				}
				return a.print(l)
			})
		}),
	})
	cmd.Flags().StringVar(&group, "group", "", "only of this group")
	cmd.Flags().StringVar(&topic, "topic", "", "only to this topic")
	return cmd
}

// required marks flags; a name that is not a flag of cmd is a mistake in this program.
func required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.MarkFlagRequired(n); err != nil {
			panic(err)
		}
	}
}
