package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
)

func (a *app) mirrorCommand() *cobra.Command {
	return a.parent("mirror", "Look at the mirror in Kafka, and mend it",
		a.mirrorStatus(), a.mirrorTail(), a.mirrorVerify(), a.mirrorCheckpoint(), a.mirrorResume(), a.mirrorBackfill(), a.mirrorGrow())
}

func (a *app) mirrorStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how far the mirror has come; asks canald at --ops", Args: cobra.NoArgs,
		RunE: a.action(func(cmd *cobra.Command, _ []string) error {
			raw, r, err := a.fetchStatus(cmd.Context())
			if err != nil {
				return err
			}
			var pairs []string
			for _, s := range r.Stores {
				pairs = append(pairs, statusPairs(s)...)
			}
			if err := a.printOne(raw, pairs...); err != nil {
				return err
			}
			return haltedError(r.Stores)
		}),
	}
}

// haltedError names the stores whose mirror has halted, or waits until somebody mends Kafka;
// ExitPartly when others go on.
func haltedError(stores []mirror.Status) error {
	var errs []error
	for _, s := range stores {
		if s.State == mirror.Halted {
			errs = append(errs, fmt.Errorf("the mirror of store %s has halted: %s; %s", s.Store, s.LastError, s.Repair))
		}
		if s.State == mirror.Waiting && s.WaitingReason != "" {
			errs = append(errs, fmt.Errorf("the mirror of store %s waits for Kafka to be mended (%s): %s", s.Store, s.WaitingReason, s.Repair))
		}
	}
	if n := len(errs); n > 0 && n < len(stores) {
		return daemon.WithExitCode(daemon.ExitPartly, errors.Join(errs...))
	}
	return errors.Join(errs...)
}

// statusPairs are the names and values of a store's state.
func statusPairs(s mirror.Status) []string {
	pairs := []string{
		"store", s.Store, "canald", s.ID, "active", cmp.Or(s.Active, "-"), "state", fmt.Sprintf("%s since %s", s.State, s.Since.UTC().Format(time.RFC3339)),
		"server", s.Server + " " + s.Flavor, "position", s.Position,
		"generation", strconv.FormatUint(s.Generation, 10), "seq", strconv.FormatUint(s.Seq, 10),
		"lag", lagText(s), "checkpoint", clock(s.CheckpointAt),
	}
	if s.FilesBefore != nil {
		pairs = append(pairs, "binlog files before", strconv.FormatInt(*s.FilesBefore, 10))
	}
	if s.HeadroomSeconds != nil {
		pairs = append(pairs, "binlog headroom", fmt.Sprintf("%.0f s", *s.HeadroomSeconds))
	}
	if s.ClockSeconds > 1 || s.ClockSeconds < -1 {
		pairs = append(pairs, "server's clock", fmt.Sprintf("%+.1f s", s.ClockSeconds))
	}
	if s.Backfill != nil {
		pairs = append(pairs, "backfill", s.Backfill.String())
	}
	for i, shard := range s.Shards {
		pairs = append(pairs, fmt.Sprintf("shard %d", i), shard)
	}
	if s.LastError != "" {
		pairs = append(pairs, "last error", s.LastError, "at", clock(s.LastErrorAt))
	}
	if s.HaltedReason != "" {
		pairs = append(pairs, "halted", string(s.HaltedReason), "repair", s.Repair)
	}
	for _, note := range s.Notes {
		pairs = append(pairs, "note", note)
	}
	return pairs
}

// lagText is how far a mirror is behind.
func lagText(s mirror.Status) string {
	text := fmt.Sprintf("%.3f s", s.LagSeconds)
	if s.LagBytes != nil {
		text += fmt.Sprintf(", %d bytes", *s.LagBytes)
	}
	return text
}

// fetchStatus gets /status from canald's ops address, as it came and read.
func (a *app) fetchStatus(ctx context.Context) (raw json.RawMessage, r mirror.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	code, body, err := a.askCanald(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return nil, r, err
	}
	if code != http.StatusOK {
		return nil, r, fmt.Errorf("canald at %s has no status yet: %d %s", a.ops, code, http.StatusText(code))
	}
	if !json.Valid(body) {
		return nil, r, errors.New(a.ops + " is not the ops address of canald: /status is not JSON")
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, r, fmt.Errorf("status of canald at %s: %w", a.ops, err)
	}
	return body, r, nil
}

// askCanald asks at canald's ops address. What it was asked to do, and has not answered, it may
// have done: then it is not said to be unreachable.
func (a *app) askCanald(ctx context.Context, method, path string, body []byte) (code int, answer []byte, err error) {
	var asked atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { asked.Store(method == http.MethodPost) }})
	noAnswer := func(err error) error {
		return fmt.Errorf("canald at %s was asked for it, and has not answered: %s; it is withdrawn unless it was being written, and `notify mirror checkpoint show` tells which", a.ops, shortCause(err))
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.ops+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, usageError(fmt.Errorf("--ops %s: want host:port", a.ops))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil && asked.Load() {
		return 0, nil, noAnswer(err)
	}
	if err != nil {
		return 0, nil, daemon.WithExitCode(daemon.ExitUnreachable,
			fmt.Errorf("canald at %s cannot be reached: %s; --ops or NOTIFY_OPS names another; where none runs, --config of the mirror's commands does without", a.ops, shortCause(err)))
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil && asked.Load() {
		return 0, nil, noAnswer(err)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("answer of canald at %s: %w", a.ops, err)
	}
	return resp.StatusCode, answer, nil
}
