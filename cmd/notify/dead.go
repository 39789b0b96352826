package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// deadJSON is a dead letter in -o json. The content is there when it was asked for.
type deadJSON struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Key        string            `json:"key,omitempty"`
	Group      string            `json:"group"`
	Store      string            `json:"store"`
	Reason     string            `json:"reason"`
	Attempts   uint32            `json:"attempts"`
	FirstError string            `json:"first_error,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	DeadAt     *time.Time        `json:"dead_at,omitempty"`
	BornAt     *time.Time        `json:"born_at,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	// Body is set when it is UTF-8, else BodyBase64.
	Body       *string `json:"body,omitempty"`
	BodyBase64 string  `json:"body_base64,omitempty"`
}

func deadItem(d *notifyv1.DeadLetter, content bool) deadJSON {
	m := d.GetMessage()
	item := deadJSON{ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(), Group: d.GetGroup(), Store: d.GetStore(), Reason: d.GetReason(),
		Attempts: d.GetAttempts(), FirstError: d.GetFirstError(), LastError: d.GetLastError(),
		DeadAt: timeOrNil(d.GetDeadAtUs()), BornAt: timeOrNil(m.GetBornAtUs()), Headers: m.GetHeaders()}
	switch body := m.GetBody(); {
	case !content:
	case utf8.Valid(body):
		text := string(body)
		item.Body = &text
	default:
		item.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}
	return item
}

// deadFilter is the flags that choose dead letters.
type deadFilter struct{ group, topic, reason string }

func (f *deadFilter) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.group, "group", "", "only of this group")
	cmd.Flags().StringVar(&f.topic, "topic", "", "only of this topic")
	cmd.Flags().StringVar(&f.reason, "reason", "", "only these: rejected, max_attempts or expired")
	return cmd
}

func (f *deadFilter) filter(ids []string) *notifyv1.DeadLetterFilter {
	return &notifyv1.DeadLetterFilter{Group: f.group, Topic: f.topic, Reason: f.reason, Ids: ids}
}

func (f *deadFilter) empty() bool { return *f == deadFilter{} }

func (a *app) deadCommand() *cobra.Command {
	return a.parent("dead", "Look at dead letters, deliver them again or delete them",
		a.deadLs(), a.deadShow(), a.deadExport(), a.deadRedrive(), a.deadDrop())
}

func (a *app) deadLs() *cobra.Command {
	var p page
	var f deadFilter
	var by string
	cmd := f.flags(p.flags(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List dead letters", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			if by != "" && by != "error" {
				return usageError(fmt.Errorf("--by %s: want error", by))
			}
			return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
				if by == "error" {
					return a.deadByError(ctx, admin, &f, p)
				}
				r, err := admin.ListDeadLetters(ctx, connect.NewRequest(&notifyv1.ListDeadLettersRequest{Filter: f.filter(nil), After: p.after, Limit: p.limit}))
				if err != nil {
					return err
				}
				l := list{name: "dead_letters", columns: []string{"id", "topic", "group", "reason", "attempts", "died", "last error"}, next: r.Msg.GetNext()}
				for _, d := range r.Msg.GetDeadLetters() {
					m := d.GetMessage()
					l.add(deadItem(d, false), m.GetId(), m.GetTopic(), d.GetGroup(), d.GetReason(), strconv.Itoa(int(d.GetAttempts())),
						micros(d.GetDeadAtUs()), printable([]byte(d.GetLastError())))
				}
				return a.print(l)
			})
		}),
	}))
	cmd.Flags().StringVar(&by, "by", "", "error: count them by group, reason and last error")
	return cmd
}

// byErrorMost is how many dead letters --by error looks at.
const byErrorMost = 10_000

