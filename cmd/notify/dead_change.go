package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// deadChange is a command that changes dead letters.
type deadChange struct {
	deadFilter
	all, dryRun, yes bool
	rate             uint32
	verb             string // redriven or dropped
	call             func(notifyv1connect.AdminClient, context.Context, *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error)
}

func (c *deadChange) flags(cmd *cobra.Command) *cobra.Command {
	c.deadFilter.flags(cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, "every dead letter")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "only count them, and show some")
	return cmd
}

func (a *app) deadRedrive() *cobra.Command {
	c := &deadChange{verb: "redriven", call: notifyv1connect.AdminClient.RedriveDeadLetters}
	cmd := c.flags(&cobra.Command{
		Use: "redrive [ID…]", Short: "Deliver dead letters again; the messages keep their ids and are not mirrored again",
		RunE: a.action(func(cmd *cobra.Command, ids []string) error { return a.changeDead(cmd, c, ids) }),
	})
	cmd.Flags().Uint32Var(&c.rate, "rate", 0, "this many a second (default: the broker's redrive_rate)")
	return cmd
}

func (a *app) deadDrop() *cobra.Command {
	c := &deadChange{verb: "dropped", call: notifyv1connect.AdminClient.PurgeDeadLetters}
	cmd := c.flags(&cobra.Command{
		Use: "drop [ID…]", Aliases: []string{"purge"}, Short: "Delete dead letters for good",
		RunE: a.action(func(cmd *cobra.Command, ids []string) error {
			if !c.yes && !c.dryRun {
				return usageError(errors.New("what is dropped is gone for good: look with --dry-run, then say --yes"))
			}
			return a.changeDead(cmd, c, ids)
		}),
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "really delete them")
	return cmd
}

// deadChanged is the outcome of a change in -o json.
type deadChanged struct {
	Changed uint64 `json:"changed"`
	DryRun  bool   `json:"dry_run,omitempty"`
	// Truncated: counting stopped there.
	Truncated bool     `json:"truncated,omitempty"`
	NotFound  []string `json:"not_found,omitempty"`
	Problems  []string `json:"problems,omitempty"`
}

// changeDead calls the broker until nothing is left to do, and reports what was and was not done.
func (a *app) changeDead(cmd *cobra.Command, c *deadChange, ids []string) error {
	if len(ids) == 0 && c.empty() && !c.all {
		return usageError(errors.New("name ids, a filter, or --all"))
	}
	if c.all && (len(ids) > 0 || !c.empty()) {
		return usageError(errors.New("--all is for every dead letter: leave ids and filters out"))
	}
	req := &notifyv1.ChangeDeadLettersRequest{Filter: c.filter(ids), All: c.all, Rate: c.rate, DryRun: c.dryRun}
	var out deadChanged
	found := map[string]bool{}
	for more := true; more; {
		err := a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
			r, err := c.call(admin, ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			out.Changed += r.Msg.GetChanged()
			out.Problems = nil
			for _, s := range r.Msg.GetShards() {
				for _, id := range s.GetIds() {
					found[id] = true
				}
				if s.GetError() != "" {
					out.Problems = append(out.Problems, fmt.Sprintf("store %s shard %d: %s", s.GetStore(), s.GetShard(), s.GetError()))
				}
			}
			more, req.BeforeUs = r.Msg.GetMore(), r.Msg.GetBeforeUs()
			return nil
		})
		if err != nil && out.Changed > 0 {
			err = daemon.WithExitCode(daemon.ExitPartly, fmt.Errorf("%d dead letters %s, then: %w", out.Changed, c.verb, explain(err)))
		}
		if err != nil {
			return err
		}
		if c.dryRun {
			out.DryRun, out.Truncated = true, more
			break
		}
		if more {
			a.say("%d %s", out.Changed, c.verb)
		}
	}
	for _, id := range ids {
		if !found[strings.ToLower(id)] {
			out.NotFound = append(out.NotFound, id)
		}
	}
	return a.reportDead(cmd, c, ids, out)
}

func (a *app) reportDead(cmd *cobra.Command, c *deadChange, ids []string, out deadChanged) error {
	name, n := c.verb, strconv.FormatUint(out.Changed, 10)
	if c.dryRun {
		name = "would be " + c.verb
		if out.Truncated {
			n += "+"
		}
	}
	if err := a.printOne(out, name, n); err != nil {
		return err
	}
	if c.dryRun && a.format == "text" {
		if err := a.sampleDead(cmd, c, ids); err != nil {
			return err
		}
	}
	var failed []string
	for _, id := range out.NotFound {
		failed = append(failed, "message "+id+" has no dead letter")
	}
	failed = append(failed, out.Problems...)
	switch {
	case len(failed) == 0:
		return nil
	case len(out.NotFound) == len(ids) && len(ids) > 0 && len(out.Problems) == 0:
		return daemon.WithExitCode(daemon.ExitNotFound, errors.New(strings.Join(failed, "; ")))
	}
	return daemon.WithExitCode(daemon.ExitPartly, errors.New(strings.Join(failed, "; ")))
}

// sampleSize is how many dead letters a dry run shows.
const sampleSize = 5

func (a *app) sampleDead(cmd *cobra.Command, c *deadChange, ids []string) error {
	return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
		r, err := admin.ListDeadLetters(ctx, connect.NewRequest(&notifyv1.ListDeadLettersRequest{Filter: c.filter(ids), Limit: sampleSize}))
		if err != nil {
			return err
		}
		var rows [][]string
		for _, d := range r.Msg.GetDeadLetters() {
			rows = append(rows, []string{d.GetMessage().GetId(), d.GetMessage().GetTopic(), d.GetGroup(), d.GetReason(), printable([]byte(d.GetLastError()))})
		}
		return a.printRows(nil, rows)
	})
}
