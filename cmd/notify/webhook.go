package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// webhookJSON is a webhook in -o json. Times that are not known are left out.
type webhookJSON struct {
	Group       string              `json:"group"`
	URL         string              `json:"url"`
	State       string              `json:"state"`
	Reason      string              `json:"reason,omitempty"`
	Concurrency uint32              `json:"concurrency"`
	TimeoutMS   uint32              `json:"timeout_ms"`
	InFlight    uint32              `json:"in_flight"`
	PausedUntil *time.Time          `json:"paused_until,omitempty"`
	CreatedAt   *time.Time          `json:"created_at,omitempty"`
	ChangedAt   *time.Time          `json:"changed_at,omitempty"`
	DisabledAt  *time.Time          `json:"disabled_at,omitempty"`
	Secrets     []webhookSecretJSON `json:"secrets"`
	Secret      string              `json:"secret,omitempty"` // shown once
}

type webhookSecretJSON struct {
	KeyID     string     `json:"key_id"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
}

func (a *app) webhookCommand() *cobra.Command {
	return a.parent("webhook", "Push to groups over HTTP",
		a.webhookSet(), a.webhookLs(), a.webhookShow(), a.webhookTest(), a.webhookRotate(), a.webhookEnable(), a.webhookDisable(), a.webhookRm())
}

// webhookState says in a word whether a webhook is pushed to, and why not.
func webhookState(w *notifyv1.Webhook) (state, reason string) {
	switch {
	case w.GetDisabled():
		return "disabled", w.GetDisabledReason()
	case w.GetProblem() != "":
		return "broken", w.GetProblem()
	case w.GetPausedUntilUs() != 0:
		return "paused", "the receiver wants nothing before " + micros(w.GetPausedUntilUs())
	}
	return "enabled", ""
}

func webhookItem(w *notifyv1.Webhook) webhookJSON {
	state, reason := webhookState(w)
	item := webhookJSON{Group: w.GetGroup(), URL: w.GetUrl(), State: state, Reason: reason, Concurrency: w.GetConcurrency(), TimeoutMS: w.GetTimeoutMs(),
		InFlight: w.GetInFlight(), PausedUntil: timeOrNil(w.GetPausedUntilUs()), CreatedAt: timeOrNil(w.GetCreatedAtUs()),
		ChangedAt: timeOrNil(w.GetChangedAtUs()), DisabledAt: timeOrNil(w.GetDisabledAtUs()), Secrets: []webhookSecretJSON{}}
	for _, s := range w.GetSecrets() {
		item.Secrets = append(item.Secrets, webhookSecretJSON{KeyID: s.GetKeyId(), CreatedAt: timeOrNil(s.GetCreatedAtUs()), Until: timeOrNil(s.GetUntilUs())})
	}
	return item
}

// printWebhook shows a webhook, and its secret if that was made just now.
func (a *app) printWebhook(w *notifyv1.Webhook, secret string) error {
	item := webhookItem(w)
	item.Secret = secret
	pairs := []string{"group", item.Group, "url", item.URL, "state", item.State}
	if item.Reason != "" {
		pairs = append(pairs, "reason", item.Reason)
	}
	pairs = append(pairs, "concurrency", strconv.Itoa(int(item.Concurrency)), "timeout", (time.Duration(item.TimeoutMS) * time.Millisecond).String(),
		"in flight", strconv.Itoa(int(item.InFlight)))
	for _, s := range w.GetSecrets() {
		text := "of " + micros(s.GetCreatedAtUs()) + ", sealed with key " + s.GetKeyId()
		if s.GetUntilUs() != 0 {
			text += ", signs until " + micros(s.GetUntilUs())
		}
		pairs = append(pairs, "secret", text)
	}
	if secret != "" {
		pairs = append(pairs, "new secret", secret)
		a.say("give the new secret to the receiver: it is not shown again")
	}
	return a.printOne(item, pairs...)
}

func (a *app) webhookSet() *cobra.Command {
	var req notifyv1.SetWebhookRequest
	var timeout time.Duration
	var secretFile string
	cmd := &cobra.Command{
		Use: "set GROUP", Args: cobra.ExactArgs(1),
		Short: "Push a group's messages to a URL, or change how; without flags, seal its secrets with the broker's first key",
		RunE: a.action(func(cmd *cobra.Command, args []string) (err error) {
			req.Group = args[0]
			for flag, value := range map[string]int64{"concurrency": int64(req.Concurrency), "request-timeout": int64(timeout)} {
				if cmd.Flags().Changed(flag) && value <= 0 {
					return daemon.WithExitCode(daemon.ExitUsage, fmt.Errorf("--%s: must be above 0", flag))
				}
			}
			if req.TimeoutMs, err = milliseconds("--request-timeout", timeout); err != nil {
				return err
			}
			if req.Secret, err = a.secret(secretFile); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.SetWebhook(ctx, connect.NewRequest(&req))
				if err != nil {
					return err
				}
				return a.printWebhook(r.Msg.GetWebhook(), r.Msg.GetSecret())
			})
		}),
	}
	cmd.Flags().StringVar(&req.Url, "url", "", "where to push to, https or http")
	cmd.Flags().Uint32Var(&req.Concurrency, "concurrency", 0, "requests at once from one broker (default of a new webhook: 10)")
	spanVar(cmd.Flags(), &timeout, "request-timeout", 0, "whole time of one attempt (default of a new webhook: 15s)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the whsec_ secret of a new webhook, - for stdin; otherwise the broker makes one")
	return cmd
}

func (a *app) webhookLs() *cobra.Command {
	var p page
	return p.flags(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List webhooks", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, _ []string) error {
			r, err := admin.ListWebhooks(ctx, connect.NewRequest(&notifyv1.ListWebhooksRequest{After: p.after, Limit: p.limit}))
			if err != nil {
				return err
			}
			l := list{name: "webhooks", columns: []string{"group", "state", "url", "reason"}, next: r.Msg.GetNext()}
			for _, w := range r.Msg.GetWebhooks() {
				item := webhookItem(w)
				l.add(item, item.Group, item.State, item.URL, item.Reason)
			}
			return a.print(l)
		}),
	})
}

func (a *app) webhookShow() *cobra.Command {
	return a.webhookOne("show GROUP", "Show a webhook as the broker sees it", func(ctx context.Context, admin notifyv1connect.AdminClient, group string) (*notifyv1.Webhook, error) {
		r, err := admin.GetWebhook(ctx, connect.NewRequest(&notifyv1.GetWebhookRequest{Group: group}))
		if err != nil {
			return nil, err
		}
		return r.Msg.GetWebhook(), nil
	})
}

// webhookOne is a command that ends with a webhook to show.
func (a *app) webhookOne(use, short string, call func(context.Context, notifyv1connect.AdminClient, string) (*notifyv1.Webhook, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			w, err := call(ctx, admin, args[0])
			if err != nil {
				return err
			}
			return a.printWebhook(w, "")
		}),
	}
}

func (a *app) webhookEnable() *cobra.Command {
	return a.webhookOne("enable GROUP", "Push to a disabled webhook again", func(ctx context.Context, admin notifyv1connect.AdminClient, group string) (*notifyv1.Webhook, error) {
		r, err := admin.EnableWebhook(ctx, connect.NewRequest(&notifyv1.EnableWebhookRequest{Group: group}))
		if err != nil {
			return nil, err
		}
		return r.Msg.GetWebhook(), nil
	})
}

func (a *app) webhookDisable() *cobra.Command {
	var reason string
	cmd := a.webhookOne("disable GROUP", "Stop pushing; the messages wait", func(ctx context.Context, admin notifyv1connect.AdminClient, group string) (*notifyv1.Webhook, error) {
		r, err := admin.DisableWebhook(ctx, connect.NewRequest(&notifyv1.DisableWebhookRequest{Group: group, Reason: reason}))
		if err != nil {
			return nil, err
		}
		return r.Msg.GetWebhook(), nil
	})
	cmd.Flags().StringVar(&reason, "reason", "", "shown in listings")
	return cmd
}

func (a *app) webhookRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm GROUP", Short: "Forget a webhook and its secrets; the messages wait", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			if _, err := admin.RemoveWebhook(ctx, connect.NewRequest(&notifyv1.RemoveWebhookRequest{Group: args[0]})); err != nil {
				return err
			}
			return a.printOne(map[string]any{"group": args[0], "removed": true}, "group", args[0], "webhook", "removed")
		}),
	}
}

func (a *app) webhookRotate() *cobra.Command {
	var req notifyv1.RotateWebhookRequest
	var keep time.Duration
	var secretFile string
	cmd := &cobra.Command{
		Use: "rotate GROUP", Short: "Give a webhook another secret; the old one signs too until its time is over", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			req.Group = args[0]
			ms, err := milliseconds("--keep", keep)
			if err != nil {
				return err
			}
			req.KeepMs = &ms
			if req.Secret, err = a.secret(secretFile); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.RotateWebhook(ctx, connect.NewRequest(&req))
				if err != nil {
					return err
				}
				return a.printWebhook(r.Msg.GetWebhook(), r.Msg.GetSecret())
			})
		}),
	}
	spanVar(cmd.Flags(), &keep, "keep", 24*time.Hour, "how long the old secret goes on signing; 0 ends it at once")
	cmd.Flags().BoolVar(&req.Force, "force", false, "although two secrets sign now: the older one ends at once")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the new whsec_ secret, - for stdin; otherwise the broker makes one")
	return cmd
}

func (a *app) webhookTest() *cobra.Command {
	return &cobra.Command{
		Use: "test GROUP", Short: "Send one signed test event from the broker and tell what came back", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			a.timeout = max(a.timeout, webhookTestPatience)
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				r, err := admin.TestWebhook(ctx, connect.NewRequest(&notifyv1.TestWebhookRequest{Group: args[0]}))
				if err != nil {
					return err
				}
				m := r.Msg
				item := struct {
					Group        string `json:"group"`
					ID           string `json:"id"`
					Status       uint32 `json:"status,omitempty"`
					Acknowledged bool   `json:"acknowledged"`
					Words        string `json:"words"`
					DurationMS   uint32 `json:"duration_ms"`
				}{args[0], m.GetId(), m.GetStatus(), m.GetAcknowledged(), m.GetWords(), m.GetDurationMs()}
				if err := a.printOne(item, "group", args[0], "webhook-id", m.GetId(), "result", m.GetWords()); err != nil {
					return err
				}
				if !m.GetAcknowledged() {
					return daemon.WithExitCode(daemon.ExitFailed, fmt.Errorf("the webhook of group %s did not acknowledge", args[0]))
				}
				return nil
			})
		}),
	}
}
