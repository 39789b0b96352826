package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// fillRows is the size of the transactions that the mirror catches up with.
const fillRows = 500

// measureCatchUp compares the mirror with the plainest pipeline from binlog to Kafka, with one
// that pays nothing for exactly-once, and with reading the binlog alone.
func measureCatchUp(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, info, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	if err := db.fill(ctx, dsn, info.Shards, b.messages); err != nil {
		return nil, err
	}
	br := brief{DSN: dsn, GTID: info.InstalledGTID, Messages: b.messages, Commits: (b.messages + fillRows - 1) / fillRows}
	var numbers []number
	for _, kind := range b.kafkaKinds() {
		got, err := b.catchUp(ctx, db, kind, br)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, got...)
	}
	return numbers, nil
}

// catchUp compares the mirror with each of the others on one kind of Kafka.
func (b *bench) catchUp(ctx context.Context, db *database, kind kafkaKind, br brief) ([]number, error) {
	others := []struct {
		role, what string
		want       bound
	}{
		{roleNaive, "naive pipeline", atLeast(1)},
		{rolePlain, "the same without exactly-once", bound{}},
		{roleReplica, "bare raw event streaming", bound{}},
	}
	pairs := make([][]pair, len(others))
	used := map[string]usage{}
	for range b.pairs {
		rates := map[string]float64{}
		for _, role := range []string{roleMirror, roleNaive, rolePlain, roleReplica} {
			br.Profile = b.profileFile(role + "-catchup")
			rate, u, err := b.copyAll(ctx, db, kind, role, br)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", role, err)
			}
			rates[role], used[role] = rate, used[role].add(u)
		}
		for i, o := range others {
			pairs[i] = append(pairs[i], pair{rates[roleMirror], rates[o.role]})
		}
		b.say("  mirror %.0f, naive %.0f, without exactly-once %.0f, raw %.0f msg/s%s", rates[roleMirror], rates[roleNaive], rates[rolePlain], rates[roleReplica], kind.suffix)
	}
	var numbers []number
	for i, o := range others {
		n := compared(fmt.Sprintf("mirror catch-up of %d messages / %s%s", b.messages, o.what, kind.suffix), "msg/s", pairs[i], o.want)
		n.limit = fmt.Sprintf("%s (%s: %s); %.1f us of processors a message in canald, %.1f in the other", used[roleMirror].limit(), o.role, used[o.role].limit(),
			used[roleMirror].each(roleMirror, b.pairs*b.messages), used[o.role].each(o.role, b.pairs*b.messages))
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// copyAll runs one pipeline into an empty Kafka and returns its rate.
func (b *bench) copyAll(ctx context.Context, db *database, kind kafkaKind, role string, br brief) (rate float64, used usage, err error) {
	kafka, err := kind.start(ctx)
	if err != nil {
		return 0, usage{}, err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	br.Brokers = []string{kafka.addr}
	m := newMeter(map[string]int{"database": db.PID(), "kafka": kafka.pid})
	k, err := b.spawn(role, br)
	if err != nil {
		return 0, usage{}, err
	}
	defer func() { err = errors.Join(err, k.stop()) }()
	m.pids[role] = k.cmd.Process.Pid
	if _, err := k.next(ctx); err != nil {
		return 0, usage{}, err
	}
	used = m.used()
	return float64(br.Messages) / used.wall.Seconds(), used, nil
}

// fill inserts messages as a broker would, several shards at once, without waiting for the
// disk: how they came into the binlog is not measured.
func (d *database) fill(ctx context.Context, dsn string, shards, n int) error {
	lazy := map[string]string{"sync_binlog": "0", "innodb_flush_log_at_trx_commit": "2"}
	if err := d.set(ctx, lazy); err != nil {
		return err
	}
	pool, err := openPool(dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	g, work := errgroup.WithContext(ctx)
	const writers = 4
	for w := range writers {
		g.Go(func() error {
			s := newMessages(w)
			next := map[int]int64{}
			for begin := w * fillRows; begin < n; begin += writers * fillRows {
				shard := begin / fillRows % shards
				if shards%writers != 0 {
					shard = w % shards
				}
				rows := min(fillRows, n-begin)
				var args []any
				for range rows {
					next[shard]++
					args = s.appendRow(args, rawEpoch+next[shard], time.Now().UnixMicro())
				}
				if _, err := pool.ExecContext(work, insertText(shard, rows), args...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	durable := map[string]string{"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}
	return errors.Join(g.Wait(), d.set(ctx, durable))
}

func (d *database) set(ctx context.Context, vars map[string]string) error {
	var parts []string
	for name, value := range vars {
		parts = append(parts, "GLOBAL "+name+" = "+value)
	}
	_, err := d.pool.ExecContext(ctx, "SET "+strings.Join(parts, ", "))
	return err
}
