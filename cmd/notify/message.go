package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/stream"
)

// searchMargin is how far the clock of who named a message may be ahead of the store's.
const searchMargin = time.Minute

// showFlags are those of message show.
type showFlags struct {
	topic, key, since, until, prefix string
	noMirror                         bool
}

func (a *app) messageCommand() *cobra.Command {
	return a.parent("message", "Look at one message", a.messageShow())
}

func (a *app) messageShow() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one message's life: where it is, what each group has done about it, and why it waits",
		Long: `Show one message's life: where it is in the stores, what each group has done about
it and why it waits, and where its record is in the mirror.

The mirror has no index of ids. Records are read from the time in the id on (a UUIDv7
has one), or from the message's own when a store still knows it, for a day. A message
that was prepared or stood in an outbox may be days younger than its id: --until.`,
		Example: `  notify message show 0199f2a4-6f0c-7d1e-9d0a-6a4c3b1f2e10
  notify message show 0199f2a4-6f0c-7d1e-9d0a-6a4c3b1f2e10 --topic orders --key 42 --until 72h`,
		Args: cobra.ExactArgs(1),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.topic, "topic", "", "search the mirror of this topic (default: the message's; if nobody knows it, all)")
	fl.StringVar(&f.key, "key", "", "search the partition of this key first, and the others only if it is not there")
	fl.StringVar(&f.since, "since", "", "search the mirror from there on: a time such as 2026-11-29T14:00:00Z, or how long ago (default: the message's time)")
	fl.StringVar(&f.until, "until", "24h", "and to there: a time, or how long after")
	fl.StringVar(&f.prefix, "prefix", "notify.", "prefix of the mirror's topics in Kafka")
	fl.BoolVar(&f.noMirror, "no-mirror", false, "do not search the mirror")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return fmt.Errorf("ID %q: not a UUID", args[0])
		}
		now := time.Now()
		since, err := ago(f.since, now)
		if err != nil {
			return fmt.Errorf("--since: %w", err)
		}
		if _, err := after(f.until, now); err != nil {
			return fmt.Errorf("--until: %w", err)
		}
		return a.action(func(cmd *cobra.Command, _ []string) error { return a.showMessage(cmd, f, id, since) })(cmd, args)
	}
	return cmd
}

// ago reads a time, or how long it was before now; empty is none.
func ago(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := parseSpan(text); err == nil {
		return now.Add(-d), nil
	}
	return at(text)
}

// after reads a time, or how long it is after from.
func after(text string, from time.Time) (time.Time, error) {
	if d, err := parseSpan(text); err == nil {
		return from.Add(d), nil
	}
	return at(text)
}

func at(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q: want a time such as 2026-11-29T14:00:00Z, or a duration such as 15m or 7d", text)
	}
	return t, nil
}

// showMessage asks the stores' side, then looks into the mirror, and shows both.
func (a *app) showMessage(cmd *cobra.Command, f showFlags, id uuid.UUID, since time.Time) error {
	out := &messageLife{ID: id.String()}
	res := &notifyv1.ShowMessageResponse{}
	var topics []string
	err := a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
		r, err := admin.ShowMessage(ctx, connect.NewRequest(&notifyv1.ShowMessageRequest{Id: id.String()}))
		if err != nil {
			return err
		}
		res = r.Msg
		if f.topic == "" && knownTopic(res) == "" {
			topics, err = mirroredTopics(ctx, admin)
		}
		return err
	})
	switch {
	case errors.Is(err, client.ErrUnreachable) && f.topic != "" && !f.noMirror: // the mirror's half is known without
		res.Unknown = []string{"the stores: " + explain(err).Error()}
	case err != nil:
		return err
	}
	if known := cmp.Or(f.topic, knownTopic(res)); known != "" {
		topics = []string{known}
	}
	out.fill(res)
	kafka, err := a.kafka.read()
	if err != nil {
		return err
	}
	s := search{kafka: kafka, prefix: f.prefix, topics: topics, key: f.key, dial: min(3*time.Second, a.timeout)}
	out.Mirror.NotSearched = notInMirror(res, f)
	if out.Mirror.NotSearched == "" {
		if out.Mirror.NotSearched, err = s.setRange(res, f, id, since); err != nil {
			return usageError(fmt.Errorf("--until: %w", err))
		}
	}
	if out.Mirror.NotSearched == "" {
		a.say("searching the mirror from %s to %s", clock(s.from), clock(s.until))
		var r *stream.Record
		r, out.Mirror.Searched = s.run(cmd.Context(), id)
		out.Mirror.Record = recordItem(r)
	}
	out.conclude()
	if err := a.printOne(out, out.pairs()...); err != nil {
		return err
	}
	return out.verdict()
}

