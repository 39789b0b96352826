package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"notifymirror/notifyd/client"
)

// publishFlags are those of the publish command.
type publishFlags struct {
	key, idempotencyKey string
	headers             []string
	count               int
	rate                float64
	ndjson, jsonArray   string
	keyField            string
	headerFields        []string
	delay, ttl          time.Duration
}

func (a *app) publishCommand() *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:   "publish TOPIC [BODY|@file|-]",
		Short: "Publish one message, or many from a file",
		Long: `Publish one message: its body is the argument, the content of a file (@file), or
stdin (-, also without a body). Its id is printed once it is durable.

With --ndjson each line of a file is one message, its body the exact bytes of the
line without the newline; with --json-array each element of a file that is one
JSON array. "-" reads stdin. They are published pipelined on one stream, in order.
A message that is refused is named, the others go on, and the exit code is 3.

With --idempotency-key, running the same command again after an interruption
stores nothing twice: message N of many uses KEY-N.`,
		Example: `  notify publish hello 'first message'
  notify publish orders @order.json -k 42 -H source=shop
  notify publish flights --ndjson flights.ndjson --key-field origin --header-field carrier=airline`,
		Args: cobra.RangeArgs(1, 2),
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.key, "key", "k", "", "key; messages of one topic and key keep their order in the mirror")
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "header, name=value; may be repeated")
	wholeVar(fl, &f.count, "count", 1, "publish the message so many times")
	rateVar(fl, &f.rate, "rate", 0, "most messages a second; 0: as fast as possible")
	spanVar(fl, &f.delay, "delay", 0, "push it first so long from now, at most 40 days; the mirror has it at once")
	spanVar(fl, &f.ttl, "ttl", 0, "from its first delivery on; what is not acknowledged then becomes a dead letter; 0: none")
	fl.StringVar(&f.idempotencyKey, "idempotency-key", "", "a repeat with the same key stores nothing")
	fl.StringVar(&f.ndjson, "ndjson", "", "file with one JSON object per line, each a message")
	fl.StringVar(&f.jsonArray, "json-array", "", "file with one JSON array, each element a message")
	fl.StringVar(&f.keyField, "key-field", "", "field of the object that is the key")
	fl.StringArrayVar(&f.headerFields, "header-field", nil, "header from a field, NAME=FIELD; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("ndjson", "json-array", "count")
	cmd.MarkFlagsMutuallyExclusive("ndjson", "json-array", "key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src, err := a.source(f, args)
		if err != nil {
			return err
		}
		return a.action(func(cmd *cobra.Command, _ []string) error {
			defer src.close()
			if src.total == 1 && src.many == nil {
				return a.publishOne(cmd, f, src)
			}
			return a.publishMany(cmd, f, src)
		})(cmd, args)
	}
	return cmd
}

func (a *app) publishOne(cmd *cobra.Command, f publishFlags, src *source) error {
	body, err := src.body()
	if err != nil {
		return err
	}
	m := src.message
	m.Body = body
	c, err := a.connect(a.timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := a.reach(cmd.Context(), c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	r, err := c.Publish(ctx, m, client.PublishOptions{IdempotencyKey: f.idempotencyKey})
	if err != nil {
		return err
	}
	if r.Duplicate {
		a.say("known: this idempotency key was published before; nothing was stored")
	}
	if r.InMemory {
		a.say("in memory only: the topic's messages are never stored, and are lost when their broker dies")
	}
	if a.format == "text" {
		_, err := fmt.Fprintln(a.out, r.ID)
		return err
	}
	return a.printJSON(resultJSON{ID: r.ID, Duplicate: r.Duplicate, InMemory: r.InMemory})
}

// resultJSON is the outcome of one publish in -o json and jsonl.
type resultJSON struct {
	Item      string `json:"item,omitempty"`
	ID        string `json:"id,omitempty"`
	Duplicate bool   `json:"duplicate"`
	InMemory  bool   `json:"in_memory,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (a *app) publishMany(cmd *cobra.Command, f publishFlags, src *source) error {
	c, err := a.connect(a.timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := a.reach(cmd.Context(), c); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	p := c.NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	tally := newTally(a, src)
	sendErr := a.sendAll(ctx, f, src, p, tally)
	p.Close()
	runErr := <-ran
	tally.finish()
	return tally.verdict(sendErr, runErr)
}

// sendAll queues every message of the source. Its error is the source's, or that
// of a publisher that has ended.
func (a *app) sendAll(ctx context.Context, f publishFlags, src *source, p *client.Publisher, t *tally) error {
	pace := pacer{rate: f.rate, begun: time.Now()}
	for n := 0; ; n++ {
		it, err := src.next()
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		if it.err != nil {
			t.failed(it, it.err)
			continue
		}
		if err := pace.wait(ctx, n); err != nil {
			return err
		}
		opts := client.PublishOptions{}
		if f.idempotencyKey != "" {
			opts.IdempotencyKey = fmt.Sprintf("%s-%d", f.idempotencyKey, it.number)
		}
		it.message.Topic, it.message.Delay, it.message.TTL = src.message.Topic, f.delay, f.ttl
		err = p.Send(ctx, it.message, opts, func(r client.Published, err error) {
			if err != nil {
				t.failed(it, err)
			} else {
				t.published(it, r)
			}
		})
		var refused *client.Error
		if errors.As(err, &refused) && refused.Reason == client.ReasonInvalid {
			t.failed(it, err)
		} else if err != nil {
			return err
		}
	}
}

// pacer spreads messages evenly.
type pacer struct {
	rate  float64
	begun time.Time
}

// wait blocks until message n is due.
func (p pacer) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return nil
	}
	due := p.begun.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if !due.After(time.Now()) {
		return nil
	}
	return waitUntil(ctx, due)
}

// waitUntil blocks until a time, or until ctx ends.
func waitUntil(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pairs splits name=value arguments.
func pairs(flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s %q: want name=value", flag, arg)
		}
		out[name] = value
	}
	return out, nil
}
