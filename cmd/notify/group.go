package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// groupJSON is a group in -o json.
type groupJSON struct {
	Name             string         `json:"name"`
	Topics           []string       `json:"topics"`
	Instances        []instanceJSON `json:"instances"`
	InFlight         uint64         `json:"in_flight"`
	Pending          uint64         `json:"pending"`
	PendingTruncated bool           `json:"pending_truncated"`
	InMemory         uint64         `json:"in_memory"`
	Down             bool           `json:"down"`
	CreatedAt        *time.Time     `json:"created_at,omitempty"`
}

type instanceJSON struct {
	Name     string `json:"name"`
	Peer     string `json:"peer"`
	Credit   uint32 `json:"credit"`
	InFlight uint32 `json:"in_flight"`
}

func groupItem(g *notifyv1.Group) groupJSON {
	item := groupJSON{
		Name: g.GetName(), Topics: g.GetTopics(), Instances: []instanceJSON{}, InFlight: g.GetInFlight(),
		Pending: g.GetPending(), PendingTruncated: g.GetPendingTruncated(), InMemory: g.GetInMemory(), Down: g.GetDown(), CreatedAt: timeOrNil(g.GetCreatedAtUs()),
	}
	if item.Topics == nil {
		item.Topics = []string{}
	}
	for _, i := range g.GetInstances() {
		item.Instances = append(item.Instances, instanceJSON{i.GetName(), i.GetPeer(), i.GetCredit(), i.GetInFlight()})
	}
	return item
}

// state says in words what the asked broker does with the group.
func (g groupJSON) state() string {
	switch {
	case g.Down:
		return "down: nearly every attempt failed; messages wait without attempts, a probe every 1 to 30 s tells when it is back"
	case len(g.Instances) == 0:
		return "away: nobody is attached; messages wait"
	}
	return "served"
}

// pending shows a count, with "+" when it stopped counting.
func (g groupJSON) pending() string {
	n := strconv.FormatUint(g.Pending, 10)
	if g.PendingTruncated {
		n += "+"
	}
	return n
}

func (a *app) groupCommand() *cobra.Command {
	return a.parent("group", "List, show and drop consumer groups", a.groupLs(), a.groupShow(), a.groupRm())
}

func (a *app) groupLs() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "ls", Short: "List groups, with what the asked broker knows of them", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListGroups(ctx, connect.NewRequest(&notifyv1.ListGroupsRequest{After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "groups", columns: []string{"group", "topics", "instances", "in flight", "pending"}, next: r.Msg.GetNext()}
			for _, g := range r.Msg.GetGroups() {
				item := groupItem(g)
				l.add(item, item.Name, strings.Join(item.Topics, ","), strconv.Itoa(len(item.Instances)), strconv.FormatUint(item.InFlight, 10), item.pending())
			}
			return a.print(l)
		}),
	})
}

func (a *app) groupShow() *cobra.Command {
	return &cobra.Command{
		Use: "show GROUP", Short: "Show a group, its instances and what waits for it", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.GetGroup(ctx, connect.NewRequest(&notifyv1.GetGroupRequest{Name: args[0]}))
			if err != nil {
				return err
			}
			item := groupItem(r.Msg.GetGroup())
			pairs := []string{
				"group", item.Name, "state", item.state(), "topics", strings.Join(item.Topics, ","), "in flight", strconv.FormatUint(item.InFlight, 10),
				"pending", item.pending(), "in memory", strconv.FormatUint(item.InMemory, 10), "created", micros(r.Msg.GetGroup().GetCreatedAtUs()),
			}
			for _, i := range item.Instances {
				pairs = append(pairs, "instance", fmt.Sprintf("%s at %s, %d of %d in flight", i.Name, i.Peer, i.InFlight, i.Credit))
			}
			return a.printOne(item, pairs...)
		}),
	}
}

func (a *app) groupRm() *cobra.Command {
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "rm GROUP", Short: "Drop a group, with its subscriptions and all that waits for it", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.GetGroup(ctx, connect.NewRequest(&notifyv1.GetGroupRequest{Name: args[0]}))
			if err != nil {
				return err
			}
			item := groupItem(r.Msg.GetGroup())
			a.say("group %s: %d subscriptions, %d instances and %s waiting deliveries at the asked broker", item.Name, len(item.Topics), len(item.Instances), item.pending())
			if dryRun {
				return a.printOne(item, "group", item.Name, "topics", strings.Join(item.Topics, ","), "pending", item.pending())
			}
			if err := a.confirm(yes); err != nil {
				return err
			}
			dropped, err := admin.DropGroup(ctx, connect.NewRequest(&notifyv1.DropGroupRequest{Name: item.Name}))
			if err != nil {
				return err
			}
			a.sayAway(dropped.Msg.GetStoresAway())
			return a.printOne(map[string]string{"name": item.Name}, "group", item.Name)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would go")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// confirm asks before something that cannot be undone, unless --yes was given.
func (a *app) confirm(yes bool) error {
	if yes {
		return nil
	}
	if !terminal(a.in) {
		return usageError(errors.New("this cannot be undone: --yes does it, --dry-run shows it"))
	}
	fmt.Fprint(a.err, "this cannot be undone; type yes to go on: ")
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
