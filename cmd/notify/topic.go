package main

import (
	"context"
	"fmt"
	"math"
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
	// CheckAfter is a duration such as 30s, empty for the broker's setting.
	CheckAfter string `json:"check_after,omitempty"`
	// Durability is durable, replicated or memory.
	Durability string   `json:"durability"`
	Groups     []string `json:"groups,omitempty"`
}

func topicItem(t *notifyv1.Topic) topicJSON {
	item := topicJSON{Name: t.GetName(), Mirrored: t.Mirrored == nil || t.GetMirrored(), CreatedAt: timeOrNil(t.GetCreatedAtUs()), Durability: durabilityText(t.GetDurability())}
	if ms := t.GetCheckAfterMs(); ms > 0 {
		item.CheckAfter = (time.Duration(ms) * time.Millisecond).String()
	}
	return item
}

// topicPairs are a topic's lines of text.
func topicPairs(item topicJSON) []string {
	pairs := []string{"topic", item.Name, "mirrored", strconv.FormatBool(item.Mirrored), "durability", item.Durability}
	if item.CheckAfter != "" {
		pairs = append(pairs, "check after", item.CheckAfter)
	}
	return pairs
}

// durabilityText is a topic's durability in one word; a broker that says nothing has durable topics only.
func durabilityText(d notifyv1.Durability) string {
	if d == notifyv1.Durability_DURABILITY_UNSPECIFIED {
		d = notifyv1.Durability_DURABILITY_DURABLE
	}
	return strings.ToLower(strings.TrimPrefix(d.String(), durabilityPrefix))
}

const durabilityPrefix = "DURABILITY_"

// durabilityOf reads such a word.
func durabilityOf(text string) (notifyv1.Durability, error) {
	d := notifyv1.Durability(notifyv1.Durability_value[durabilityPrefix+strings.ToUpper(text)])
	if d == notifyv1.Durability_DURABILITY_UNSPECIFIED || durabilityText(d) != text {
		return d, usageError(fmt.Errorf("durability %q: want durable, replicated or memory", text))
	}
	return d, nil
}

func timeOrNil(us int64) *time.Time {
	if us == 0 {
		return nil
	}
	t := time.UnixMicro(us).UTC()
	return &t
}

func (a *app) topicCommand() *cobra.Command {
	return a.parent("topic", "List, show, create and set topics", a.topicLs(), a.topicShow(), a.topicCreate(), a.topicSet())
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
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListTopics(ctx, connect.NewRequest(&notifyv1.ListTopicsRequest{After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "topics", columns: []string{"topic", "mirrored", "durability", "created"}, next: r.Msg.GetNext()}
			for _, t := range r.Msg.GetTopics() {
				item := topicItem(t)
				l.add(item, item.Name, strconv.FormatBool(item.Mirrored), item.Durability, micros(t.GetCreatedAtUs()))
			}
			return a.print(l)
		}),
	})
}

func (a *app) topicShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TOPIC", Short: "Show a topic and the groups that are subscribed to it", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.GetTopic(ctx, connect.NewRequest(&notifyv1.GetTopicRequest{Name: args[0]}))
			if err != nil {
				return err
			}
			item := topicItem(r.Msg.GetTopic())
			pairs := append(topicPairs(item), "created", micros(r.Msg.GetTopic().GetCreatedAtUs()))
			for _, s := range r.Msg.GetSubscriptions() {
				item.Groups = append(item.Groups, s.GetGroup())
				pairs = append(pairs, "group", s.GetGroup())
			}
			return a.printOne(item, pairs...)
		}),
	}
}

func (a *app) topicCreate() *cobra.Command {
	var noMirror bool
	var checkAfter time.Duration
	var durability string
	cmd := &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			ms, err := milliseconds("--check-after", checkAfter)
			if err != nil {
				return err
			}
			d, err := durabilityOf(durability)
			if err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				mirrored := !noMirror
				r, err := admin.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{
					Topic: &notifyv1.Topic{Name: args[0], Mirrored: &mirrored, CheckAfterMs: ms, Durability: d}}))
				if err != nil {
					return err
				}
				item := topicItem(r.Msg.GetTopic())
				a.sayAway(r.Msg.GetStoresAway())
				return a.printOne(item, topicPairs(item)...)
			})
		}),
	}
	spanVar(cmd.Flags(), &checkAfter, "check-after", 0, "when a half that nobody decided is asked about first (0: the broker's check_after)")
	cmd.Flags().StringVar(&durability, "durability", "durable", "when a publish is acknowledged: durable (stored), replicated (a replica of the store has it too), or memory (never stored, lost when its broker dies)")
	cmd.Flags().BoolVar(&noMirror, "no-mirror", false, "let the mirror pass its messages over")
	return cmd
}

// milliseconds is a duration as the API has it.
func milliseconds(what string, d time.Duration) (uint32, error) {
	ms := d.Milliseconds()
	if d < 0 || ms > math.MaxUint32 || d != time.Duration(ms)*time.Millisecond {
		return 0, usageError(fmt.Errorf("%s %s: want whole milliseconds, 0 to 1193h", what, d))
	}
	return uint32(ms), nil
}

func (a *app) topicSet() *cobra.Command {
	return &cobra.Command{
		Use: "set TOPIC SETTING=VALUE", Short: "Change a setting of a topic: check_after (0 is the broker's again) or durability", Args: cobra.ExactArgs(2),
		Example: "  notify topic set orders check_after=5m\n  notify topic set orders durability=replicated",
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			req, err := topicSetting(args[1])
			if err != nil {
				return err
			}
			req.Name = args[0]
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.UpdateTopic(ctx, connect.NewRequest(req))
				if err != nil {
					return err
				}
				a.sayAway(r.Msg.GetStoresAway())
				item := topicItem(r.Msg.GetTopic())
				return a.printOne(item, topicPairs(item)...)
			})
		}),
	}
}

// topicSetting reads SETTING=VALUE.
func topicSetting(text string) (*notifyv1.UpdateTopicRequest, error) {
	switch name, value, _ := strings.Cut(text, "="); name {
	case "check_after":
		d, err := parseSpan(value)
		if err != nil {
			return nil, usageError(fmt.Errorf("check_after=%s: %w", value, err))
		}
		ms, err := milliseconds("check_after", d)
		return &notifyv1.UpdateTopicRequest{CheckAfterMs: &ms}, err
	case "durability":
		d, err := durabilityOf(value)
		return &notifyv1.UpdateTopicRequest{Durability: &d}, err
	}
	return nil, usageError(fmt.Errorf("%q: want check_after=DURATION, such as check_after=5m, or durability=durable or replicated", text))
}

// sayAway tells where a change is not in force yet.
func (a *app) sayAway(stores []string) {
	if len(stores) > 0 {
		a.say("not yet in force in %s: away now; it comes into force there when it is back", strings.Join(stores, ", "))
	}
}

// asking is the action of a command that only asks the broker's administration.
func (a *app) asking(f func(context.Context, notifyv1connect.AdminClient, []string) error) func(*cobra.Command, []string) error {
	return a.action(func(cmd *cobra.Command, args []string) error {
		return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error { return f(ctx, admin, args) })
	})
}

// admin calls f with the broker's administration.
func (a *app) admin(cmd *cobra.Command, f func(context.Context, notifyv1connect.AdminClient) error) error {
	return a.once(cmd, func(ctx context.Context, c *client.Client) error {
		return c.Admin(ctx, func(admin notifyv1connect.AdminClient) error { return f(ctx, admin) })
	})
}