// knownTopic is the topic as far as the stores tell it.
func knownTopic(r *notifyv1.ShowMessageResponse) string {
	for _, s := range r.GetStored() {
		return s.GetMessage().GetTopic()
	}
	return r.GetDedup().GetTopic()
}

// mirroredTopics are all that are declared and mirrored.
func mirroredTopics(ctx context.Context, admin notifyv1connect.AdminClient) (names []string, err error) {
	for after, more := "", true; more; more = after != "" {
		r, err := admin.ListTopics(ctx, connect.NewRequest(&notifyv1.ListTopicsRequest{After: after}))
		if err != nil {
			return nil, err
		}
		for _, t := range r.Msg.GetTopics() {
			if topicItem(t).Mirrored {
				names = append(names, t.GetName())
			}
		}
		after = r.Msg.GetNext()
	}
	return names, nil
}

// notInMirror says why there is no point in looking into the mirror, or nothing.
func notInMirror(r *notifyv1.ShowMessageResponse, f showFlags) string {
	switch {
	case f.noMirror:
		return "not searched: --no-mirror"
	case len(r.GetStored()) > 0:
		return ""
	case r.GetHalf() != nil:
		return "not searched: a half is mirrored when it is committed"
	case r.GetDecision() == notifyv1.Decision_DECISION_ROLLBACK:
		return "not searched: what was rolled back is not mirrored"
	case len(r.GetOutbox()) > 0 || len(r.GetRejected()) > 0:
		return "not searched: an outbox row is mirrored when it is relayed"
	}
	return ""
}

// setRange decides which time is searched; when none can be known it says so.
func (s *search) setRange(r *notifyv1.ShowMessageResponse, f showFlags, id uuid.UUID, since time.Time) (unknown string, err error) {
	base := since
	for _, m := range r.GetStored() {
		if base.IsZero() {
			base = time.UnixMicro(m.GetMessage().GetBornAtUs())
		}
	}
	if base.IsZero() && r.GetDecision() == notifyv1.Decision_DECISION_COMMIT {
		base = time.UnixMicro(r.GetDecidedAtUs())
	}
	if base.IsZero() && id.Version() == 7 {
		sec, nsec := id.Time().UnixTime()
		base = time.Unix(sec, nsec)
	}
	if base.IsZero() {
		return "not searched: the id has no time in it (it is no UUIDv7); give --since", nil
	}
	s.from = base
	if since.IsZero() {
		s.from = base.Add(-searchMargin)
	}
	if epoch := time.Unix(0, 0); s.from.Before(epoch) { // Kafka knows no earlier time
		s.from = epoch
	}
	s.until, err = after(f.until, base)
	if err == nil && !s.until.After(s.from) {
		err = fmt.Errorf("%s is not after %s, where the search begins", clock(s.until), clock(s.from))
	}
	return "", err
}

// verdict is the error of a command that found nothing.
func (l *messageLife) verdict() error {
	if l.found {
		return nil
	}
	err := fmt.Errorf("message %s was not found: %s", l.ID, l.Why)
	var holes []string
	holes = append(holes, l.Unknown...)
	for _, s := range l.Mirror.Searched {
		if s.Problem != "" {
			holes = append(holes, s.Topic+" "+s.Problem)
		}
	}
	if len(holes) > 0 {
		return daemon.WithExitCode(daemon.ExitPartly, fmt.Errorf("%w; it may be where nobody looked: %s", err, strings.Join(holes, "; ")))
	}
	return daemon.WithExitCode(daemon.ExitNotFound, err)
}
