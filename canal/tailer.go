package canal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// A Tailer reads the transactions of one server from its binlog. It keeps no position:
// whoever takes transactions saves Txn.After with what he made of them.
type Tailer struct {
	config Config
	stats  stats
}

// NewTailer checks the configuration; it connects to nothing.
func NewTailer(c Config) (*Tailer, error) {
	c, err := c.filled()
	if err != nil {
		return nil, fmt.Errorf("tailer configuration: %w", err)
	}
	return &Tailer{config: c}, nil
}

// Stats is a snapshot of the counters. It may be called at any time.
func (t *Tailer) Stats() Stats { return t.stats.snapshot() }

// Txns yields the transactions behind a position, in the order of the binlog, each once
// and whole, for ever: it connects, and connects again when the connection is lost, from
// the last transaction that was handed out.
//
// The sequence ends with an error: ctx's own, or a *StopError when only an operator can
// mend what happened. Everything that was whole before it has been yielded. A Txn is
// valid until the next step; a slow caller makes the server wait. One sequence of a
// Tailer may run at a time.
func (t *Tailer) Txns(ctx context.Context, from Position) iter.Seq2[Txn, error] {
	return func(yield func(Txn, error) bool) {
		r := run{tailer: t, config: t.config, from: from, yield: yield}
		defer t.stats.connected.Store(false)
		if err := r.run(ctx); err != nil {
			yield(Txn{}, err)
		}
	}
}

// A run is one sequence of transactions.
type run struct {
	tailer *Tailer
	config Config
	from   Position
	yield  func(Txn, error) bool

	set      *gtidSet // behind the last transaction yielded; nil until connected once
	fruitful bool     // something was yielded since the last failure
	damaged  int      // undecodable events since then
	lost     bool     // the loss of the connection is logged
}

// errEnough is the caller's wish to hear no more.
var errEnough = errors.New("enough")

// maxDamaged is how often an event that cannot be decoded, or is cut off, is read again.
const maxDamaged = 3

func (r *run) run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		at, err := r.connection(ctx)
		r.tailer.stats.connected.Store(false)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if r.fruitful {
			failures, r.damaged, r.fruitful = 0, 0, false
		}
		stop, cause := r.config.judge(err, at)
		if cause == Damaged {
			r.damaged++
		}
		if stop != nil && (cause != Damaged || r.damaged > maxDamaged) {
			return stop.at(r.config.Addr)
		}
		r.tailer.stats.reconnect(cause)
		r.logLost(err, cause)
		if err := pause(ctx, backoff(failures, rand.Float64())); err != nil {
			return err
		}
	}
}

// logLost says once that the connection is gone.
func (r *run) logLost(err error, cause Cause) {
	log := r.config.Logger.With("addr", r.config.Addr, "cause", cause, "error", err)
	if r.lost {
		log.Debug("binlog connection not made")
		return
	}
	r.lost = true
	log.Warn("binlog connection lost")
}

// backoff doubles from 100 ms to 10 s; jitter, from 0 to 1, takes up to half of it away.
func backoff(failures int, jitter float64) time.Duration {
	d := min(100*time.Millisecond<<min(failures, 20), 10*time.Second)
	return d - time.Duration(jitter*float64(d)/2)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connection checks the server, reads from it until that fails, and tells how far it came.
func (r *run) connection(ctx context.Context) (stage, error) {
	c, err := r.config.located(ctx)
	if err != nil {
		return stageLogin, err
	}
	info, err := inspect(ctx, &c)
	if err != nil {
		return stageLogin, err
	}
	if err := r.admit(&info); err != nil {
		return stageLogin, err
	}
	caughtUp, err := parseSet(info.Flavor, info.Position.GTIDs)
	if err != nil {
		return stageLogin, err
	}
	s, err := openStream(ctx, &c, info.Flavor, r.set, info.foldsNames(), &r.tailer.stats)
	if err != nil {
		return stageDump, err
	}
	defer s.close()
	for {
		it, err := s.next(ctx)
		if err != nil {
			return stageStream, err
		}
		r.logFound(&info, c.Addr)
		if err := r.hand(it, caughtUp); err != nil {
			return stageStream, err
		}
	}
}

// admit checks settings, identity and position of the server.
func (r *run) admit(info *ServerInfo) error {
	c := &r.config
	if c.Flavor != "" && c.Flavor != info.Flavor {
		return &StopError{
			Reason: ErrServerChanged, What: fmt.Sprintf("it is %s, the configuration says %s", info.Version, c.Flavor),
			Mend: "correct the store's address or flavor in the configuration",
		}
	}
	if c.Server != "" && c.Server != info.Server {
		return &StopError{
			Reason: ErrServerChanged, What: fmt.Sprintf("%s answers, %s was read before", info.Server, c.Server),
			Mend: "point the store's address back to the old server; after a failover " + acceptGap,
		}
	}
	if err := info.Check(); err != nil {
		return err
	}
	if r.set != nil {
		return info.coversSet(r.set)
	}
	set, err := info.start(r.from)
	if err != nil {
		return err
	}
	r.set, c.Flavor, c.Server = set, info.Flavor, info.Server
	return nil
}

func (r *run) logFound(info *ServerInfo, addr string) {
	if r.fruitful && !r.lost {
		return
	}
	if !r.fruitful {
		r.config.Logger.Info("binlog connected", "addr", addr, "server", info.Server, "version", info.Version)
	}
	r.fruitful, r.lost = true, false
}

// hand gives one item to the caller. A heartbeat means that all was sent only when we
// hold what the server had when we connected: MySQL also sends them while it searches.
func (r *run) hand(it item, caughtUp *gtidSet) error {
	out := Txn{Kind: Heartbeat, Came: it.came, End: it.end, Server: r.config.Server, set: r.set}
	if t := it.txn; t != nil {
		if t.rows != nil {
			defer t.rows.release()
		}
		if !r.set.add(t.gtid) {
			return &StopError{
				Reason: ErrUnknownEvent, What: fmt.Sprintf("transaction %s a second time, or out of order", t.gtid.text(r.set.flavor)),
				Mend: "SET GLOBAL gtid_strict_mode=ON on MariaDB; check who sets GTIDs by hand; " + acceptGap,
			}
		}
		out.Kind, out.GTID, out.CommitTime, out.rows = t.kind, t.gtid.text(r.set.flavor), t.when, t.rows
		if t.kind == Rows {
			r.tailer.stats.rowTxns.Add(1)
		} else {
			r.tailer.stats.foreignTxns.Add(1)
		}
	} else if !r.set.contains(caughtUp) {
		return nil
	}
	if !r.yield(out, nil) {
		return errEnough
	}
	return nil
}
