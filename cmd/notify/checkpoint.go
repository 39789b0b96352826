package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"notifymirror/mirror"
)

// changeTimeout is longer than canald takes to give up, and to write what it has begun to write.
const changeTimeout = time.Minute

func (a *app) mirrorCheckpoint() *cobra.Command {
	return a.parent("checkpoint", "Look at a store's checkpoint, or change it: asks the active canald at --ops; with --config, where none answers, does it itself",
		a.checkpointShow(), a.checkpointSet(), a.checkpointReset())
}

func (a *app) checkpointShow() *cobra.Command {
	var store, config string
	cmd := &cobra.Command{
		Use: "show", Short: "Show up to where the binlog is in Kafka", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			_, r, err := a.fetchStatus(cmd.Context())
			if config != "" && unreachable(err) {
				r, err = a.readCheckpoint(cmd.Context(), config, store)
			}
			if err != nil {
				return err
			}
			found := false
			for _, s := range r.Stores {
				if store != "" && s.Store != store {
					continue
				}
				found = true
				pairs := []string{
					"store", s.Store, "server", cmp.Or(s.Server, "-"), "position", s.Position, "open", cmp.Or(s.OpenGTID, "-"),
					"generation", strconv.FormatUint(s.Generation, 10), "seq", strconv.FormatUint(s.Seq, 10), "written", clock(s.CheckpointAt),
				}
				if err := a.printOne(s, pairs...); err != nil {
					return err
				}
			}
			if !found {
				return usageError(fmt.Errorf("--store %s: canald at %s has no such store", store, a.ops))
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&store, "store", "", "of this store only, by its name in canald's configuration")
	addConfig(cmd, &config)
	return cmd
}

// checkpointFlags are those of every change.
type checkpointFlags struct {
	store       string
	config      string
	dryRun, yes bool
}

func (f *checkpointFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.store, "store", "", "the store's name in canald's configuration, where there are several")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be skipped or repeated")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "really change it")
	addConfig(cmd, &f.config)
	return cmd
}

func (a *app) checkpointSet() *cobra.Command {
	var f checkpointFlags
	return f.add(&cobra.Command{
		Use: "set GTIDS", Short: "Go on behind this position, in a new generation", Args: cobra.ExactArgs(1),
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			return a.changeCheckpoint(cmd.Context(), f, mirror.Change{What: mirror.SetCheckpoint, Position: args[0]})
		}),
	})
}

func (a *app) checkpointReset() *cobra.Command {
	var f checkpointFlags
	return f.add(&cobra.Command{
		Use: "reset", Short: "Begin again with all that the server's binlog still has, in a new generation", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			return a.changeCheckpoint(cmd.Context(), f, mirror.Change{What: mirror.ResetCheckpoint})
		}),
	})
}

func (a *app) mirrorBackfill() *cobra.Command {
	var f checkpointFlags
	var all bool
	cmd := f.add(&cobra.Command{
		Use: "backfill", Short: "Copy what the store's tables hold and the mirror lacks, in a new generation", Args: cobra.NoArgs,
		Long: "Copies the messages that the store still holds behind the last ones copied, and goes on with the binlog\n" +
			"from there: for a gap that the binlog no longer covers. What was delivered and deleted meanwhile is not copied.\n" +
			"Where the next message breaks the order of its shard, that takes --all.\n" +
			"While the tables are read, an ALTER TABLE of a message table waits for that, and every new INSERT into that\n" +
			"table, which is every publish to its shard, waits behind the ALTER. So alter them before or afterwards, or\n" +
			"with a lock_wait_timeout of a second or two, which ends the ALTER instead.",
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			return a.changeCheckpoint(cmd.Context(), f, mirror.Change{What: mirror.CopyTables, All: all})
		}),
	})
	cmd.Flags().BoolVar(&all, "all", false, "also what was copied before, for readers that lost it")
	return cmd
}

