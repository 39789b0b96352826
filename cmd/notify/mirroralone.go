package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
)

// This file is for stores whose canald does not run.

// alonePatience is how long what a command does itself may come no further.
const alonePatience = 30 * time.Second

// addConfig adds the flag by which a command does without canald.
func addConfig(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "canald's configuration: where no canald answers, do it here, as long as none copies the store")
}

// unreachable tells whether no canald answered.
func unreachable(err error) bool { return err != nil && daemon.ExitCode(err) == daemon.ExitUnreachable }

// changeAlone makes a change as a canald that does nothing else, and prints it.
func (a *app) changeAlone(ctx context.Context, change mirror.Change, config string) (mirror.Outcome, error) {
	c, store, err := loadCanald(config, change.Store)
	if err != nil {
		return mirror.Outcome{}, err
	}
	upTo := ""
	if change.What == mirror.AcceptGap {
		upTo = ", and copying into Kafka up to the gap"
	}
	a.say("no canald answers at %s: joining those of store %s%s", a.ops, store, upTo)
	c.ID = "notify-command" // for whoever looks at the group meanwhile
	out, err := mirror.ChangeAlone(ctx, c, store, quietDeps(), change, max(alonePatience, a.timeout))
	if err != nil {
		return out, err
	}
	if upTo != "" {
		a.say("copied up to the gap")
	}
	body, err := json.Marshal(out)
	if err != nil {
		return out, err
	}
	return out, a.printOne(json.RawMessage(body), outcomePairs(out)...)
}

// readCheckpoint is a canald's report of what Kafka has.
func (a *app) readCheckpoint(ctx context.Context, config, store string) (mirror.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, max(alonePatience, a.timeout))
	defer cancel()
	c, store, err := loadCanald(config, store)
	if err != nil {
		return mirror.Report{}, err
	}
	s, err := mirror.ReadCheckpoint(ctx, c, store, quietDeps())
	return mirror.Report{Stores: []mirror.Status{s}}, err
}

// quietDeps are for a part of canald that tells by what it returns.
func quietDeps() mirror.Deps {
	return mirror.Deps{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
}