// deadByError counts dead letters by what they have in common, most first.
func (a *app) deadByError(ctx context.Context, admin notifyv1connect.AdminClient, f *deadFilter, p page) error {
	type kind struct{ group, reason, err string }
	counts, seen, next := map[kind]int{}, 0, p.after
	for more := true; more && seen < byErrorMost; more = next != "" {
		r, err := admin.ListDeadLetters(ctx, connect.NewRequest(&notifyv1.ListDeadLettersRequest{Filter: f.filter(nil), After: next}))
		if err != nil {
			return err
		}
		for _, d := range r.Msg.GetDeadLetters() {
			counts[kind{d.GetGroup(), d.GetReason(), d.GetLastError()}]++
			seen++
		}
		next = r.Msg.GetNext()
	}
	l := list{name: "errors", columns: []string{"count", "group", "reason", "last error"}, next: next}
	kinds := make([]kind, 0, len(counts))
	for k := range counts {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(x, y kind) int {
		return cmp.Or(counts[y]-counts[x], strings.Compare(x.group, y.group), strings.Compare(x.reason, y.reason), strings.Compare(x.err, y.err))
	})
	for _, k := range kinds {
		l.add(struct {
			Count     int    `json:"count"`
			Group     string `json:"group"`
			Reason    string `json:"reason"`
			LastError string `json:"last_error,omitempty"`
		}{counts[k], k.group, k.reason, k.err}, strconv.Itoa(counts[k]), k.group, k.reason, printable([]byte(k.err)))
	}
	return a.print(l)
}

func (a *app) deadShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show the dead letters of one message, with its content", Args: cobra.ExactArgs(1),
		RunE: a.asking(func(ctx context.Context, admin notifyv1connect.AdminClient, args []string) error {
			r, err := admin.ListDeadLetters(ctx, connect.NewRequest(&notifyv1.ListDeadLettersRequest{Filter: (&deadFilter{}).filter(args), Bodies: true}))
			if err != nil {
				return err
			}
			dead := r.Msg.GetDeadLetters()
			if len(dead) == 0 {
				return noDeadLetter(args[0])
			}
			if a.format != "text" {
				l := list{name: "dead_letters"}
				for _, d := range dead {
					l.add(deadItem(d, true))
				}
				return a.print(l)
			}
			return a.printDead(dead)
		}),
	}
}

func noDeadLetter(id string) error {
	return daemon.WithExitCode(daemon.ExitNotFound, fmt.Errorf("message %s has no dead letter", id))
}

// printDead shows a message once, then each of its dead letters.
func (a *app) printDead(dead []*notifyv1.DeadLetter) error {
	m := dead[0].GetMessage()
	pairs := []string{"id", m.GetId(), "topic", m.GetTopic(), "key", printable([]byte(m.GetKey())), "born", micros(m.GetBornAtUs())}
	names := make([]string, 0, len(m.GetHeaders()))
	for name := range m.GetHeaders() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		pairs = append(pairs, "header", name+"="+printable([]byte(m.GetHeaders()[name])))
	}
	pairs = append(pairs, "body", printable(m.GetBody()))
	for _, d := range dead {
		pairs = append(pairs, "group", d.GetGroup(), "  reason", d.GetReason(), "  attempts", strconv.Itoa(int(d.GetAttempts())),
			"  died", micros(d.GetDeadAtUs()), "  first error", printable([]byte(d.GetFirstError())), "  last error", printable([]byte(d.GetLastError())))
	}
	return a.printOne(nil, pairs...)
}

func (a *app) deadExport() *cobra.Command {
	var f deadFilter
	return f.flags(&cobra.Command{
		Use: "export", Short: "Write dead letters with their content, one JSON object per line", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			for after, more := "", true; more; more = after != "" {
				err := a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
					r, err := admin.ListDeadLetters(ctx, connect.NewRequest(&notifyv1.ListDeadLettersRequest{Filter: f.filter(nil), After: after, Bodies: true}))
					if err != nil {
						return err
					}
					for _, d := range r.Msg.GetDeadLetters() {
						if err := a.printLine(deadItem(d, true)); err != nil {
							return err
						}
					}
					after = r.Msg.GetNext()
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}),
	})
}