func (a *app) changeCheckpoint(ctx context.Context, f checkpointFlags, c mirror.Change) error {
	if !f.yes && !f.dryRun {
		return usageError(errors.New("messages are skipped or repeated by it: look with --dry-run, then say --yes"))
	}
	c.Store, c.DryRun = f.store, f.dryRun
	_, err := a.change(ctx, c, f.config)
	return err
}

// askGap is what --accept-gap is without an id.
const askGap = "?"

func (a *app) mirrorResume() *cobra.Command {
	var store, gap, config string
	cmd := &cobra.Command{
		Use: "resume --accept-gap[=ID]", Short: "Go on behind a gap, after a look at what is lost", Args: cobra.NoArgs,
		Long: "Without an id it says what is lost or at risk and skipped, and the id of the gap. With that id the\n" +
			"mirror goes on behind the gap, in a new generation.\n\n" +
			"Where no canald answers and --config is given, it first copies into Kafka up to the gap, as a canald\n" +
			"does: the gap is where it halts. Without an id too. That takes as long as it comes further.",
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			if gap == "" {
				return usageError(errors.New("--accept-gap is missing: it goes on without the repair that notify mirror status names; after the repair restart canald instead"))
			}
			c := mirror.Change{Store: store, What: mirror.AcceptGap, Gap: gap, DryRun: gap == askGap}
			if c.DryRun {
				c.Gap = ""
			}
			out, err := a.change(cmd.Context(), c, config)
			if err == nil && !out.Applied {
				command := "notify mirror resume --accept-gap=" + out.Gap
				if store != "" {
					command += " --store " + store
				}
				if config != "" {
					command += " --config " + config
				}
				a.say("nothing was skipped; to accept this gap: %s\nto copy what the store still holds of it, and go on from there: notify mirror backfill --dry-run", command)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&store, "store", "", "the store's name in canald's configuration, where there are several")
	cmd.Flags().StringVar(&gap, "accept-gap", "", "the id of the gap to accept; without one, show it")
	cmd.Flags().Lookup("accept-gap").NoOptDefVal = askGap
	addConfig(cmd, &config)
	return cmd
}

// change asks canald for a change, and prints what it does or would do. With canald's
// configuration it makes it itself where none answers.
func (a *app) change(ctx context.Context, c mirror.Change, config string) (out mirror.Outcome, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return out, err
	}
	asking, cancel := context.WithTimeout(ctx, max(changeTimeout, a.timeout))
	defer cancel()
	code, answer, err := a.askCanald(asking, http.MethodPost, "/change", body)
	if config != "" && unreachable(err) {
		return a.changeAlone(ctx, c, config)
	}
	if err != nil {
		return out, err
	}
	if code == http.StatusNotFound {
		return out, fmt.Errorf("what answers at %s takes no changes: an older canald, or another program; run a canald of this version there, or name another with --ops", a.ops)
	}
	if code != http.StatusOK {
		return out, errors.New(strings.TrimSpace(string(bytes.ToValidUTF8(answer, nil))))
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("answer of canald at %s: %w", a.ops, err)
	}
	return out, a.printOne(json.RawMessage(answer), outcomePairs(out)...)
}

// outcomePairs are the names and values of what a change does.
func outcomePairs(o mirror.Outcome) []string {
	if o.Grows != nil {
		return growthPairs(o)
	}
	pairs := []string{"store", o.Store, "change", string(o.What)}
	if o.Gap != "" {
		pairs = append(pairs, "gap", o.Gap, "halt", cmp.Or(o.Lost, "-"))
	}
	if o.Tables != "" {
		pairs = append(pairs, "tables", o.Tables)
	}
	return append(pairs,
		"from", cmp.Or(o.From, "the beginning"), "to", cmp.Or(o.To, "the beginning"),
		"skipped", cmp.Or(o.Skipped, "nothing"), "repeated", cmp.Or(o.Repeated, "nothing"),
		"last copied", fmt.Sprintf("seq %d of generation %d", o.Seq, o.Generation-1),
		"new generation", strconv.FormatUint(o.Generation, 10), "done", strconv.FormatBool(o.Applied))
}
