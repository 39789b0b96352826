package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"notifymirror/notifyd/schema"
)

const (
	// pileEpoch is the epoch of a pile's positions: behind those that the broker has had, before those it gets.
	pileEpoch = 100
	pileRows  = 500 // of one statement
)

// pileUp fills a store that no broker works on with messages that wait for one group, as if it had been away.
func (d *database) pileUp(ctx context.Context, name, group string, shards, messages int) error {
	pool, err := openPool(d.DSN(name))
	if err != nil {
		return err
	}
	defer pool.Close()
	var id int
	if err := pool.QueryRowContext(ctx, "SELECT id FROM registry_group WHERE name = ?", group).Scan(&id); err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	var g errgroup.Group
	g.SetLimit(4)
	for no := range shards {
		g.Go(func() error { return pileShard(ctx, pool, no, id, messages/shards) })
	}
	return errors.Join(g.Wait(), d.forget(ctx))
}

func pileShard(ctx context.Context, pool *sql.DB, no, group, messages int) error {
	const first = int64(pileEpoch) << 40
	s := newMessages(no)
	var args []any
	for done := 0; done < messages; {
		n := min(pileRows, messages-done)
		args = args[:0]
		for i := range n {
			args = s.appendRow(args, first+int64(done+i+1), time.Now().UnixMicro())
		}
		if _, err := pool.ExecContext(ctx, insertText(no, n), args...); err != nil {
			return err
		}
		done += n
	}
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO %s (pos, group_id, next_at, attempts, last_error) SELECT pos, %d, 0, 0, '' FROM %s WHERE pos > %d", schema.Pending(no), group, schema.Message(no), first),
		fmt.Sprintf("UPDATE epoch SET epoch = %d WHERE shard = %d", pileEpoch, no),
		fmt.Sprintf("UPDATE settled SET pos = %d WHERE shard = %d", first+int64(messages), no),
	} {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until a broker has settled everything that is in a schema, and the server has purged what
// was deleted.
func (d *database) settled(ctx context.Context, name string, shards int) error {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	var parts []string
	for no := range shards {
		parts = append(parts, fmt.Sprintf("(SELECT COALESCE(MAX(pos), 0) FROM %s.%s) <= (SELECT pos FROM %[1]s.settled WHERE shard = %[3]d)", name, schema.Message(no), no))
	}
	query := "SELECT " + strings.Join(parts, " AND ")
	return every(ctx, 50*time.Millisecond, func() (bool, error) {
		var all bool
		if err := d.pool.QueryRowContext(ctx, query).Scan(&all); err != nil || !all {
			return false, err
		}
		history, err := d.history(ctx)
		return history < 100, err
	})
}

// memory is the most that a process had in memory, in bytes; 0 if unknown.
func memory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
