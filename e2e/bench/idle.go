package main

import (
	"context"
	"errors"
	"time"
)

// idlePause lies between two single operations: what the broker does behind a publish, such
// as deleting the message, is over then.
const idlePause = 80 * time.Millisecond

// measureIdle compares single publishes with single inserts of the same row, in turn.
func measureIdle(ctx context.Context, b *bench) (_ []number, err error) {
	db, err := b.startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	dsn, _, err := db.install(ctx, "notify")
	if err != nil {
		return nil, err
	}
	rawDSN, _, err := db.install(ctx, "raw")
	if err != nil {
		return nil, err
	}
	pool, err := openPool(rawDSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	br, err := b.startBroker(ctx, dsn, "", "notifyd-idle")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	c, err := b.newCaller(br.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()

	s, text, pos := newMessages(0), insertText(0, 1), int64(rawEpoch)
	publish := func() error { return c.publish(ctx, s.message()) }
	insert := func() error {
		pos++
		_, err := pool.ExecContext(ctx, text, s.appendRow(nil, pos, time.Now().UnixMicro())...)
		return err
	}
	m := newMeter(map[string]int{"notifyd": br.cmd.Process.Pid, "database": db.PID()})
	var pairs []pair
	for range b.pairs + 1 { // the first warms up
		ours, other, err := inTurn(ctx, b.samples, publish, insert)
		if err != nil {
			return nil, err
		}
		p := pair{milliseconds(percentile(ours, 0.5)), milliseconds(percentile(other, 0.5))}
		pairs = append(pairs, p)
		b.say("  %.2f / %.2f ms = %.2f", p.ours, p.other, p.ratio())
	}
	n := compared("single publish, p50 / one bare insert, p50", "ms", pairs[1:], atMost(2))
	n.limit = "round trips and flushes of one transaction; " + m.used().limit()
	return []number{n}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// inTurn times two operations alternately, with a pause before each.
func inTurn(ctx context.Context, n int, one, two func() error) (ones, twos []time.Duration, err error) {
	pause := time.NewTicker(idlePause)
	defer pause.Stop()
	once := func(do func() error, times *[]time.Duration) error {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		began := time.Now()
		err := do()
		*times = append(*times, time.Since(began))
		return err
	}
	for range n {
		if err := errors.Join(once(one, &ones), once(two, &twos)); err != nil {
			return nil, nil, err
		}
	}
	return ones, twos, nil
}
