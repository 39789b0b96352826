package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/embedded"
)

// replicaCounts are how many connections read the binlog while is published.
var replicaCounts = [...]int{0, 1, 4}

// memoryDisk is where files need no flush, on Linux.
const memoryDisk = "/dev/shm"

// A binlogSetting is a way to set a server's binlog up.
type binlogSetting struct {
	name  string
	flags []string
}

// binlogSettings are those that are compared. The last is no disk at all: the most that any
// disk of its own for the binlog can give.
func (b *bench) binlogSettings(memory string) []binlogSetting {
	delay := []string{"--binlog-group-commit-sync-delay=1000"}
	if b.server.Flavor == embedded.MariaDB {
		delay = []string{"--binlog-commit-wait-usec=1000", "--binlog-commit-wait-count=1000"}
	}
	all := []binlogSetting{
		{"durable", nil},
		{"sync_binlog=0", []string{"--sync-binlog=0"}},
		{"group commit 1 ms late", delay},
	}
	if memory != "" {
		all = append(all, binlogSetting{"binlog in memory", []string{"--log-bin=" + memory + "/binlog"}})
	}
	return all
}

// measureReplicas publishes at a steady rate and times the acknowledgements, with connections
// that read the binlog and without, on servers of several settings.
func measureReplicas(ctx context.Context, b *bench) (numbers []number, err error) {
	memory, err := os.MkdirTemp(memoryDisk, "notify-bench-")
	if err == nil {
		defer func() { err = errors.Join(err, os.RemoveAll(memory)) }()
	}
	for _, s := range b.binlogSettings(memory) {
		n, err := b.measureReplicasOn(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		numbers = append(numbers, n...)
	}
	return numbers, nil
}

func (b *bench) measureReplicasOn(ctx context.Context, s binlogSetting) (_ []number, err error) {
	db, err := b.startDatabase(ctx, s.flags...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	br, err := b.startBroker(ctx, dsn, "", "notifyd-replicas")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	pids := map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()}
	return publishing(ctx, br.addr, func(ctx context.Context, p *client.Publisher) ([]number, error) {
		if _, err := timeAcks(ctx, p, 100); err != nil { // has everything attached
			return nil, err
		}
		var runs [len(replicaCounts)][]delay
		var used usage
		for range b.pairs {
			for i, n := range replicaCounts {
				d, u, err := b.withReplicas(ctx, db, dsn, n, pids, p)
				if err != nil {
					return nil, err
				}
				runs[i], used = append(runs[i], d), used.add(u)
				b.say("  %s, %d replication connections: %s", s.name, n, d)
			}
		}
		return []number{replicaNumber(s, runs, used)}, nil
	})
}

// replicaNumber is the medians of the runs' p99, one for each number of connections.
func replicaNumber(s binlogSetting, runs [len(replicaCounts)][]delay, used usage) number {
	n := number{what: fmt.Sprintf("publish p99 at %d msg/s with 0, 1 and 4 replication connections, %s", readableRate, s.name), limit: used.limit(), runsHead: "runs"}
	for i, list := range runs {
		if i > 0 {
			n.value += ", "
		}
		n.value += fmt.Sprintf("%.1f", median(column(list, func(d delay) float64 { return milliseconds(d.p99) })))
		for _, d := range list {
			n.runs = append(n.runs, fmt.Sprintf("%d: %s", replicaCounts[i], d))
		}
	}
	n.value += " ms"
	return n
}

// withReplicas is one run beside so many connections.
func (b *bench) withReplicas(ctx context.Context, db *database, dsn string, n int, pids map[string]int, p *client.Publisher) (d delay, used usage, err error) {
	if n > 0 {
		from, err := db.position(ctx)
		if err != nil {
			return d, used, err
		}
		k, err := b.await(ctx, roleReplica, brief{DSN: dsn, GTID: from, Readers: n})
		if err != nil {
			return d, used, err
		}
		defer func() { err = errors.Join(err, k.stop()) }()
	}
	m := newMeter(pids)
	d, err = timeAcks(ctx, p, max(1, int(b.window.Seconds()*readableRate)))
	return d, m.used(), err
}

// timeAcks publishes n messages at readableRate; the delay is from each to its acknowledgement.
func timeAcks(ctx context.Context, p *client.Publisher, n int) (delay, error) {
	var failure firstError
	sent, acked := make([]int64, n), make([]atomic.Int64, n)
	began, all := time.Now(), make(chan struct{})
	var left atomic.Int64
	left.Store(int64(n))
	err := paceMessages(ctx, readableRate, n, func(s *messages, i int) error {
		sent[i] = int64(time.Since(began))
		return p.Send(ctx, s.message(), client.PublishOptions{}, func(_ client.Published, err error) {
			if err != nil {
				failure.set(err)
			}
			acked[i].Store(int64(time.Since(began)))
			if left.Add(-1) == 0 {
				close(all)
			}
		})
	})
	if err != nil {
		return delay{}, err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return delay{}, ctx.Err()
	}
	return delayOf(acked, func(i int) int64 { return sent[i] }), failure.get()
}

// position is the GTIDs that the server has in its binlog.
func (d *database) position(ctx context.Context) (gtids string, err error) {
	query := "SELECT @@GLOBAL.gtid_executed"
	if d.flavor == embedded.MariaDB {
		query = "SELECT @@GLOBAL.gtid_binlog_pos"
	}
	err = d.pool.QueryRowContext(ctx, query).Scan(&gtids)
	return gtids, err
}
