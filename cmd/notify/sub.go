package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// subJSON is a subscription in -o json. Durations are texts such as 30s; those that are the
// broker's own are left out.
type subJSON struct {
	Group        string     `json:"group"`
	Topic        string     `json:"topic"`
	Filter       string     `json:"filter,omitempty"`
	Mode         string     `json:"mode"`
	AckWait      string     `json:"ack_wait,omitempty"`
	RetryMin     string     `json:"retry_min,omitempty"`
	RetryMax     string     `json:"retry_max,omitempty"`
	MaxAttempts  uint32     `json:"max_attempts,omitempty"`
	MaxAge       string     `json:"max_age,omitempty"`
	Version      uint64     `json:"version"`
	CreatedAt    *time.Time `json:"created_at,omitempty"`
	GroupCreated *bool      `json:"group_created,omitempty"`
}

func subItem(s *notifyv1.Subscription) subJSON {
	text := func(ms uint64) string {
		if ms == 0 {
			return ""
		}
		return (time.Duration(ms) * time.Millisecond).String()
	}
	d := s.GetDelivery()
	item := subJSON{Group: s.GetGroup(), Topic: s.GetTopic(), Filter: s.GetFilter(), Mode: "cluster", Version: max(1, s.GetVersion()),
		AckWait: text(uint64(d.GetAckWaitMs())), RetryMin: text(uint64(d.GetRetryMinMs())), RetryMax: text(uint64(d.GetRetryMaxMs())),
		MaxAttempts: d.GetMaxAttempts(), MaxAge: text(d.GetMaxAgeMs()), CreatedAt: timeOrNil(s.GetCreatedAtUs())}
	if s.GetMode() == notifyv1.Mode_MODE_BROADCAST {
		item.Mode = "broadcast"
	}
	return item
}

// pairs are a subscription's lines of text.
func (s subJSON) pairs() []string {
	out := []string{"group", s.Group, "topic", s.Topic, "mode", s.Mode}
	for _, p := range [][2]string{{"filter", s.Filter}, {"ack wait", s.AckWait}, {"retry min", s.RetryMin}, {"retry max", s.RetryMax},
		{"max attempts", orNone(s.MaxAttempts)}, {"max age", s.MaxAge}} {
		if p[1] != "" {
			out = append(out, p[0], p[1])
		}
	}
	return append(out, "version", strconv.FormatUint(s.Version, 10))
}

func orNone(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func (a *app) subCommand() *cobra.Command {
	return a.parent("sub", "Subscribe groups to topics", a.subAdd(), a.subLs(), a.subShow(), a.subSet(), a.subRm())
}

func (a *app) subAdd() *cobra.Command {
	var group, topic string
	var d definition
	cmd := &cobra.Command{
		Use: "add --group G --topic T", Short: "Subscribe a group to a topic; creates the group when it is new", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			s, err := d.subscription(cmd, group, topic)
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: s}))
				if err != nil {
					return err
				}
				created := r.Msg.GetGroupCreated()
				item := subItem(r.Msg.GetSubscription())
				item.GroupCreated = &created
				a.sayAway(r.Msg.GetStoresAway())
				return a.printOne(item, append(item.pairs(), "group created", strconv.FormatBool(created))...)
			})
		}),
	}
	cmd.Flags().StringVar(&group, "group", "", "consumer group")
	cmd.Flags().StringVar(&topic, "topic", "", "topic")
	required(cmd, "group", "topic")
	d.flags(cmd)
	return cmd
}

func (a *app) subLs() *cobra.Command {
	var p page
	var group, topic string
	cmd := p.flags(&cobra.Command{
		Use: "ls", Short: "List subscriptions", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListSubscriptions(ctx, connect.NewRequest(&notifyv1.ListSubscriptionsRequest{Group: group, Topic: topic, After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "subscriptions", columns: []string{"group", "topic", "mode", "created", "filter"}, next: r.Msg.GetNext()}
			for _, s := range r.Msg.GetSubscriptions() {
				item := subItem(s)
				l.add(item, item.Group, item.Topic, item.Mode, micros(s.GetCreatedAtUs()), item.Filter)
			}
			return a.print(l)
		}),
	})
	cmd.Flags().StringVar(&group, "group", "", "only of this group")
	cmd.Flags().StringVar(&topic, "topic", "", "only to this topic")
	return cmd
}

// subName takes GROUP/TOPIC apart.
func subName(arg string) (group, topic string, err error) {
	group, topic, ok := strings.Cut(arg, "/")
	if !ok || group == "" || topic == "" {
		return "", "", usageError(fmt.Errorf("%q: want GROUP/TOPIC", arg))
	}
	return group, topic, nil
}

func (a *app) subShow() *cobra.Command {
	return &cobra.Command{
		Use: "show GROUP/TOPIC", Short: "Show a subscription; settings that are not shown are the broker's", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			group, topic, err := subName(args[0])
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.ListSubscriptions(ctx, connect.NewRequest(&notifyv1.ListSubscriptionsRequest{Group: group, Topic: topic}))
				if err != nil {
					return err
				}
				for _, s := range r.Msg.GetSubscriptions() {
					item := subItem(s)
					return a.printOne(item, append(item.pairs(), "created", micros(s.GetCreatedAtUs()))...)
				}
				return daemon.WithExitCode(daemon.ExitNotFound, fmt.Errorf("group %q does not subscribe to topic %q: notify sub add --group %s --topic %s", group, topic, group, topic))
			})
		}),
	}
}

func (a *app) subSet() *cobra.Command {
	var d definition
	cmd := &cobra.Command{
		Use: "set GROUP/TOPIC", Short: "Change what is given of a subscription, for all instances of the group", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			group, topic, err := subName(args[0])
			if err != nil {
				return err
			}
			r, err := d.request(cmd)
			if err != nil {
				return err
			}
			if proto.Equal(r, &notifyv1.UpdateSubscriptionRequest{}) {
				return usageError(errors.New("nothing to change: give --filter, --mode or another setting"))
			}
			r.Group, r.Topic = group, topic
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				res, err := admin.UpdateSubscription(ctx, connect.NewRequest(r))
				if err != nil {
					return err
				}
				item := subItem(res.Msg.GetSubscription())
				a.sayAway(res.Msg.GetStoresAway())
				return a.printOne(item, item.pairs()...)
			})
		}),
	}
	d.flags(cmd)
	return cmd
}

func (a *app) subRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm GROUP/TOPIC", Short: "End a subscription; what waits for a retry is still delivered", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			group, topic, err := subName(args[0])
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.RemoveSubscription(ctx, connect.NewRequest(&notifyv1.RemoveSubscriptionRequest{Group: group, Topic: topic}))
				if err != nil {
					return err
				}
				a.sayAway(r.Msg.GetStoresAway())
				return a.printOne(map[string]string{"group": group, "topic": topic}, "group", group, "topic", topic)
			})
		}),
	}
}

// required marks flags; a name that is not a flag of cmd is a mistake in this program.
func required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.MarkFlagRequired(n); err != nil {
			panic(err)
		}
	}
}
