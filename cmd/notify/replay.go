package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/message"
	"notifymirror/stream"
)

const (
	// replayBytes bounds the bodies of one batch.
	replayBytes = 512 << 10
	// replayCommit is how often it is noted how far the replay is: what a kill repeats.
	replayCommit = 200 * time.Millisecond
	// replayGrace is what messages that are under way get when the replay is interrupted.
	replayGrace = 2 * time.Second
	// replaySilence is how long nothing may come back before that is said.
	replaySilence = 15 * time.Second
)

// replayFlags are those of replay.
type replayFlags struct {
	group, from, to, name, prefix string
	rate                          float64
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TOPIC --group GROUP --from POSITION",
		Short: "Push a range of the mirror's history to one group again",
		Long: `Push a range of a topic's history, read from the mirror in Kafka, to the live
instances of one group again, so that a group that lost its data can be rebuilt. Each
delivery is marked as replayed. The filter, ack wait and retries of the group's
subscription hold; what is live goes first. Nothing is stored again: a message that is
rejected, or fails for the last time, becomes no dead letter but a line of the output.

How far it is stands in the Kafka consumer group replay.GROUP.NAME. The same command
goes on where it was killed or interrupted, to the end that it found when it began;
messages that were under way then are pushed again. When the end is reached the Kafka
group is deleted. NAME is "TOPIC FROM TO" unless --name gives another one.

Exit code 0 when every message of this run is acknowledged or passed over by the
filter, 1 when some of them were not, 3 when it was interrupted. What a run before it
named is not in it.`,
		Example: `  notify replay orders --group billing --from 2026-11-29T14:00:00Z --to 2026-11-29T15:00:00Z
  notify replay orders --group search --from oldest --rate 5000`,
		Args: cobra.ExactArgs(1),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.group, "group", "", "the group")
	fl.StringVar(&f.from, "from", "", positionForms)
	fl.StringVar(&f.to, "to", "newest", "end there; the same forms, or newest: what is in the mirror now")
	rateVar(fl, &f.rate, "rate", 1000, "most messages a second; 0: as many as the group takes beside what is live")
	fl.StringVar(&f.name, "name", "", "what it is remembered by (default: topic and range)")
	fl.StringVar(&f.prefix, "prefix", "notify.", "prefix of the mirror's topics in Kafka")
	for _, name := range []string{"group", "from"} {
		_ = cmd.MarkFlagRequired(name) // fails for a flag that does not exist only
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		cfg := f.config(args[0])
		kafka, err := a.kafka.read()
		if err != nil {
			return err
		}
		cfg.Brokers, cfg.Access = kafka.Brokers, kafka.Access
		if cfg.Start, cfg.End, err = a.between(cmd.Context(), f.from, f.to, args[0], f.prefix); err != nil {
			return err
		}
		return a.replay(cmd, cfg, f)
	})
	return cmd
}

// config is that of the consumer that reads the range.
func (f *replayFlags) config(topic string) stream.Config {
	name := cmp.Or(f.name, topic+" "+f.from+" "+f.to)
	cfg := stream.Config{Topics: []string{topic}, Prefix: f.prefix, Group: "replay." + f.group + "." + name,
		StopTimeout: replayGrace, CommitInterval: replayCommit, FetchBytes: replayBytes, BatchRecords: 500, SkipForeign: true}
	if f.rate > 0 {
		cfg.BatchRecords = int(min(max(f.rate/10, 1), 500)) // ten small waves a second rather than one large one
	}
	return cfg
}

// replay pushes the range.
func (a *app) replay(cmd *cobra.Command, cfg stream.Config, f replayFlags) error {
	if err := a.canReplay(cmd, f.group, cfg.Topics[0]); err != nil {
		return err
	}
	c, err := a.connect(-1) // a broker that goes away meanwhile is waited for
	if err != nil {
		return err
	}
	defer c.Close()
	r := &replayer{app: a, client: c, group: f.group, pace: throttle{rate: f.rate}, outcomes: map[string]int{}}
	cfg.BatchHandler = r.push
	consumer, err := stream.New(cfg)
	if err != nil {
		return usageError(err)
	}
	hide := a.showProgress(consumer, "replaying")
	silence := r.watch()
	err = consumer.Run(cmd.Context())
	silence()
	hide()
	if err != nil {
		if failed, ok := errors.AsType[*stream.HandlerError](err); ok {
			err = failed.Err
		}
		err = kafkaFailure(err)
	}
	return r.report(cmd.Context(), consumer, cfg.Group, err)
}

// canReplay asks a broker whether the group gets the topic one message by one.
func (a *app) canReplay(cmd *cobra.Command, group, topic string) error {
	return a.admin(cmd, func(ctx context.Context, admin notifyv1connect.AdminClient) error {
		r, err := admin.ListSubscriptions(ctx, connect.NewRequest(&notifyv1.ListSubscriptionsRequest{Group: group, Topic: topic}))
		switch {
		case err != nil:
			return err
		case len(r.Msg.GetSubscriptions()) == 0:
			return daemon.WithExitCode(daemon.ExitNotFound, fmt.Errorf("group %q does not subscribe to topic %q: notify sub add --group %s --topic %s", group, topic, group, topic))
		case r.Msg.GetSubscriptions()[0].GetMode() == notifyv1.Mode_MODE_BROADCAST:
			return usageError(fmt.Errorf("group %q gets topic %q by broadcast: its instances read the mirror themselves", group, topic))
		}
		return nil
	})
}

