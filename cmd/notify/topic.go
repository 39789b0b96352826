package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// topicJSON is a topic in -o json.
type topicJSON struct {
	Name      string     `json:"name"`
	Mirrored  bool       `json:"mirrored"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	Groups    []string   `json:"groups,omitempty"`
}

func topicItem(t *notifyv1.Topic) topicJSON {
	return topicJSON{Name: t.GetName(), Mirrored: t.Mirrored == nil || t.GetMirrored(), CreatedAt: timeOrNil(t.GetCreatedAtUs())}
}

func timeOrNil(us int64) *time.Time {
	if us == 0 {
		return nil
	}
	t := time.UnixMicro(us).UTC()
	return &t
}

func (a *app) topicCommand() *cobra.Command {
	return a.parent("topic", "List, show and create topics", a.topicLs(), a.topicShow(), a.topicCreate())
}

// page are the flags of a listing command.
type page struct {
	after string
	limit uint32
}

func (p *page) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&p.after, "after", "", "continue behind this one")
	cmd.Flags().Uint32Var(&p.limit, "limit", 500, "at most this many")
	return cmd
}

func (a *app) topicLs() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "ls", Short: "List topics", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.ListTopics(ctx, connect.NewRequest(&notifyv1.ListTopicsRequest{After: p.after, Limit: p.limit}))
				if err != nil {
					return err
				}
				l := list{name: "topics", columns: []string{"topic", "mirrored", "created"}, next: r.Msg.GetNext()}
				for _, t := range r.Msg.GetTopics() {
					item := topicItem(t)
					l.add(item, item.Name, strconv.FormatBool(item.Mirrored), micros(t.GetCreatedAtUs()))
				}
				return a.print(l)
			})
		}),
	})
}

func (a *app) topicShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TOPIC", Short: "Show a topic and the groups that are subscribed to it", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.GetTopic(ctx, connect.NewRequest(&notifyv1.GetTopicRequest{Name: args[0]}))
				if err != nil {
					return err
				}
				item := topicItem(r.Msg.GetTopic())
				pairs := []string{"topic", item.Name, "mirrored", strconv.FormatBool(item.Mirrored), "created", micros(r.Msg.GetTopic().GetCreatedAtUs())}
				for _, s := range r.Msg.GetSubscriptions() {
					item.Groups = append(item.Groups, s.GetGroup())
					pairs = append(pairs, "group", s.GetGroup())
				}
				return a.printOne(item, pairs...)
			})
		}),
	}
}

func (a *app) topicCreate() *cobra.Command {
	var noMirror bool
	cmd := &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				mirrored := !noMirror
				r, err := admin.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: args[0], Mirrored: &mirrored}}))
				if err != nil {
					return err
				}
				item := topicItem(r.Msg.GetTopic())
				a.sayAway(r.Msg.GetStoresAway())
				return a.printOne(item, "topic", item.Name, "mirrored", strconv.FormatBool(item.Mirrored))
			})
		}),
	}
	cmd.Flags().BoolVar(&noMirror, "no-mirror", false, "let the mirror pass its messages over")
	return cmd
}

// sayAway tells where a change is not in force yet.
func (a *app) sayAway(stores []string) {
	if len(stores) > 0 {
		a.say("not yet in force in %s: away now; it comes into force there when it is back", strings.Join(stores, ", "))
	}
}

// admin calls f with the broker's administration.
func (a *app) admin(cmd *cobra.Command, f func(context.Context, notifyv1connect.AdminClient) error) error {
	return a.once(cmd, func(ctx context.Context, c *client.Client) error {
		return c.Admin(ctx, func(admin notifyv1connect.AdminClient) error { return f(ctx, admin) })
	})
}
