package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
)

// verifyFlags are those of mirror verify.
type verifyFlags struct {
	config, store string
	since, until  string
}

func (a *app) mirrorVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the mirror with the binlog, and name what is missing or repeated", Args: cobra.NoArgs,
		Long: `Read a store's binlog once more and compare it with the mirror: how many messages each
minute has, and the sum of their ids; where a minute differs, message by message. It
looks also at the order in each partition. It needs canald's configuration, for the
store's account and Kafka, and changes nothing; canald need not run, and may.

It costs the store one dump of its binlog from --since to the mirror's checkpoint, over
a replication connection with a server id of its own, and Kafka one read of the records.
It writes 104 bytes for each message into spool_dir, and frees them at its end. What the
mirror has not copied yet is not compared, nor what binlog or Kafka hold no more: the
output says so. After a gap that was accepted, the messages in it are missing.

Exit code: 0 equal, 1 not equal, another one when it could not compare, or had nothing to
compare in that time.`,
		Example: `  notify mirror verify --config canald.yaml
  notify mirror verify --config canald.yaml --since 24h -o json
  notify mirror verify --config canald.yaml --since 2026-11-29T14:00:00Z --until 2026-11-29T15:00:00Z`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "canald's configuration (default: that of notify dev)")
	fl.StringVar(&f.store, "store", "", "the store's name there, where it has several")
	fl.StringVar(&f.since, "since", "1h", "compare what was committed since then: how long ago, such as 24h, or a time such as 2026-11-29T14:00:00Z")
	fl.StringVar(&f.until, "until", "", "and before then; the same forms (default: the mirror's checkpoint)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		over, err := f.rangeAt(time.Now())
		if err != nil {
			return err
		}
		return a.action(func(cmd *cobra.Command, _ []string) error { return a.verifyMirror(cmd.Context(), f, over) })(cmd, args)
	}
	return cmd
}

// rangeAt is what the flags name.
func (f verifyFlags) rangeAt(now time.Time) (over mirror.Range, err error) {
	if over.Since, err = ago(f.since, now); err != nil {
		return over, fmt.Errorf("--since: %w", err)
	}
	if over.Since.After(now) {
		return over, errors.New("--since: is in the future")
	}
	if f.until == "" {
		return over, nil
	}
	if over.Until, err = ago(f.until, now); err != nil {
		return over, fmt.Errorf("--until: %w", err)
	}
	if !over.Since.Before(over.Until) {
		return over, errors.New("--until: must be later than --since")
	}
	return over, nil
}

func (a *app) verifyMirror(ctx context.Context, f verifyFlags, over mirror.Range) error {
	c, store, err := loadCanald(f.config, f.store)
	if err != nil {
		return err
	}
	a.say("reads the binlog of store %s from %s on", store, clock(over.Since))
	v, err := mirror.Verify(ctx, c, store, quietDeps(), over)
	if err != nil {
		return notCompared(err)
	}
	if err := a.printVerdict(v); err != nil {
		return err
	}
	for _, note := range v.Notes {
		a.say("note: %s", note)
	}
	if v.Equal() {
		return nil
	}
	return daemon.WithExitCode(daemon.ExitFailed, fmt.Errorf("the mirror of store %s differs from its binlog in %d of %d minutes", store, len(v.Differing), v.Minutes))
}

// notCompared gives an error another exit code than that of a mirror that differs.
func notCompared(err error) error {
	err = fmt.Errorf("not compared: %w", err)
	if daemon.ExitCode(err) == daemon.ExitFailed {
		return daemon.WithExitCode(daemon.ExitUnreachable, err)
	}
	return err
}

func (a *app) printVerdict(v mirror.Verdict) error {
	if a.format != "text" {
		return a.printJSON(v)
	}
	until := "the checkpoint"
	if !v.Until.IsZero() {
		until = clock(v.Until)
	}
	pairs := []string{
		"store", v.Store, "since", clock(v.Since), "until", until, "position", v.Position,
		"messages", strconv.FormatUint(v.Messages, 10), "records", strconv.FormatUint(v.Records, 10), "minutes", strconv.Itoa(v.Minutes),
		"equal", strconv.FormatBool(v.Equal()),
	}
	if v.Moved > 0 {
		pairs = append(pairs, "at another time", fmt.Sprintf("%d messages, copied by a backfill", v.Moved))
	}
	for _, m := range v.Differing {
		pairs = append(pairs, "minute "+clock(m.Minute),
			fmt.Sprintf("%d messages, ids %s; %d records, ids %s", m.Messages, m.MessagesHash, m.Records, m.RecordsHash))
	}
	for _, d := range v.Named {
		pairs = append(pairs, string(d.What), differenceText(d))
	}
	if v.More {
		pairs = append(pairs, "and more", "that are not named")
	}
	return a.printOne(v, pairs...)
}

// differenceText is a difference for people.
func differenceText(d mirror.Difference) string {
	text := []string{clock(d.Minute), d.Topic}
	if d.ID != "" {
		text = append([]string{d.ID}, text...)
	}
	if d.Offset >= 0 {
		text = append(text, fmt.Sprintf("partition %d offset %d", d.Partition, d.Offset))
	}
	if d.Seq > 0 {
		text = append(text, fmt.Sprintf("seq %d of generation %d", d.Seq, d.Generation))
	}
	return strings.Join(text, " ")
}
