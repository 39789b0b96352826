package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"notifymirror/stream"
)

// tailFlags are those of mirror tail.
type tailFlags struct {
	from, to string
	speed    float64
	count    int
	prefix   string
}

func (a *app) mirrorTail() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print a topic's messages as they are in the mirror",
		Long: `Print a topic's messages as they are in the mirror in Kafka, each partition in
order: partition, offset, time, key, body. Only committed records, and nothing is
remembered: this is no consumer group, and partitions that the topic gets later are not
read. From a message's id on means from its record on, and in other partitions from the
time of its commit on. With --speed they come as they once did, or that
many times as fast. With --to, and the output not on the terminal, a bar there shows
how far it is.`,
		Example: `  notify mirror tail orders
  notify mirror tail orders --from oldest --count 10 -o jsonl
  notify mirror tail orders --from 2026-11-29T14:00:00Z --to newest
  notify mirror tail orders --from 0197a1b2-5c3d-7e4f-8a9b-0c1d2e3f4a5b --count 10
  notify mirror tail orders --from 1h --to newest --speed 60 > hour.txt`,
		Args: cobra.ExactArgs(1),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "newest", positionForms)
	fl.StringVar(&f.to, "to", "", "end there; the same forms (default: never)")
	fl.Float64Var(&f.speed, "speed", 0, "times the original speed, by commit times: 1 as it was, 60 an hour in a minute (default: as fast as can be read)")
	wholeVar(fl, &f.count, "count", 0, "end after so many; 0: never")
	fl.StringVar(&f.prefix, "prefix", "notify.", "prefix of the mirror's topics in Kafka")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg := stream.Config{Topics: args, Prefix: f.prefix}
		if cmd.Flags().Changed("speed") && !(f.speed > 0) {
			return errors.New("--speed: must be above 0")
		}
		cfg.Speed = f.speed
		return a.action(func(cmd *cobra.Command, _ []string) error {
			kafka, err := a.kafka.read()
			if err != nil {
				return err
			}
			cfg.Brokers, cfg.Access = kafka.Brokers, kafka.Access
			if cfg.Start, cfg.End, err = a.between(cmd.Context(), f.from, f.to, args[0], f.prefix); err != nil {
				return err
			}
			return a.tail(cmd.Context(), cfg, f.count)
		})(cmd, args)
	}
	return cmd
}

// tail prints records until ctx ends, the end is reached, or enough were printed.
func (a *app) tail(ctx context.Context, cfg stream.Config, count int) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	printed := 0
	var broken error
	cfg.Handler = func(_ context.Context, r stream.Record) error {
		mu.Lock() // partitions are handled side by side
		defer mu.Unlock()
		if broken != nil || count > 0 && printed == count {
			return nil
		}
		if broken = a.printRecord(r); broken != nil {
			enough()
			return nil
		}
		if printed++; printed == count {
			enough()
		}
		return nil
	}
	c, err := stream.New(cfg)
	if err != nil {
		return usageError(err)
	}
	hide := func() {}
	if cfg.End != (stream.Position{}) && !terminal(a.out) { // it would stand between the lines
		hide = a.showProgress(c, "reading")
	}
	err = c.Run(ctx)
	hide()
	if broken != nil {
		return fmt.Errorf("writing: %w", broken)
	}
	return kafkaFailure(err)
}

func (a *app) printRecord(r stream.Record) error {
	if a.format == "text" {
		_, err := fmt.Fprintf(a.out, "%d\t%d\t%s\t%s\t%s\n", r.Partition, r.Offset, clock(r.BornAt), printable([]byte(r.Key)), printable(r.Body))
		return err
	}
	item := deliveryJSON{ID: r.ID.String(), Topic: r.Topic, Key: string(r.Key), Partition: &r.Partition, Offset: &r.Offset}
	if len(r.Headers) > 0 {
		item.Headers = map[string]string{}
		for _, h := range r.Headers {
			item.Headers[h.Name] = h.Value
		}
	}
	if !r.BornAt.IsZero() {
		item.BornAt = &r.BornAt
	}
	item.setBody(r.Body)
	return a.printLine(item)
}
