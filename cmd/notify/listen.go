package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// listenFlags are those of the listen command.
type listenFlags struct {
	group, filter    string
	ack, nack, noAck bool
	count            int
}

func (a *app) listenCommand() *cobra.Command {
	var f listenFlags
	cmd := &cobra.Command{
		Use:   "listen (TOPIC... | --group G)",
		Short: "Receive messages as an instance of a consumer group",
		Long: `Receive messages and print one line for each: time, topic, key, attempt, body.

With topics, a group of your own is used: listen-USER-HOST. It is subscribed to the
topics at the first use, and stays so: what is published while you do not listen is
kept for it, and what you listened to another time comes too. What was published before
the first use does not come: see notify mirror tail. --filter takes part of them.
With --group an existing group is joined, and shares its messages.`,
		Example: `  notify listen hello
  notify listen hello --filter 'key.startsWith("eu-")'
  notify listen --group billing --count 1 -o jsonl`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.group, "group", "", "join this group")
	fl.StringVar(&f.filter, "filter", "", `with topics: only messages for which this CEL expression over headers, key and topic is true`)
	fl.BoolVar(&f.ack, "ack", false, "acknowledge what was printed (the default)")
	fl.BoolVar(&f.nack, "nack", false, "refuse everything: the broker delivers again later")
	fl.BoolVar(&f.noAck, "no-ack", false, "answer nothing: the broker delivers again after the ack wait")
	wholeVar(fl, &f.count, "count", 0, "end after so many; 0: never")
	cmd.MarkFlagsMutuallyExclusive("ack", "nack", "no-ack")
	cmd.MarkFlagsMutuallyExclusive("group", "filter")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && f.group == "":
			return errors.New("name a topic, or a group with --group")
		case len(args) > 0 && f.group != "":
			return errors.New("name topics or --group, not both; \"notify sub add\" subscribes a group to a topic")
		}
		return nil
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(a.timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		group := f.group
		if group == "" {
			if group, err = a.ownGroup(cmd.Context(), c, args, f.filter); err != nil {
				return err
			}
		} else if err := a.reach(cmd.Context(), c); err != nil {
			return err
		}
		return a.listen(cmd.Context(), c, group, f)
	})
	return cmd
}

// reach returns at once what keeps the broker from answering.
func (a *app) reach(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	_, err := c.Brokers(ctx)
	return err
}

// ownGroup subscribes this user's own group to what a filter lets through of the topics.
func (a *app) ownGroup(ctx context.Context, c *client.Client, topics []string, filter string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	name := "user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	group := groupName("listen-" + name + "-" + host)
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var fresh []string
	for _, topic := range topics {
		err := c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
			_, err := admin.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{
				Subscription: &notifyv1.Subscription{Group: group, Topic: topic, Filter: filter}}))
			return err
		})
		var e *client.Error
		switch {
		case err == nil:
			fresh = append(fresh, topic)
			continue
		case errors.As(err, &e) && e.Reason == client.ReasonAlreadyExists:
			continue
		case e == nil || e.Reason != client.ReasonDefinedOtherwise:
			return "", err
		}
		err = c.Admin(ctx, func(admin notifyv1connect.AdminClient) error { // it is nobody else's
			_, err := admin.UpdateSubscription(ctx, connect.NewRequest(&notifyv1.UpdateSubscriptionRequest{Group: group, Topic: topic, Filter: &filter}))
			return err
		})
		if err != nil {
			return "", err
		}
	}
	a.say("listening to %s as group %s, which stays subscribed when you stop", strings.Join(topics, ", "), group)
	if len(fresh) > 0 {
		a.say("newly subscribed to %s: messages from now on; older ones: notify mirror tail %s --from oldest", strings.Join(fresh, ", "), fresh[0])
	}
	return group, nil
}

// groupName replaces what a group's name may not hold.
func groupName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '-'
	}, s)
	return s[:min(len(s), 127)]
}

// listen prints deliveries until ctx ends or enough were printed.
func (a *app) listen(ctx context.Context, c *client.Client, group string, f listenFlags) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	printed := 0
	var broken error
	consumer, err := c.NewConsumer(client.ConsumerConfig{
		Group:       group,
		Concurrency: 1, // one after the other: the order of arrival is that of lines
		Credit:      100,
		Handler: func(ctx context.Context, d client.Delivery) error {
			if broken != nil || f.count > 0 && printed == f.count {
				return client.ErrUnsettled
			}
			if err := a.printDelivery(d); err != nil {
				broken = fmt.Errorf("writing: %w", err)
				enough()
				return client.ErrUnsettled
			}
			if printed++; printed == f.count {
				enough()
			}
			switch {
			case f.nack:
				return errors.New("refused by notify listen --nack")
			case f.noAck:
				return client.ErrUnsettled
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = consumer.Run(ctx)
	return errors.Join(broken, err)
}

// deliveryJSON is a delivery, and a record of the mirror, in -o json and jsonl.
type deliveryJSON struct {
	ID      string            `json:"id"`
	Topic   string            `json:"topic"`
	Key     string            `json:"key,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Body is set when it is UTF-8, else BodyBase64.
	Body       *string    `json:"body,omitempty"`
	BodyBase64 string     `json:"body_base64,omitempty"`
	BornAt     *time.Time `json:"born_at,omitempty"`
	Attempt    int        `json:"attempt,omitempty"`
	Partition  *int32     `json:"partition,omitempty"`
	Offset     *int64     `json:"offset,omitempty"`
}

func (d *deliveryJSON) setBody(body []byte) {
	if utf8.Valid(body) {
		s := string(body)
		d.Body = &s
		return
	}
	d.BodyBase64 = base64.StdEncoding.EncodeToString(body)
}

// printDelivery writes one line.
func (a *app) printDelivery(d client.Delivery) error {
	if a.format == "text" {
		_, err := fmt.Fprintf(a.out, "%s\t%s\t%s\t#%d\t%s\n", clock(d.BornAt), d.Topic, printable([]byte(d.Key)), d.Attempt, printable(d.Body))
		return err
	}
	item := deliveryJSON{ID: d.ID, Topic: d.Topic, Key: d.Key, Headers: d.Headers, Attempt: d.Attempt}
	if !d.BornAt.IsZero() {
		item.BornAt = &d.BornAt
	}
	item.setBody(d.Body)
	return a.printLine(item)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// printable keeps text that fits on a line, and quotes anything else.
func printable(b []byte) string {
	s := string(b)
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}
