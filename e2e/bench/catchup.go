package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// fillRows is the size of the transactions that the mirror catches up with.
const fillRows = 500

// measureCatchUp compares the mirror with the plainest pipeline from binlog to Kafka.
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
	br := brief{DSN: dsn, GTID: info.InstalledGTID, Messages: b.messages}
	var pairs []pair
	var ours, others usage
	for range b.pairs {
		var p pair
		var used usage
		br.Profile = b.profileFile("canald-catchup")
		if p.ours, used, err = b.copyAll(ctx, db, roleMirror, br); err != nil {
			return nil, err
		}
		ours = ours.add(used)
		br.Profile = b.profileFile("naive-catchup")
		if p.other, used, err = b.copyAll(ctx, db, roleNaive, br); err != nil {
			return nil, err
		}
		others = others.add(used)
		pairs = append(pairs, p)
		b.say("  %.0f / %.0f msg/s = %.2f", p.ours, p.other, p.ratio())
	}
	n := compared(fmt.Sprintf("mirror catch-up of %d messages / naive pipeline", b.messages), "msg/s", pairs, atLeast(0.8))
	n.limit = ours.limit() + " (naive: " + others.limit() + ")"
	return []number{n}, nil
}

// copyAll runs one pipeline into an empty Kafka and returns its rate.
func (b *bench) copyAll(ctx context.Context, db *database, role string, br brief) (rate float64, used usage, err error) {
	kafka, err := b.startKafka(ctx)
	if err != nil {
		return 0, usage{}, err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	br.Brokers = []string{kafka.addr}
	m := newMeter(map[string]int{"database": db.PID(), "kafka": kafka.cmd.Process.Pid})
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

// kafka is a running embedded Kafka.
type kafka struct {
	*kid
	addr, dir string
}

func (b *bench) startKafka(ctx context.Context) (*kafka, error) {
	dir, err := os.MkdirTemp(b.dir, "kafka-")
	if err != nil {
		return nil, err
	}
	k, err := b.spawn(roleKafka, brief{Dir: dir})
	if err != nil {
		return nil, err
	}
	w, err := k.next(ctx)
	if err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return &kafka{kid: k, addr: w.Addr, dir: dir}, nil
}

// stop ends the Kafka and throws its data away.
func (k *kafka) stop() error { return errors.Join(k.kid.stop(), os.RemoveAll(k.dir)) }

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
