package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"notifymirror/mirror"
)

func (a *app) mirrorGrow() *cobra.Command {
	var f checkpointFlags
	var partitions int32
	cmd := f.add(&cobra.Command{
		Use: "grow TOPIC --partitions N", Short: "Share a topic's keys out over more partitions from now on", Args: cobra.ExactArgs(1),
		Long: `Give a topic of the mirror more partitions, and have the mirror write to all of them.
Kafka has the partitions made where it lacks them; one that was given more behind the
mirror's back is written to from then on. The order of each key ends at the seq that is
named, and begins anew in the partition that the key has then: a reader that must not see
a key's later messages first reads to that seq everywhere before it goes on. Stores that
feed the same topic are grown one by one. It cannot be undone.`,
		Example: `  notify mirror grow orders --partitions 16 --dry-run
  notify mirror grow orders --partitions 16 --yes`,
		RunE: a.action(func(cmd *cobra.Command, args []string) error {
			if !f.yes && !f.dryRun {
				return usageError(errors.New("the order of the topic's keys ends by it: look with --dry-run, then say --yes"))
			}
			_, err := a.change(cmd.Context(), mirror.Change{Store: f.store, What: mirror.Grow, Topic: args[0], Partitions: partitions, DryRun: f.dryRun}, f.config)
			return err
		}),
	})
	cmd.Flags().Lookup("dry-run").Usage = "only say what would change"
	cmd.Flags().Int32Var(&partitions, "partitions", 0, "how many it is to have")
	cobra.CheckErr(cmd.MarkFlagRequired("partitions"))
	return cmd
}

// growthPairs are the names and values of what a growth does.
func growthPairs(o mirror.Outcome) []string {
	g := o.Grows
	return []string{
		"store", o.Store, "change", string(o.What), "topic", g.Topic,
		"partitions", fmt.Sprintf("%d instead of %d", g.To, g.From), "made in Kafka", fmt.Sprint(max(0, g.To-g.Kafka)),
		"order of keys ends at", fmt.Sprintf("seq %d of generation %d", o.Seq, o.Generation), "done", fmt.Sprint(o.Applied),
	}
}