// A replayer pushes batches through a broker and keeps account of them.
type replayer struct {
	*app
	client *client.Client
	group  string
	pace   throttle
	heard  atomic.Int64 // when something was heard last, nanoseconds since 1970
	asked  atomic.Int64 // messages under way

	mu       sync.Mutex
	outcomes map[string]int
	broken   error // of the output
}

// push handles a batch of one partition: it returns when each message has an outcome.
func (r *replayer) push(ctx context.Context, batch []stream.Record) error {
	messages := make([]client.Message, len(batch))
	for i, rec := range batch {
		messages[i] = client.Message{ID: rec.ID.String(), Topic: rec.Topic, Key: string(rec.Key), Body: rec.Body, BornAt: rec.BornAt, Headers: ownHeaders(rec)}
	}
	if err := r.pace.wait(ctx, len(batch)); err != nil {
		return err
	}
	r.heard.Store(time.Now().UnixNano())
	r.asked.Add(int64(len(batch)))
	defer r.asked.Add(int64(-len(batch)))
	return r.client.Replay(ctx, r.group, messages, func(o client.ReplayOutcome) { r.told(batch[o.Index], o) })
}

// A throttle lets so many messages a second through. What could have gone while nothing went is not made up for.
type throttle struct {
	rate float64 // 0: any

	mu   sync.Mutex
	next time.Time
}

// wait blocks until n messages may go.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t.rate <= 0 {
		return ctx.Err()
	}
	t.mu.Lock()
	now := time.Now()
	at := t.next
	if at.Before(now) {
		at = now
	}
	t.next = at.Add(time.Duration(float64(n) / t.rate * float64(time.Second)))
	t.mu.Unlock()
	return waitUntil(ctx, at)
}

// ownHeaders are the message's own.
func ownHeaders(rec stream.Record) map[string]string {
	own := map[string]string{}
	for _, h := range rec.Headers {
		if !strings.HasPrefix(strings.ToLower(h.Name), message.ReservedHeaderPrefix) {
			own[h.Name] = h.Value
		}
	}
	return own
}

// replayedJSON is a message that was not acknowledged.
type replayedJSON struct {
	ID        string `json:"id"`
	Outcome   string `json:"outcome"`
	Error     string `json:"error,omitempty"`
	Attempts  int    `json:"attempts"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// told takes an outcome, and prints one that an operator has to look after.
func (r *replayer) told(rec stream.Record, o client.ReplayOutcome) {
	r.heard.Store(time.Now().UnixNano())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o.Outcome]++
	if o.Outcome == client.ReplayAcknowledged || o.Outcome == client.ReplayPassedOver || r.broken != nil {
		return
	}
	if r.format == "text" {
		_, r.broken = fmt.Fprintf(r.out, "%s\t%s\t%d\t%d\t%s\n", rec.ID, o.Outcome, rec.Partition, rec.Offset, printable([]byte(o.Error)))
		return
	}
	r.broken = r.printLine(replayedJSON{rec.ID.String(), o.Outcome, o.Error, o.Attempts, rec.Partition, rec.Offset})
}

// watch says when nothing comes back, until stop is called.
func (r *replayer) watch() (stop func()) {
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(replaySilence)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				if n := r.asked.Load(); n > 0 && now.Sub(time.Unix(0, r.heard.Load())) >= replaySilence {
					r.say("no answer to %d messages for %s; is the group up? notify group show %s", n, replaySilence, r.group)
				}
			}
		}
	})
	return func() { close(ended); watching.Wait() }
}

// replayJSON is what a replay came to. Acknowledged and the others are messages of this run.
type replayJSON struct {
	Acknowledged int  `json:"acknowledged"`
	PassedOver   int  `json:"passed_over"`
	Rejected     int  `json:"rejected"`
	Failed       int  `json:"failed"`
	Resumed      bool `json:"resumed"`
	Finished     bool `json:"finished"`
}

// report prints what it came to; its error says what was not done.
func (r *replayer) report(ctx context.Context, c *stream.Consumer, kafkaGroup string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := replayJSON{Acknowledged: r.outcomes[client.ReplayAcknowledged], PassedOver: r.outcomes[client.ReplayPassedOver],
		Rejected: r.outcomes[client.ReplayRejected], Resumed: c.Resumed(), Finished: err == nil && ctx.Err() == nil}
	for _, n := range r.outcomes {
		sum.Failed += n
	}
	if err != nil && sum.Failed == 0 { // it did not begin
		return err
	}
	sum.Failed -= sum.Acknowledged + sum.PassedOver + sum.Rejected
	if r.format == "text" {
		text := fmt.Sprintf("acknowledged %d, passed over %d, rejected %d, failed %d", sum.Acknowledged, sum.PassedOver, sum.Rejected, sum.Failed)
		if sum.Resumed {
			text += ", beside what an earlier run of this replay has done"
		}
		r.say("%s", text)
	} else if r.broken == nil {
		r.broken = r.printLine(sum)
	}
	switch bad := sum.Rejected + sum.Failed; {
	case err != nil:
		return fmt.Errorf("replay ended before its end: %w; the same command goes on, by the Kafka group %q", explain(err), kafkaGroup)
	case !sum.Finished:
		return daemon.WithExitCode(daemon.ExitPartly, fmt.Errorf("replay interrupted; the same command goes on, by the Kafka group %q", kafkaGroup))
	case r.broken != nil:
		return fmt.Errorf("writing: %w", r.broken)
	case bad > 0:
		return fmt.Errorf("%d of %d messages were not acknowledged", bad, sum.Acknowledged+sum.PassedOver+bad)
	}
	return nil
}
