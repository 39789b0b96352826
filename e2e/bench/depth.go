package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"notifymirror/notifyd/client"
	"notifymirror/notifyd/schema"
)

const (
	// awayGroup is a group that is away, and awayTopic what it misses.
	awayGroup = "away"
	awayTopic = "missed"
	// mostMemory of a broker while messages are pending, in bytes.
	mostMemory = 500 << 20
)

// depthBench compares publishing above a pile of pending messages with raw inserts into tables as deep,
// and that with the same of empty tables.
type depthBench struct {
	*bench
	db     *database
	shards int
	sides  [2]depthSide // deep, empty
}

type depthSide struct {
	name string
	br   *broker
	pool *sql.DB
	raw  *rawInserts
}

func measureDepth(ctx context.Context, b *bench) (_ []number, err error) {
	d := &depthBench{bench: b, sides: [2]depthSide{{name: "deep"}, {name: "empty"}}}
	if d.db, err = b.startDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.db.stop()) }()
	for i := range d.sides {
		s := &d.sides[i]
		dsn, info, err := d.db.install(ctx, s.name)
		if err != nil {
			return nil, err
		}
		rawDSN, _, err := d.db.install(ctx, s.name+"_raw")
		if err != nil {
			return nil, err
		}
		if s.pool, err = openPool(rawDSN); err != nil {
			return nil, err
		}
		defer s.pool.Close()
		d.shards, s.raw = info.Shards, &rawInserts{pool: s.pool}
		if s.name == "deep" {
			if err := d.fill(ctx, dsn); err != nil {
				return nil, err
			}
		}
		if s.br, err = b.startBroker(ctx, dsn, "", "notifyd-"+s.name); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.br.stop()) }()
	}
	return d.measure(ctx)
}

// fill piles messages up in the deep store, and copies them to the tables of its raw inserts.
func (d *depthBench) fill(ctx context.Context, dsn string) error {
	if err := d.missed(ctx, dsn, awayTopic, awayGroup); err != nil {
		return err
	}
	if err := d.db.pileUp(ctx, "deep", awayGroup, d.shards, d.depth); err != nil {
		return err
	}
	for no := range rawConnections {
		if _, err := d.sides[0].pool.ExecContext(ctx, "INSERT INTO "+schema.Message(no)+" SELECT * FROM deep."+schema.Message(no)); err != nil {
			return err
		}
		d.sides[0].raw.next[no] = pileEpoch << 40
	}
	return d.db.forget(ctx)
}

// missed declares groups and stops the broker that did: the store can be filled.
func (b *bench) missed(ctx context.Context, dsn, topic string, groups ...string) error {
	br, err := b.startBroker(ctx, dsn, "", "")
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Addrs: []string{br.addr}})
	if err == nil {
		err = createTopic(ctx, c, topic)
		c.Close()
	}
	if err == nil {
		err = subscribe(ctx, br.addr, topic, groups...)
	}
	return errors.Join(err, br.stop())
}

func (d *depthBench) measure(ctx context.Context) ([]number, error) {
	var pairs []pair
	var rates []string
	var used usage
	for i := range d.pairs {
		var ratio [2]float64
		for _, k := range [][]int{{0, 1}, {1, 0}}[i%2] {
			s := &d.sides[k]
			ours, other, u, err := d.side(ctx, s)
			if err != nil {
				return nil, err
			}
			ratio[k] = ours / other
			rates = append(rates, fmt.Sprintf("%s %s / %s msg/s", s.name, amount(ours), amount(other)))
			d.say("  %s", rates[len(rates)-1])
			if k == 0 {
				used = used.add(u)
			}
		}
		pairs = append(pairs, pair{ratio[0], ratio[1]})
	}
	n := compared(fmt.Sprintf("publishes / raw inserts with %d messages pending, against the same with none", d.depth), "of raw inserts", pairs, atLeast(0.9))
	n.limit, n.runs, n.runsHead = used.limit(), rates, "runs"
	peak := memory(d.sides[0].br.cmd.Process.Pid)
	return []number{n, {what: "memory of notifyd while they are pending", value: fmt.Sprintf("%d MiB", peak>>20), want: fmt.Sprintf("at most %d MiB", mostMemory>>20),
		missed: peak > mostMemory, limit: "delivery_memory and publish_memory: rows that wait are not kept", runsHead: "MiB", runs: []string{fmt.Sprint(peak >> 20)}}}, nil
}

// side is a run of publishing, and one of raw inserts beside it.
func (d *depthBench) side(ctx context.Context, s *depthSide) (ours, other float64, used usage, err error) {
	ours, used, err = d.published(ctx, s.br, d.db, nil)
	if err == nil {
		err = errors.Join(d.db.settled(ctx, s.name, d.shards), d.db.forget(ctx))
	}
	if err != nil {
		return 0, 0, used, err
	}
	before := s.raw.next
	other, _, err = rate(ctx, d.window, map[string]int{"database": d.db.PID()}, &s.raw.rows, s.raw.run)
	if err != nil {
		return 0, 0, used, err
	}
	for no := range rawConnections { // back to the depth
		if _, err := s.pool.ExecContext(ctx, "DELETE FROM "+schema.Message(no)+" WHERE pos > ?", rawEpoch+before[no]); err != nil {
			return 0, 0, used, err
		}
	}
	return ours, other, used, errors.Join(d.db.settled(ctx, s.name, d.shards), d.db.forget(ctx))
}
